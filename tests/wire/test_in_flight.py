"""Requests in flight on a connection: what is answered, what remains, and what the end of the connection gives back."""

from __future__ import annotations

import pytest

from ottla.errors import DecodeError, ErrorCode
from ottla.messages.api_keys import ApiKey
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.messages.headers import decode_request_header, encode_response_header
from ottla.messages.in_flight import InFlight
from ottla.messages.registry import APIS
from ottla.wire.compiler import encode

DESCRIBE_CLUSTER, API_VERSIONS = APIS[ApiKey.DESCRIBE_CLUSTER], APIS[ApiKey.API_VERSIONS]


def asked(in_flight: InFlight[str], *waiters: str) -> list[int]:
    """The correlation ids of a request for each waiter."""
    frames = [b"".join(in_flight.add(DescribeClusterRequest(), DESCRIBE_CLUSTER, 1, waiter)) for waiter in waiters]
    assert all(int.from_bytes(frame[:4], "big") == len(frame) - 4 for frame in frames)
    return [decode_request_header(memoryview(frame)[4:], is_flexible=True)[0].correlation_id for frame in frames]


def answer(correlation_id: int, cluster_id: str) -> memoryview:
    return memoryview(encode_response_header(correlation_id, is_flexible=True) + encode(DescribeClusterResponse(cluster_id=cluster_id), 1))


def test_responses_come_to_the_requests_in_their_order() -> None:
    in_flight = InFlight[str]("test")
    first, second = asked(in_flight, "first", "second")
    found = [in_flight.answered(answer(first, "a")), in_flight.answered(answer(second, "b"))]
    assert [sent.waiter for sent, _ in found] == ["first", "second"]
    assert [response.cluster_id for _, response in found if isinstance(response, DescribeClusterResponse)] == ["a", "b"]
    assert len(in_flight) == 0
    assert in_flight.oldest is None
    with pytest.raises(DecodeError, match="without a matching request"):
        in_flight.answered(answer(second, "c"))


def test_a_response_that_cannot_be_matched_or_decoded_loses_no_request() -> None:
    in_flight = InFlight[str]("test")
    first, second = asked(in_flight, "first", "second")
    for frame in (answer(second, "out of order"), answer(first, "cut short")[:-3]):
        with pytest.raises(DecodeError):
            in_flight.answered(frame)
    assert in_flight.oldest == "first"
    assert in_flight.end() == ["first", "second"]
    assert in_flight.end() == []


def test_a_request_without_a_response_leaves_nothing_in_flight() -> None:
    in_flight = InFlight[str]("test")
    in_flight.unanswered(DescribeClusterRequest(), DESCRIBE_CLUSTER, 1)
    assert len(in_flight) == 0
    (correlation_id,) = asked(in_flight, "first")
    assert in_flight.answered(answer(correlation_id, "a"))[0].waiter == "first"


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    in_flight = InFlight[str]("test")
    in_flight.add(ApiVersionsRequest(), API_VERSIONS, API_VERSIONS.version_max, "first")
    body = encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0)
    _, response = in_flight.answered(memoryview(encode_response_header(1, is_flexible=False) + body))
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION

"""A repeated answer is, byte for byte, what is encoded from its response."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.broker.test_repeated_head import API, VERSIONS, frame_of, head_of

from ottla.broker.requests.answers import encode_answer
from ottla.broker.requests.repeated_answer import VERSION_MIN, RepeatedAnswer
from ottla.errors import ErrorCode
from ottla.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

versions = st.integers(VERSION_MIN, API.version_max)
ints, longs = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


def response_of(name: str, topic_id: bytes, result: PartitionProduceResponse) -> ProduceResponse:
    return ProduceResponse([TopicProduceResponse(name, topic_id, [result])])


@given(versions, st.text(min_size=1, max_size=60), st.binary(min_size=16, max_size=16), ints, st.tuples(ints, longs, longs, longs, ints))
def test_each_number_is_where_the_encoder_writes_it(
    version: int, name: str, topic_id: bytes, index: int, numbers: tuple[int, int, int, int, int]
) -> None:
    request = ProduceRequest(None, -1, 1000, [TopicProduceData(name, topic_id, [PartitionProduceData(index, b"x")])])
    answer = RepeatedAnswer(API, version, request)
    correlation_id, base_offset, append_time_ms, log_start_offset, throttle_ms = numbers
    result = PartitionProduceResponse(
        index, base_offset=base_offset, log_append_time_ms=append_time_ms, log_start_offset=log_start_offset
    )  # fmt: skip
    response = response_of(name, topic_id, result)
    response.throttle_time_ms = throttle_ms
    assert answer.encode(correlation_id, response) == b"".join(encode_answer(API, version, correlation_id, response))


def test_what_says_more_is_encoded_whole() -> None:
    request = ProduceRequest(None, -1, 1000, [TopicProduceData("t", bytes(16), [PartitionProduceData(0, b"x")])])
    answer = RepeatedAnswer(API, API.version_max, request)
    assert answer.encode(1, response_of("t", bytes(16), PartitionProduceResponse(0))) is not None
    refused = PartitionProduceResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(1, 2))
    assert answer.encode(1, response_of("t", bytes(16), refused)) is None
    response = response_of("t", bytes(16), PartitionProduceResponse(0))
    response.node_endpoints.append(NodeEndpoint(1, "host", 9092))
    assert answer.encode(1, response) is None


def test_a_head_prepares_its_answer_where_there_is_one() -> None:
    for version in VERSIONS:
        head = head_of(frame_of(version, b"x"))
        assert head is not None
        assert (head.learn_answer() is None) == (version < VERSION_MIN)
        head.request.acks = 0
        head.answer = None
        assert head.learn_answer() is None, "a request with acks=0 gets no answer"

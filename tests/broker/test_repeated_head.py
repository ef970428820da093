"""What a remembered head takes for the same request is the same request, but for its records and its correlation id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.repeated_head import HEAD_BYTES_MAX, RepeatedHead
from ottla.errors import DecodeError
from ottla.messages.api_keys import ApiKey
from ottla.messages.headers import RequestHeader, decode_request_header, encode_request_header
from ottla.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.messages.registry import APIS
from ottla.wire.compiler import decode_from, encode

API = APIS[ApiKey.PRODUCE]
VERSIONS = range(3, 14)
versions = st.sampled_from(VERSIONS)
records = st.binary(min_size=1, max_size=300)


def frame_of(
    version: int, content: bytes, *, correlation_id: int = 1, client_id: str | None = "me", name: str = "t", index: int = 0
) -> bytes:
    topic = TopicProduceData(name if version < 13 else "", b"i" * 16, [PartitionProduceData(index, content)])
    header = encode_request_header(RequestHeader(0, version, correlation_id, client_id), is_flexible=version >= API.flexible)
    return header + encode(ProduceRequest(None, -1, 1000, [topic]), version)


def decoded(frame: bytes) -> tuple[RequestHeader, ProduceRequest]:
    version = int.from_bytes(frame[2:4], "big")
    header, position = decode_request_header(memoryview(frame), is_flexible=version >= API.flexible)
    return header, decode_from(ProduceRequest, version, memoryview(frame), position)[0]


def head_of(frame: bytes) -> RepeatedHead | None:
    header, request = decoded(frame)
    context = RequestContext(None, None, API, header.api_version, header.correlation_id, header.client_id, None, 0)  # type: ignore[arg-type]
    return RepeatedHead.of(context, request, memoryview(frame))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_request_with_other_records_is_known(version: int) -> None:
    head = head_of(frame_of(version, b"x" * 60))
    assert head is not None
    for size in (1, 60, 126, 127, 128, 70_000):
        again = frame_of(version, bytes(size), correlation_id=size)
        assert head.repeats(memoryview(again))
        assert (head.correlation_id, head.version, head.client_id) == (size, version, "me")
        assert head.request == decoded(again)[1]
    head.release()
    assert head.request.topic_data[0].partition_data[0].records is None


@pytest.mark.parametrize("version", VERSIONS)
def test_another_request_is_not(version: int) -> None:
    head = head_of(frame_of(version, b"x"))
    assert head is not None
    others = [frame_of(version, b"x", index=1), frame_of(version, b"x", client_id="you"), frame_of(version, b"x", client_id=None)]
    others += [frame_of(other, b"x") for other in VERSIONS if other != version]
    others += [frame_of(version, b""), frame_of(version, b"x") + b"\0", frame_of(version, b"x")[:-1]]
    if version < 13:
        others.append(frame_of(version, b"x", name="u"))
    for other in others:
        assert not head.repeats(memoryview(other))


def test_requests_for_several_partitions_and_large_heads_are_not_kept() -> None:
    two = TopicProduceData("t", bytes(16), [PartitionProduceData(index, b"x") for index in range(2)])
    one = TopicProduceData("t", bytes(16), [PartitionProduceData(0, b"x")])
    header = encode_request_header(RequestHeader(0, 7, 1, None), is_flexible=False)
    assert head_of(header + encode(ProduceRequest(None, 1, 1, [two]), 7)) is None
    assert head_of(header + encode(ProduceRequest(None, 1, 1, [one, one]), 7)) is None
    assert head_of(header + encode(ProduceRequest(None, 1, 1, []), 7)) is None
    assert head_of(frame_of(7, b"x", client_id="i" * HEAD_BYTES_MAX)) is None
    assert head_of(frame_of(7, b"")) is None


def test_a_request_with_tagged_fields_is_not_kept() -> None:
    tagged = frame_of(9, b"x")[:-1] + b"\1\x63\0"  # one unknown field, empty
    assert decoded(tagged)[1] == decoded(frame_of(9, b"x"))[1]
    assert head_of(tagged) is None


@given(versions, records, records, st.data())
def test_whatever_is_known_decodes_to_the_same(version: int, first: bytes, second: bytes, data: st.DataObject) -> None:
    """Frames that were damaged at any byte, cut or lengthened included."""
    head = head_of(frame_of(version, first))
    assert head is not None
    frame = bytearray(frame_of(version, second, correlation_id=data.draw(st.integers(0, 2**31 - 1))))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(frame) - 1))
        change = data.draw(st.sampled_from(["set", "cut", "insert"]))
        if change == "set":
            frame[at] = data.draw(st.integers(0, 255))
        elif change == "cut":
            del frame[at : at + data.draw(st.integers(1, 4))]
        else:
            frame[at:at] = data.draw(st.binary(min_size=1, max_size=4))
        if not frame:
            return
    if head.repeats(memoryview(frame)):
        try:
            header, request = decoded(bytes(frame))
        except DecodeError:
            pytest.fail("a frame that cannot be decoded was known")
        assert (header.api_key, header.api_version, header.client_id) == (0, version, "me")
        assert header.correlation_id == head.correlation_id
        assert request == head.request

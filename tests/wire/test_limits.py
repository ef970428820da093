"""What a hostile peer cannot make us do: allocate for what it only declares, or walk endless lists."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from tests.wire.strategies import DISTINCT_CODECS, name_of

from ottla.errors import DecodeError, EncodeError
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.create_topics import CreateTopicsRequest
from ottla.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.messages.fetch import FetchResponse
from ottla.messages.heartbeat import HeartbeatRequest
from ottla.messages.join_group import JoinGroupResponse
from ottla.messages.metadata import MetadataRequest
from ottla.messages.metadata_records import PartitionRecord
from ottla.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.compiler import decode, decode_from, encode
from ottla.wire.decoder import REQUEST_ELEMENTS_MAX
from ottla.wire.primitives import STRING_BYTES_MAX, TAGS_MAX, read_uvarint, uvarint
from ottla.wire.schema import DECLARATIONS, Message

FLEXIBLE = [(cls, version) for cls, version in DISTINCT_CODECS if version >= DECLARATIONS[cls].flexible]
LARGE = 2**31 - 1


@pytest.mark.parametrize(("cls", "version"), DISTINCT_CODECS, ids=name_of)
def test_a_count_or_length_without_content_costs_no_memory(cls: type[Message], version: int) -> None:
    """Every place of a message is in turn taken for the largest length there is."""
    wire = encode(cls(), version)
    large = uvarint(LARGE) if version >= DECLARATIONS[cls].flexible else struct.pack(">i", LARGE)
    attempts = [wire[:at] + large + wire[at + 4 :] + bytes(40) for at in range(len(wire))]
    decode(cls, version, wire)  # compiled before memory is measured
    tracemalloc.start()
    try:
        for attempt in attempts:
            try:
                decode(cls, version, attempt)
            except DecodeError:
                pass
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 200_000


@pytest.mark.parametrize("count", [LARGE, 1_000, -2])
def test_a_count_that_the_bytes_cannot_hold_is_refused_before_anything_is_made(count: int) -> None:
    with pytest.raises(DecodeError, match="elements"):
        decode(DescribeGroupsRequest, 0, struct.pack(">i", count) + b"\0\0" * 999)
    with pytest.raises(DecodeError, match="elements"):
        decode(MetadataRequest, 1, struct.pack(">i", count) + b"\0\0" * 999)


@pytest.mark.parametrize("count", [LARGE, 500, -2])
def test_a_nested_count_that_the_bytes_cannot_hold_is_refused(count: int) -> None:
    topic = b"\0\1t" + struct.pack(">ih", 1, 1)
    with pytest.raises(DecodeError, match="elements"):
        decode(CreateTopicsRequest, 2, struct.pack(">i", 1) + topic + struct.pack(">i", count) + bytes(1_000))


def test_null_is_refused_where_it_may_not_be() -> None:
    with pytest.raises(DecodeError, match="may not be null"):
        decode(DescribeGroupsRequest, 0, struct.pack(">i", -1))
    with pytest.raises(DecodeError, match="may not be null"):
        decode(HeartbeatRequest, 0, b"\xff\xff" + bytes(10))
    with pytest.raises(EncodeError):
        encode(FetchResponse(responses=None), 4)  # type: ignore[arg-type]
    assert encode(JoinGroupResponse(protocol_name=None), 7)
    with pytest.raises(EncodeError):
        encode(JoinGroupResponse(protocol_name=None), 6)
    assert encode(PartitionRecord(eligible_leader_replicas=None), 2)


def test_a_request_holds_a_bounded_number_of_elements() -> None:
    most = DescribeGroupsRequest([""] * REQUEST_ELEMENTS_MAX)
    assert len(decode(DescribeGroupsRequest, 5, encode(most, 5)).groups) == REQUEST_ELEMENTS_MAX
    with pytest.raises(DecodeError, match="than a message may hold"):
        decode(DescribeGroupsRequest, 5, encode(DescribeGroupsRequest([""] * (REQUEST_ELEMENTS_MAX + 1)), 5))


def test_nested_elements_count_towards_the_bound() -> None:
    half = [OffsetFetchRequestTopics("", bytes(16), [])] * (REQUEST_ELEMENTS_MAX // 2)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=half), OffsetFetchRequestGroup("h", topics=half)])
    with pytest.raises(DecodeError, match="than a message may hold"):
        decode(OffsetFetchRequest, 8, encode(request, 8))


def with_tags(cls: type[Message], version: int, section: bytes) -> bytes:
    """A message of defaults whose own tag section is ``section``."""
    wire = encode(cls(), version)
    assert wire[-1:] == b"\0", "a message ends with its tag section, and that of defaults is empty"
    return wire[:-1] + section


@pytest.mark.parametrize(("cls", "version"), FLEXIBLE, ids=name_of)
def test_unknown_tagged_fields_are_skipped(cls: type[Message], version: int) -> None:
    section = uvarint(2) + uvarint(100) + uvarint(3) + b"abc" + uvarint(300) + uvarint(0)
    assert decode(cls, version, with_tags(cls, version, section)) == cls()


@pytest.mark.parametrize(("cls", "version"), FLEXIBLE, ids=name_of)
def test_tagged_fields_are_capped(cls: type[Message], version: int) -> None:
    fields = [uvarint(tag) + uvarint(0) for tag in range(100, 100 + TAGS_MAX + 1)]
    assert decode(cls, version, with_tags(cls, version, uvarint(TAGS_MAX) + b"".join(fields[:-1]))) == cls()
    with pytest.raises(DecodeError, match="tagged fields"):
        decode(cls, version, with_tags(cls, version, uvarint(TAGS_MAX + 1) + b"".join(fields)))


@pytest.mark.parametrize("cls", [ApiVersionsRequest, FetchResponse])
def test_tags_rise_and_lie_inside_the_message(cls: type[Message]) -> None:
    version = DECLARATIONS[cls].versions[1]
    for section in (
        b"\2" + b"\x64\0" + b"\x64\0",  # the same twice
        b"\2" + b"\x65\0" + b"\x64\0",  # falling
        b"\1" + b"\x64\5abc",  # longer than the message
        b"\2" + b"\x64\0",  # fewer than declared
    ):
        with pytest.raises(DecodeError):
            decode_from(cls, version, with_tags(cls, version, section))


def test_a_tagged_field_fills_the_size_it_declares() -> None:
    version = DECLARATIONS[FetchResponse].versions[1]
    node_endpoints = b"\1"  # an empty array
    assert decode(FetchResponse, version, with_tags(FetchResponse, version, b"\1\0\1" + node_endpoints)) == FetchResponse()
    with pytest.raises(DecodeError, match="does not fill"):
        decode(FetchResponse, version, with_tags(FetchResponse, version, b"\1\0\2" + node_endpoints + b"\0"))


def test_a_string_has_at_most_as_many_bytes_as_kafka_allows_in_either_form() -> None:
    longest = "ü" * (STRING_BYTES_MAX // 2) + "g"
    for version in (0, 5):
        assert decode(DescribeGroupsRequest, version, encode(DescribeGroupsRequest([longest]), version)).groups == [longest]
        with pytest.raises(EncodeError):
            encode(DescribeGroupsRequest([longest + "g"]), version)
    with pytest.raises(DecodeError, match=r"DescribeGroupsRequest.groups has 32768 bytes"):
        decode(DescribeGroupsRequest, 5, uvarint(2) + uvarint(STRING_BYTES_MAX + 2) + bytes(STRING_BYTES_MAX + 1) + b"\0\0")


def test_an_error_message_is_cut_to_what_a_string_holds() -> None:
    answer = DescribeGroupsResponse(groups=[DescribedGroup(error_message="Group " + "ü" * STRING_BYTES_MAX)])
    [shown] = decode(DescribeGroupsResponse, 6, encode(answer, 6)).groups
    assert shown.error_message == "Group " + "ü" * ((STRING_BYTES_MAX - 6) // 2)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 254, 255, 256, 16_382, 16_383, 16_384])
def test_strings_and_arrays_of_every_length_of_length_are_read(size: int) -> None:
    request = DescribeGroupsRequest(["g" * size] + [""] * size)
    for version in (0, 5):
        assert decode(DescribeGroupsRequest, version, encode(request, version)) == request


@pytest.mark.parametrize("value", [0, 1, 127, 128, 1023, 1024, 16_383, 16_384, 2**21, 2**28, 2**31 - 1, 2**32 - 1])
def test_unsigned_varints_are_read_as_they_were_written(value: int) -> None:
    wire = uvarint(value)
    assert len(wire) == max(1, -(-value.bit_length() // 7))
    assert read_uvarint(b"x" + wire + b"x", 1) == (value, 1 + len(wire))


@pytest.mark.parametrize("wire", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"])
def test_unsigned_varints_have_32_bits_in_five_bytes(wire: bytes) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(wire, 0)


def test_what_a_version_cannot_carry_is_an_encode_error() -> None:
    with pytest.raises(EncodeError):
        encode(HeartbeatRequest("g" * 40_000), 0)
    with pytest.raises(EncodeError):
        encode(HeartbeatRequest(generation_id=2**31), 0)
    with pytest.raises(EncodeError):
        encode(HeartbeatRequest(), 5)

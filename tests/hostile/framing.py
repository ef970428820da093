"""Bad frames, headers, counts, strings and tags: what no decoder may trust."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tests.hostile import wire_bytes as by
from tests.hostile.case import FRAME_BYTES_MAX, INT_MAX, INT_MIN, MIB, Case
from tests.hostile.wire_bytes import TOPIC, frame, header, of_api, request

from ottla.messages.api_keys import ApiKey
from ottla.messages.create_topics import CreateTopicsRequest
from ottla.messages.delete_groups import DeleteGroupsRequest
from ottla.messages.delete_topics import DeleteTopicsRequest
from ottla.messages.describe_configs import DescribeConfigsRequest
from ottla.messages.describe_groups import DescribeGroupsRequest
from ottla.messages.fetch import FetchRequest
from ottla.messages.leave_group import LeaveGroupRequest
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.messages.offset_fetch import OffsetFetchRequest
from ottla.messages.registry import APIS


def frames() -> Iterator[Case]:
    for length in (-1, INT_MIN, FRAME_BYTES_MAX + 1, INT_MAX, -2):
        yield Case(f"length {length}", struct.pack(">i", length) + b"x" * 100)
    for length in range(8):
        yield Case(f"a frame of {length} bytes", frame(bytes(length)))
    yield Case("a length and nothing after it", struct.pack(">i", 1000), is_answered=False)
    yield Case("half a length", b"\x00\x00", is_answered=False)
    yield Case("a frame that is one byte short", frame(header(18, 0))[:-1], is_answered=False)
    yield Case("the largest frame, announced and not sent", struct.pack(">i", FRAME_BYTES_MAX) + b"x", is_answered=False)
    yield Case("two frames, the second one bad", request_api_versions() + frame(b"\xff" * 20))
    yield Case("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    yield Case("TLS hello", bytes.fromhex("16030100c8010000c40303") + bytes(200))
    yield Case("SSH", b"SSH-2.0-OpenSSH_9.2p1\r\n")
    yield Case("zeros", bytes(64 * 1024), is_answered=False)
    yield Case("ones", b"\xff" * 64 * 1024)
    yield Case("the largest frame, full of zeros", lambda: frame(bytes(FRAME_BYTES_MAX)))
    yield Case("the largest frame, full of ones", lambda: frame(b"\xff" * FRAME_BYTES_MAX))


def request_api_versions() -> bytes:
    return frame(header(18, 0))


def headers() -> Iterator[Case]:
    for key in (-1, 999, 32767, -32768, 4, 5, 6, 7):
        yield Case(f"API key {key}", frame(header(key, 0)))
    for key in (ApiKey.METADATA, ApiKey.FETCH, ApiKey.PRODUCE):
        for version in (-1, APIS[key].version_max + 1, 32767, -32768):
            yield Case(f"{APIS[key].name} version {version}", frame(header(key, version) + bytes(64)))
    for name, client_id in {
        "null client id": b"\xff\xff",
        "client id of length -2": b"\xff\xfe",
        "client id of 32767 bytes": b"\x7f\xff" + b"c" * 32767,
        "client id that is cut": b"\x7f\xffabc",
        "client id that is not UTF-8": b"\x00\x04\xff\xfe\xfd\xfc",
        "client id with a NUL": b"\x00\x03a\x00b",
    }.items():
        yield Case(name, frame(header(ApiKey.METADATA, 1, client_id) + struct.pack(">i", 0)))
    for name, tags in {
        "without its tags": b"",
        "with 2**32-1 tags": b"\xff\xff\xff\xff\x0f",
        "with an endless varint": b"\xff" * 20,
        "with a tag beyond the end": b"\x01\x00\xff\xff\x03",
    }.items():
        yield Case(f"flexible header {name}", frame(header(ApiKey.METADATA, 12, tags=tags)))
    yield Case("old header where a flexible one is due", frame(header(ApiKey.METADATA, 12) + struct.pack(">i", -1)))
    yield Case("flexible header where an old one is due", frame(header(ApiKey.METADATA, 1, tags=b"\x00") + struct.pack(">i", -1)))
    for size in range(1, 10):
        yield Case(f"header cut to {size} bytes", frame(header(ApiKey.METADATA, 1)[:size]))


def api_versions() -> Iterator[Case]:
    for version in (5, 99, 32767, -1):
        yield Case(f"version {version}", frame(header(ApiKey.API_VERSIONS, version)))
    for name, software in {"empty": b"", "of 1 MiB": b"s" * MIB, "with spaces": b"a b", "not UTF-8": b"\xff\xfe"}.items():
        body = by.compact_string(software) + by.compact_string(b"1") + b"\x00"
        yield Case(f"software name {name}", of_api(ApiKey.API_VERSIONS, 3, body))
    yield Case("software name that is null", of_api(ApiKey.API_VERSIONS, 3, b"\x00\x00\x00"))


def every_api() -> Iterator[Case]:
    """Bodies that fit no API, for the oldest and the newest version of each."""
    bodies = {
        "no body": b"",
        "zeros": bytes(64),
        "ones": b"\xff" * 64,
        "large counts": struct.pack(">i", INT_MAX) * 16,
        "negative counts": struct.pack(">i", -2) * 16,
        "endless varints": b"\x80" * 64,
        "a large varint count": b"\xff\xff\xff\xff\x0f" * 12,
    }
    for key, api in sorted(APIS.items()):
        for version in sorted({api.version_min, api.version_max}):
            if key in (ApiKey.PRODUCE,) and version < 3:
                version = 3
            for name, body in bodies.items():
                # Zeros may well be a request that waits (a fetch of nothing, a commit of nothing): alive is enough.
                yield Case(f"{api.name} v{version} {name}", of_api(key, version, body), is_answered=name != "zeros")


def arrays_and_strings() -> Iterator[Case]:
    metadata = ApiKey.METADATA
    for count in (-2, INT_MIN, INT_MAX, 1000, 100_000_000):
        yield Case(f"{count} topics, none there", of_api(metadata, 4, struct.pack(">i", count) + b"\x00"))
    yield Case("an array that may not be null", of_api(ApiKey.CREATE_TOPICS, 2, struct.pack(">iib", -1, 1000, 0)))
    for name, varint in {
        "6 bytes": b"\xff" * 5 + b"\x01",
        "10 bytes": b"\xff" * 9 + b"\x01",
        "over-long zero": b"\x80\x80\x80\x80\x00",
    }.items():
        yield Case(f"varint of {name} as a count", of_api(metadata, 12, varint + b"\x00" * 20))
    for length in (-2, 32767, INT_MIN & 0x7FFF):
        yield Case(f"topic name of length {length}", of_api(metadata, 4, struct.pack(">ih", 1, length) + b"abc\x00"))
    yield Case("topic name that is not UTF-8", of_api(metadata, 4, struct.pack(">ih", 1, 4) + b"\xff\xfe\xfd\xfc\x00"))
    yield Case("topic name with a lone surrogate", of_api(metadata, 4, struct.pack(">ih", 1, 3) + b"\xed\xa0\x80\x00"))
    many = [MetadataRequestTopic(name=TOPIC)] * 100_000
    yield Case("100,000 times the same topic", lambda: request(MetadataRequest(many, allow_auto_topic_creation=False), 8))
    wanted = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, timestamp=-1)] * 10_000)
    yield Case("10,000 times the same partition", lambda: request(ListOffsetsRequest(-1, topics=[wanted]), 5))
    yield Case("the same group 10,000 times", lambda: request(DescribeGroupsRequest(["g"] * 10_000), 4))
    for message, version in (
        (MetadataRequest([]), 8), (CreateTopicsRequest([]), 5), (DeleteTopicsRequest(topic_names=[]), 4), (ListOffsetsRequest(-1), 5),
        (OffsetFetchRequest("g", []), 6), (DescribeGroupsRequest([]), 4), (DeleteGroupsRequest([]), 1), (DescribeConfigsRequest([]), 3),
        (LeaveGroupRequest("g", members=[]), 4), (FetchRequest(), 11),
    ):  # fmt: skip
        yield Case(f"empty {type(message).__name__}", request(message, version))


def tagged_fields() -> Iterator[Case]:
    head = b"\x00\x00\x00"  # no topics, no creation, no authorized operations
    for name, tags in {
        "2**32-1 of them": b"\xff\xff\xff\xff\x0f",
        "an endless count": b"\xff" * 30,
        "unsorted": b"\x02\x05\x01x\x03\x01x",
        "twice the same": b"\x02\x05\x01x\x05\x01x",
        "size beyond the end": b"\x01\x05\xff\xff\xff\x07x",
        "size that is an endless varint": b"\x01\x05" + b"\xff" * 20,
        "tag that is an endless varint": b"\x01" + b"\xff" * 20,
        "cut after the tag": b"\x01\x05",
        "20,000 small ones": by.uvarint(20_000) + b"".join(by.uvarint(tag) + b"\x00" for tag in range(20_000)),
    }.items():
        yield Case(name, of_api(ApiKey.METADATA, 12, head + tags))
    fetch = struct.pack(">iiibii", 0, 1, MIB, 0, 0, -1) + b"\x01\x01\x01"
    for name, tags in {
        "a known tag of the wrong size": b"\x01\x00\x05\x02a",
        "a known tag of size 0": b"\x01\x00\x00",
        "a known struct tag that is cut": b"\x01\x01\x03\x00\x00\x00",
    }.items():
        yield Case(name, of_api(ApiKey.FETCH, 15, fetch + tags))

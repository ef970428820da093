"""What real clients sent, and were answered, is read and written to the byte. ``record_golden.py`` says where it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.messages.headers import decode_request_header, decode_response_header, encode_request_header, encode_response_header
from ottla.messages.registry import APIS
from ottla.wire.compiler import decode_from, encode

GOLDEN = Path(__file__).parent / "golden"
SURPLUS = {("confluent-kafka", "Metadata"): bytes.fromhex("010000")}
"""librdkafka asks for all topics (Metadata v9 and later) with three bytes too many."""


def exchanges() -> list[tuple[str, int, int, bytes, bytes]]:
    found = []
    for path in sorted(GOLDEN.glob("*.txt")):
        for line in path.read_text().splitlines():
            if not line.startswith("#"):
                key, version, request, response = line.split()
                found.append((path.stem, int(key), int(version), bytes.fromhex(request), bytes.fromhex(response)))
    return found


EXCHANGES = exchanges()
NAMES = [f"{client}-{APIS[key].name}-v{version}" for client, key, version, _, _ in EXCHANGES]


def test_five_clients_and_the_apis_of_their_round_are_there() -> None:
    by_client: dict[str, set[str]] = {}
    for client, key, _, _, _ in EXCHANGES:
        by_client.setdefault(client, set()).add(APIS[key].name)
    assert set(by_client) == {"aiokafka", "confluent-kafka", "java", "kafka-python", "kcat"}
    round_of_all = {
        "ApiVersions", "Metadata", "Produce", "Fetch", "ListOffsets", "FindCoordinator", "JoinGroup", "SyncGroup", "OffsetCommit",
        "OffsetFetch", "LeaveGroup",
    }  # fmt: skip
    with_an_admin = round_of_all | {"CreateTopics", "DeleteTopics", "InitProducerId", "Heartbeat", "ListGroups", "DescribeGroups"}
    for client, names in by_client.items():
        missing = (with_an_admin if client not in ("kcat", "java") else round_of_all) - names
        assert not missing, f"{client} has no exchange of {sorted(missing)}"


@pytest.mark.parametrize(("client", "key", "version", "request_frame", "_response"), EXCHANGES, ids=NAMES)
def test_a_clients_request_is_read_and_written_to_the_byte(
    client: str, key: int, version: int, request_frame: bytes, _response: bytes
) -> None:
    api = APIS[key]
    header, position = decode_request_header(memoryview(request_frame), is_flexible=api.is_flexible(version))
    request, end = decode_from(api.request, version, memoryview(request_frame), position)
    written = encode_request_header(header, is_flexible=api.is_flexible(version)) + encode(request, version)
    assert written == request_frame[:end]
    assert request_frame[end:] in (b"", SURPLUS.get((client, api.name), b""))


@pytest.mark.parametrize(("_client", "key", "version", "_request", "response_frame"), EXCHANGES, ids=NAMES)
def test_recorded_answers_are_decoded_and_encoded_again_byte_for_byte(
    _client: str, key: int, version: int, _request: bytes, response_frame: bytes
) -> None:
    api = APIS[key]
    is_flexible = api.has_flexible_response_header(version)
    correlation_id, position = decode_response_header(memoryview(response_frame), is_flexible=is_flexible)
    response, end = decode_from(api.response, version, memoryview(response_frame), position)
    assert end == len(response_frame)
    assert encode_response_header(correlation_id, is_flexible=is_flexible) + encode(response, version) == response_frame

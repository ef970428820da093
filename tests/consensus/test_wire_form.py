"""What voters say to each other survives its bytes, in every version that has all of it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.consensus import calls
from ottla.consensus.wire_form import from_answer_message, from_message, to_answer_message, to_message
from ottla.errors import DecodeError, ErrorCode
from ottla.messages.registry import API_OF_REQUEST
from ottla.records.builder import BatchBuilder
from ottla.wire.compiler import decode, encode
from ottla.wire.schema import Response

DIRECTORY, VOTER = b"d" * 16, b"v" * 16
REQUESTS: list[calls.Request] = [
    calls.Vote(7, 2, 6, 40, True, DIRECTORY, 3, VOTER, "cluster"),
    calls.Vote(7, 2, 6, 40, False, DIRECTORY, 3, VOTER, None),
    calls.BeginEpoch(7, 2, 3, VOTER, "cluster"),
    calls.EndEpoch(7, 2, (3, 1), "cluster"),
    calls.Fetch(7, 2, 40, 6, 38, 500, 1024, DIRECTORY, "cluster"),
    calls.FetchSnapshot(7, 2, calls.SnapshotId(6, 40), 100, 1024, DIRECTORY, "cluster"),
]


@pytest.mark.parametrize("call", REQUESTS, ids=lambda call: type(call).__name__)
def test_a_request_survives_its_bytes(call: calls.Request) -> None:
    message = to_message(call)
    version = API_OF_REQUEST[type(message)].version_max
    assert from_message(decode(type(message), version, encode(message, version))) == call


def records() -> bytes:
    batches = []
    for base_offset, epoch in ((40, 6), (42, 7)):
        builder = BatchBuilder()
        for _ in range(2):
            builder.append(None, b"value", timestamp_ms=1)
        batches.append(builder.build(base_offset=base_offset, leader_epoch=epoch))
    return b"".join(batches)


SPANS = (calls.Span(6, 40, 42), calls.Span(7, 42, 44))
ANSWERS: list[tuple[calls.Request, calls.Answer]] = [
    (REQUESTS[0], calls.VoteAnswer(0, 7, -1, True)),
    (REQUESTS[0], calls.VoteAnswer(ErrorCode.INVALID_VOTER_KEY, 7, 2)),
    (REQUESTS[2], calls.BeginEpochAnswer(ErrorCode.FENCED_LEADER_EPOCH, 8, 1)),
    (REQUESTS[3], calls.EndEpochAnswer(0, 7, -1)),
    (REQUESTS[4], calls.FetchAnswer(0, 7, 2, 43, 10, None, None, SPANS, records())),
    (REQUESTS[4], calls.FetchAnswer(0, 7, 2, 43, 10, calls.EpochEnd(5, 30), None, (), b"")),
    (REQUESTS[4], calls.FetchAnswer(0, 7, 2, 43, 10, None, calls.SnapshotId(5, 30), (), b"")),
    (REQUESTS[4], calls.FetchAnswer(error=ErrorCode.INCONSISTENT_CLUSTER_ID)),
    (REQUESTS[5], calls.FetchSnapshotAnswer(0, 7, 2, calls.SnapshotId(5, 30), 900, 100, b"piece")),
]


def over_the_wire(request: calls.Request, answer: calls.Answer) -> calls.Answer:
    api = API_OF_REQUEST[type(to_message(request))]
    response: Any = to_answer_message(answer)
    assert isinstance(response, Response)
    return from_answer_message(decode(api.response, api.version_max, encode(response, api.version_max)))


@pytest.mark.parametrize(("request_", "answer"), ANSWERS)
def test_an_answer_survives_its_bytes(request_: calls.Request, answer: calls.Answer) -> None:
    assert over_the_wire(request_, answer) == answer


def test_a_batch_that_was_cut_off_is_not_counted_and_a_damaged_one_is_refused() -> None:
    cut = calls.FetchAnswer(0, 7, 2, 43, 10, None, None, (), records()[:-3])
    assert over_the_wire(REQUESTS[4], cut).spans == SPANS[:1]  # type: ignore[attr-defined]
    damaged = bytearray(records())
    damaged[-1] ^= 1
    with pytest.raises(DecodeError, match="CRC"):
        over_the_wire(REQUESTS[4], calls.FetchAnswer(0, 7, 2, 43, 10, None, None, (), bytes(damaged)))


@pytest.mark.parametrize("call", REQUESTS, ids=lambda call: type(call).__name__)
def test_a_request_about_another_log_is_none_of_the_quorums(call: calls.Request) -> None:
    message: Any = to_message(call)
    topic = message.topics[0]
    name = next(field for field in ("topic_name", "topic", "name") if hasattr(topic, field))
    setattr(topic, name, "orders")
    assert from_message(message) is None
    message.topics.clear()
    assert from_message(message) is None

"""What a stranger may say to the voters of a quorum: every number at its limits, in the present epoch and in others, as anybody."""

from __future__ import annotations

from collections.abc import Iterator

from tests.hostile.case import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, Case
from tests.hostile.wire_bytes import request

from ottla.consensus.calls import BeginEpoch, EndEpoch, Fetch, FetchSnapshot, Request, SnapshotId, Vote
from ottla.consensus.wire_form import to_message
from ottla.messages.registry import API_OF_REQUEST

NOBODY = 77
JUMPS = (-1, 0, 1, 999, 1_000_001)
EPOCHS = (-1, 0, INT_MAX - 1, INT_MAX, INT_MIN)


def quorum_cases(epoch: int, leader: int, others: tuple[int, int], snapshots: list[SnapshotId]) -> Iterator[Case]:
    """For a cluster that is in ``epoch``; whoever believes one of them may be in another epoch after it."""
    for call in _calls(epoch, leader, others, snapshots):
        message = to_message(call)
        values = ", ".join(f"{name}={getattr(call, name)}" for name in call.__struct_fields__ if name not in ("cluster_id", "number"))
        yield Case(f"{type(call).__name__} {values}", request(message, API_OF_REQUEST[type(message)].version_max), is_answered=False)


def _calls(epoch: int, leader: int, others: tuple[int, int], snapshots: list[SnapshotId]) -> Iterator[Request]:
    for said in (*(epoch + jump for jump in JUMPS if epoch + jump >= 0), *EPOCHS):
        for node in (leader, *others, NOBODY, -1):
            yield BeginEpoch(said, node)
            yield EndEpoch(said, node, (INT_MAX, -1, others[0]))
        ends = (0, 2**60, False), (max(0, said - 1), LONG_MAX, False), (epoch, LONG_MAX, True), (-1, -1, True)
        for last_epoch, end_offset, is_pre in ends:
            yield Vote(said, others[0], last_epoch, end_offset, is_pre)
        yield Vote(said, NOBODY, 0, 2**60)
    for node in (leader, *others, NOBODY, -1, INT_MIN):
        for offset in (0, 1, LONG_MAX, -1, LONG_MIN):
            for last_epoch in (0, epoch, INT_MAX, -1):
                yield Fetch(epoch, node, offset, last_epoch, LONG_MIN, 1, 1 << 20)
        for wait_ms, size in ((-1, 1), (INT_MIN, INT_MAX), (0, -1), (0, INT_MIN), (0, 0), (INT_MAX, INT_MAX)):
            yield Fetch(epoch, node, 1, 1, LONG_MAX, wait_ms, size)
    for snapshot in (*snapshots, SnapshotId(epoch, 1), SnapshotId(-1, -1), SnapshotId(INT_MAX, LONG_MAX)):
        for position in (0, 1, -1, LONG_MAX, LONG_MIN):
            for size in (-1, 0, 1, INT_MAX, INT_MIN):
                yield FetchSnapshot(epoch, others[0], snapshot, position, size)

"""Offsets that are part of a transaction, against the rule itself: what counts is the newest of what was committed, in the log's order."""

from __future__ import annotations

import random

import pytest

from ottla.errors import ErrorCode
from ottla.groups.commands import CommitInTransaction, EndTransaction, ExpireOffsets, FetchOffsets, ListGroups, OffsetToCommit
from ottla.groups.coordinator import GroupCoordinator
from ottla.groups.offsets import CommittedOffsets
from ottla.groups.settings import GroupSettings
from ottla.machine import Decision, Marker, StoredRecord, Writer
from ottla.messages.group_records import OffsetCommitKey, OffsetCommitValue

PLACES = [("t", 0), ("t", 1)]
GROUPS = ["g", "h"]
PRODUCERS = [1, 2, 3]


class Oracle:
    """All commits of each place in the order of the log, with what became of them."""

    def __init__(self) -> None:
        self.commits: dict[tuple[str, tuple[str, int]], list[list[object]]] = {}

    def plain(self, group: str, place: tuple[str, int], offset: int) -> None:
        self.commits.setdefault((group, place), []).append([None, offset])

    def pending(self, producer: int, group: str, place: tuple[str, int], offset: int) -> None:
        self.commits.setdefault((group, place), []).append([producer, offset])

    def delete(self, group: str, place: tuple[str, int]) -> None:
        self.commits.pop((group, place), None)

    def end(self, producer: int, *, is_commit: bool) -> None:
        for key, commits in self.commits.items():
            for commit in commits:
                if commit[0] == producer:
                    commit[0] = None if is_commit else "aborted"
            self.commits[key] = [commit for commit in commits if commit[0] != "aborted"]

    def committed(self, group: str, place: tuple[str, int]) -> object:
        return next((offset for producer, offset in reversed(self.commits.get((group, place), [])) if producer is None), -1)

    def is_pending(self, group: str, place: tuple[str, int]) -> bool:
        return any(producer is not None for producer, _ in self.commits.get((group, place), []))


@pytest.mark.parametrize("seed", range(200))
def test_what_counts_is_the_newest_that_was_committed(seed: int) -> None:
    chance = random.Random(seed)
    offsets, oracle = CommittedOffsets(), Oracle()
    for number in range(60):
        group, place = chance.choice(GROUPS), chance.choice(PLACES)
        producer = chance.choice(PRODUCERS)
        key, value = OffsetCommitKey(group, *place), OffsetCommitValue(number, -1, "", 0, -1)
        match chance.choice(["plain", "pending", "pending", "commit", "abort", "delete"]):
            case "plain":
                offsets.apply(key, value)
                oracle.plain(group, place, number)
            case "pending":
                offsets.pending.add(producer, key, value)
                oracle.pending(producer, group, place, number)
            case "commit" | "abort" as how:
                offsets.end(producer, is_commit=how == "commit")
                oracle.end(producer, is_commit=how == "commit")
            case "delete":
                offsets.apply(key, None)
                oracle.delete(group, place)
        for group in GROUPS:
            found = {(one.topic, one.partition): one for one in offsets.fetch(group, tuple(PLACES))}
            stable = {(one.topic, one.partition): one for one in offsets.fetch(group, tuple(PLACES), require_stable=True)}
            unstable = [(one.topic, one.partition) for one in offsets.fetch(group, None, require_stable=True) if one.error_code]
            assert sorted(unstable) == [place for place in PLACES if oracle.is_pending(group, place)]
            for place in PLACES:
                assert found[place].offset == oracle.committed(group, place)
                is_unstable = stable[place].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
                assert is_unstable == oracle.is_pending(group, place)
                assert is_unstable or stable[place].offset == found[place].offset
    for _ in offsets.dismantle():
        pass
    assert list(offsets.groups()) == []


def applied(machine: GroupCoordinator, decision: Decision) -> Decision:
    """As a shard does it."""
    for record in decision.records:
        if decision.writer is None:
            machine.apply(record)
        else:
            machine.apply_pending(decision.writer.producer_id, record)
    if decision.marker is not None:
        machine.apply_end(decision.marker.producer_id, is_commit=decision.marker.is_commit)
    for fact in decision.facts:
        machine.apply_fact(fact)
    return decision


def commit(machine: GroupCoordinator, offset: int, *, generation_id: int = -1, member_id: str = "", now_ms: int = 0) -> int:
    offsets = (OffsetToCommit("t", 0, offset, -1, ""),)
    command = CommitInTransaction(1, "g", generation_id, member_id, None, offsets, Writer(7, 0, 0))
    [(_, result)] = applied(machine, machine.decide(command, now_ms)).replies
    return int(result.error_codes[0])


def fetch(machine: GroupCoordinator, *, require_stable: bool = False) -> tuple[int, int]:
    [(_, result)] = machine.decide(FetchOffsets(1, "g", (("t", 0),), require_stable), 0).replies
    return result.offsets[0].offset, result.offsets[0].error_code


def groups(machine: GroupCoordinator) -> list[str]:
    [(_, result)] = machine.decide(ListGroups(1), 0).replies
    return [group.group_id for group in result.groups]


def end(machine: GroupCoordinator, *, is_commit: bool) -> None:
    applied(machine, machine.decide(EndTransaction(1, Marker(7, 0, is_commit, 0, 0)), 0))


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_offset_counts_from_the_commit_marker_on(is_commit: bool) -> None:
    machine = GroupCoordinator(GroupSettings())
    assert commit(machine, 5) == 0
    assert fetch(machine) == (-1, 0)
    assert fetch(machine, require_stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    end(machine, is_commit=is_commit)
    assert fetch(machine, require_stable=True) == ((5, 0) if is_commit else (-1, 0))


def test_a_generation_that_is_given_is_checked() -> None:
    machine = GroupCoordinator(GroupSettings())
    assert commit(machine, 5, generation_id=3, member_id="m") == ErrorCode.ILLEGAL_GENERATION
    assert groups(machine) == []
    assert commit(machine, 5) == 0
    assert commit(machine, 6, generation_id=3, member_id="m") == ErrorCode.UNKNOWN_MEMBER_ID


def test_neither_a_pending_offset_nor_its_group_expires() -> None:
    machine = GroupCoordinator(GroupSettings(offsets_retention_ms=10))
    machine.apply(StoredRecord(OffsetCommitKey("g", "t", 0), OffsetCommitValue(3, -1, "", 0, -1)))
    assert commit(machine, 5) == 0
    applied(machine, machine.decide(ExpireOffsets(), 1000))
    assert (fetch(machine), groups(machine)) == ((3, 0), ["g"])
    end(machine, is_commit=False)
    applied(machine, machine.decide(ExpireOffsets(), 1000))
    assert (fetch(machine), groups(machine)) == ((-1, 0), [])


def test_a_group_with_nothing_but_pending_offsets_stays() -> None:
    machine = GroupCoordinator(GroupSettings(offsets_retention_ms=10))
    assert commit(machine, 5) == 0
    applied(machine, machine.decide(ExpireOffsets(), 1000))
    assert groups(machine) == ["g"]

"""A share of the crash states of each recorded run; ``make torture`` tries 100,000."""

from __future__ import annotations

import itertools

import pytest
from tests.storage.batches import DIRECTORY, append, batch
from tests.storage.crash_states import BYTES, FATES, Fate, Run, State, explore
from tests.storage.recorded_cleanings import transacting_and_cleaning
from tests.storage.recorded_runs import CONFIG, RUNS, open_log

from ottla.sim.instant_disk import run
from ottla.storage.segment.files import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_stem
from ottla.storage.segment.transaction_index import Transaction, to_bytes

WHOLE = Fate("all", "all", 0)


def closings(recorded: Run) -> list[int]:
    """After how many operations there is a next segment, whose directory was not yet synced; the log's first one among them."""
    return [number for number, (operation, path, *_) in enumerate(recorded.trace, 1) if operation == "create" and path.endswith(LOG_SUFFIX)]


@pytest.mark.parametrize("name", RUNS)
def test_what_a_power_cut_leaves_is_recovered_as_promised(name: str) -> None:
    assert explore(RUNS[name](), seed=1, states=400) >= 400


def test_what_a_power_cut_leaves_of_cleaned_transactions_is_read_as_it_was_committed() -> None:
    assert explore(transacting_and_cleaning(), seed=1, states=400) >= 400


def test_a_segment_that_was_closed_when_some_names_were_lost_forgets_no_aborted_transaction() -> None:
    """The name of its index of transactions is not durable before the directory was synced, though the next segment's may be."""
    recorded = RUNS["transacting"]()
    for done, content, seed in itertools.product(closings(recorded), BYTES, range(12)):
        disk = State(recorded.start, recorded.trace[:done]).after(Fate(content, "some", seed))
        before = disk.copy()
        recorded.check(disk, done)
        cut_short = State(before, disk.operations[: seed % (len(disk.operations) + 1)])
        recorded.check(cut_short.after(Fate(content, "all", seed)), done)


def test_an_index_of_transactions_that_recovery_replaces_is_there_whole_or_not_at_all() -> None:
    """That of an older segment, which is damaged: an empty one would be believed after a crash."""
    recorded = RUNS["transacting"]()
    done = closings(recorded)[-1] + 1
    disk = State(recorded.start, recorded.trace[:done]).after(WHOLE)
    path = f"{DIRECTORY}/{file_stem(5)}{TRANSACTION_INDEX_SUFFIX}"
    disk.put(path, bytes(disk.files[path].written) + b"?")
    before = disk.copy()
    recorded.check(disk, done)
    for cut, fate in itertools.product(range(len(disk.operations) + 1), FATES):
        recorded.check(State(before, disk.operations[:cut]).after(Fate(*fate, cut)), done)


def test_an_index_of_transactions_that_recovery_removes_does_not_return() -> None:
    recorded = RUNS["transacting"]()
    disk = State(recorded.start, recorded.trace[: closings(recorded)[1] + 1]).after(WHOLE)
    stale = Transaction(producer_id=0, first_offset=0, last_offset=4, last_stable_offset=5)
    disk.put(f"{DIRECTORY}/{file_stem(0)}{TRANSACTION_INDEX_SUFFIX}", to_bytes([stale]))
    before = disk.copy()
    log = open_log(disk, CONFIG)
    append(log, batch(b"later"))
    found = open_log(State(before, disk.operations).after(Fate("all", "none", 0)), CONFIG)
    assert found.log_end_offset == log.log_end_offset == 6
    assert run(found.aborted.between(0, 6)) == []

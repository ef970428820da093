"""Compaction: what stays of a log, in what form, and through which crashes."""

from __future__ import annotations

from hypothesis import given, settings
from tests.storage.compaction_model import Case, Machine, Operation, cases, play

from ottla.sim.loop import run


def play_cases(count: int) -> tuple[int, int, int]:
    """So many hypothesis cases; segments put in place, records removed and crashes in all of them."""
    totals = [0, 0, 0]

    @settings(max_examples=count, report_multiple_bugs=False)
    @given(cases)
    def play_one(case: Case) -> None:
        model = play(case)
        for index, number in enumerate((model.installed, model.removed, model.crashes)):
            totals[index] += number

    play_one()
    return totals[0], totals[1], totals[2]


def test_a_compacted_log_holds_the_newest_of_each_key_through_any_crash() -> None:
    installed, removed, crashes = play_cases(500)
    assert (installed > 500, removed > 1000, crashes > 200) == (True, True, True), "the cases had content"


def writes(count: int, *, keys: int = 5) -> list[Operation]:
    return [("plain", ([(number % keys, number % 7 == 6)], number % 5)) for number in range(count)]


WRITES_AND_CLEANINGS: list[list[Operation]] = [
    [*writes(20), ("transactional", ([(0, False), (1, False)], 2)), *writes(2), ("end", (False, 2)), *writes(6)],
    [("clean", 12)],
    [("wait", 1000), ("idempotent", ([(3, True)], 1)), *writes(12, keys=2)],
    [("clean", 2)],
    [("clean", 12)],
]


def crash_in_cleanings(*, power_cut: bool, seed_count: int) -> int:
    """At each disk operation of each cleaning, and then of the recovery; the crashes that there were."""
    machine, crashes = Machine(1), 0
    for operations in WRITES_AND_CLEANINGS:
        whole = machine.copy(1, power_cut=False)
        run(whole.play(operations, []))
        for step in range(1, whole.model.cleaning_steps + 1) if operations[0][0] == "clean" else ():
            for seed in range(seed_count):
                crashed = machine.copy(1000 * step + seed, power_cut=power_cut)
                run(crashed.play(operations, [step, 1 + (step + seed) % 12] if seed % 2 else [step]))
                crashes += crashed.model.crashes
        machine = whole
    return crashes


def test_a_process_killed_at_any_disk_operation_of_a_cleaning_loses_nothing() -> None:
    assert crash_in_cleanings(power_cut=False, seed_count=3) > 400


def test_a_power_cut_at_any_disk_operation_of_a_cleaning_loses_nothing() -> None:
    """Power cuts differ by what they keep, so each is tried in several ways."""
    assert crash_in_cleanings(power_cut=True, seed_count=4) > 600

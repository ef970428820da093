"""Timeouts of transactions, ids that expire, and a wall clock that jumps."""

from __future__ import annotations

from typing import Any

import pytest
from tests.transactions.coordinator_runner import ID, NONE, TIMEOUT_MS, Runner

from ottla.errors import ErrorCode
from ottla.machine import Decision
from ottla.transactions.commands import AbortTimedOut, EndResult, InitResult, PartitionsResult
from ottla.transactions.coordinator import ABORTED_MAX, ABORTED_PARTITIONS_MAX, TransactionSettings
from ottla.transactions.transaction import TransactionState

HOUR_MS = 3_600_000


def opened(epoch: int = 0, *, version: int = 2, level: int = 2) -> tuple[Runner, int]:
    runner = Runner(level=level)
    producer_id, _ = runner.brought_to(epoch)
    runner.add(producer_id, epoch, "t-0", version=version)
    return runner, producer_id


@pytest.mark.parametrize("epoch", [0, 32_764, 32_765, 32_766])
@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_is_aborted_when_its_time_has_passed(epoch: int, version: int) -> None:
    runner, producer_id = opened(epoch, version=version)
    runner.advance(TIMEOUT_MS - 1)
    assert runner.status() == TransactionState.ONGOING
    runner.advance(1)
    [markers] = runner.due_markers
    assert (markers.producer_id, markers.producer_epoch, markers.is_commit) == (producer_id, epoch + 1, False)
    runner.answer_all()
    fenced = ErrorCode.PRODUCER_FENCED if epoch < 32_766 else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert runner.add(producer_id, epoch, "t-1") == PartitionsResult((fenced,))
    assert runner.init(producer_id, epoch) == InitResult(ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize("epoch", [0, 32_765, 32_766])
def test_a_commit_that_comes_too_late_is_fenced_and_an_abort_has_its_way(epoch: int) -> None:
    runner, producer_id = opened(epoch)
    runner.advance(TIMEOUT_MS)
    assert runner.end(producer_id, epoch, is_commit=True) == EndResult(ErrorCode.PRODUCER_FENCED)
    runner.answer_all()
    assert runner.end(producer_id, epoch, is_commit=True) == EndResult(ErrorCode.PRODUCER_FENCED)
    next_one = (producer_id, epoch + 1) if epoch < 32_766 else (producer_id + 1, 0)
    assert runner.end(producer_id, epoch, is_commit=False) == EndResult(NONE, *next_one)


def test_the_time_counts_from_the_beginning_and_not_from_the_last_partition() -> None:
    runner, producer_id = opened()
    runner.advance(TIMEOUT_MS - 10)
    runner.add(producer_id, 0, "t-1")
    runner.advance(10)
    assert runner.status() == TransactionState.PREPARE_ABORT


@pytest.mark.parametrize("lost_after_ms", [0, 10_000, TIMEOUT_MS - 1])
def test_a_failover_gives_no_time_and_takes_none(lost_after_ms: int) -> None:
    runner, _ = opened()
    runner.advance(lost_after_ms)
    runner.restart()
    runner.advance(TIMEOUT_MS - lost_after_ms - 1)
    assert runner.status() == TransactionState.ONGOING
    runner.advance(1)
    assert runner.status() == TransactionState.PREPARE_ABORT


def test_a_transaction_whose_time_passed_while_nobody_coordinated_it_is_aborted_at_once() -> None:
    runner, _ = opened()
    runner.timers.clear()
    runner.advance(2 * TIMEOUT_MS)
    runner.restart()
    runner.advance(0)
    assert runner.status() == TransactionState.PREPARE_ABORT


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_was_set_back_makes_a_transaction_no_longer_than_its_timeout_and_a_round(is_restarted: bool) -> None:
    runner, producer_id = opened()
    runner.now_ms -= HOUR_MS
    runner.timers = {
        name: type(timer)(timer.name, timer.deadline_ms - HOUR_MS, timer.command) for name, timer in runner.timers.items()
    }  # they are of a clock that does not jump
    if is_restarted:
        runner.restart()
    runner.advance(10_000)
    runner.add(producer_id, 0, "t-1")
    runner.advance(TIMEOUT_MS + 1)
    assert runner.status() == TransactionState.PREPARE_ABORT


def test_a_clock_that_was_set_forward_is_noticed_within_a_round() -> None:
    runner, _ = opened()
    runner.now_ms += HOUR_MS
    runner.timers = {name: type(timer)(timer.name, timer.deadline_ms + HOUR_MS, timer.command) for name, timer in runner.timers.items()}
    runner.advance(10_000)
    assert runner.status() == TransactionState.PREPARE_ABORT


def test_many_transactions_have_each_its_own_time() -> None:
    runner = Runner()
    for number, timeout_ms in enumerate((5_000, 1_000, 30_000)):
        found = runner.init(name=f"id-{number}", timeout_ms=timeout_ms)
        assert found is not None
        runner.add(found.producer_id, 0, "t-0", name=f"id-{number}")
    aborted = []
    for _ in range(31):
        runner.advance(1_000)
        found_now = [markers.transactional_id for markers in runner.due_markers]
        runner.answer_all()
        aborted += [(runner.now_ms - 1_000_000, name) for name in found_now]
    assert aborted == [(1_000, "id-1"), (5_000, "id-0"), (30_000, "id-2")]


def decided_at_the_deadline(runner: Runner) -> list[int]:
    """How many transactions each decision aborts, of those whose time passes together."""
    decide, decided = runner.machine.decide, list[int]()

    def noted(command: Any, now_ms: int) -> Decision:
        decision = decide(command, now_ms)
        if isinstance(command, AbortTimedOut):
            decided.append(len(decision.effects))
        return decision

    runner.machine.decide = noted  # type: ignore[method-assign]
    runner.advance(TIMEOUT_MS)
    return [found for found in decided if found]


def test_a_decision_aborts_so_many_and_the_next_one_the_rest_at_once() -> None:
    """Thousands may run out of time together, as while their coordinator stood still."""
    runner, count = Runner(), 2 * ABORTED_MAX + 1
    for number in range(count):
        found = runner.init(name=f"id-{number}")
        assert found is not None
        runner.add(found.producer_id, 0, "t-0", name=f"id-{number}")
    assert decided_at_the_deadline(runner) == [ABORTED_MAX, ABORTED_MAX, 1]
    assert len(runner.due_markers) == count
    runner.answer_all()
    assert {found.state for found in runner.machine._transactions.values()} == {TransactionState.COMPLETE_ABORT}


@pytest.mark.parametrize(("size", "at_once"), [(ABORTED_PARTITIONS_MAX // 4, 4), (2 * ABORTED_PARTITIONS_MAX, 1)])
def test_a_decision_aborts_so_many_partitions_and_the_next_one_the_rest_at_once(size: int, at_once: int) -> None:
    runner, count = Runner(), 2 * at_once + 1
    for number in range(count):
        found = runner.init(name=f"id-{number}")
        assert found is not None
        runner.add(found.producer_id, 0, *(f"t-{index}" for index in range(size)), name=f"id-{number}")
    assert decided_at_the_deadline(runner) == [at_once, at_once, 1]
    runner.answer_all()
    assert {found.state for found in runner.machine._transactions.values()} == {TransactionState.COMPLETE_ABORT}


def test_an_id_that_is_not_used_is_forgotten() -> None:
    runner = Runner(TransactionSettings(id_expiration_ms=HOUR_MS, expiration_check_interval_ms=1_000))
    found = runner.init()
    assert found is not None
    runner.advance(HOUR_MS - 1_000)
    assert runner.described() is not None
    runner.advance(1_000)
    assert runner.described() is None
    assert runner.log[-1][1] is None, "by a tombstone"
    assert runner.add(found.producer_id, 0, "t-0") == PartitionsResult((ErrorCode.INVALID_PRODUCER_ID_MAPPING,))
    runner.restart()
    assert runner.described() is None
    assert runner.init(found.producer_id, 0) == InitResult(NONE, found.producer_id + 1, 0)


@pytest.mark.parametrize("is_decided", [False, True])
def test_an_id_whose_transaction_is_not_complete_is_kept(is_decided: bool) -> None:
    runner = Runner(TransactionSettings(id_expiration_ms=1_000, expiration_check_interval_ms=100))
    found = runner.init(timeout_ms=900_000)
    assert found is not None
    runner.add(found.producer_id, 0, "t-0")
    if is_decided:
        runner.end(found.producer_id, 0, is_commit=True)
    runner.advance(10_000)
    assert runner.described() is not None
    assert runner.machine._transactions.keys() == {ID}

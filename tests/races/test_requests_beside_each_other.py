"""Two requests, or a request and a deadline, about one transactional id: in either order each is answered by what the other has left."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.transactions.coordinator_runner import NONE, TIMEOUT_MS, Runner

from ottla.errors import ErrorCode
from ottla.transactions.commands import EndResult, InitResult, PartitionsResult
from ottla.transactions.effects import TakeProducerId
from ottla.transactions.transaction import EPOCH_MAX, TransactionState

FENCED, MAPPING = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
EPOCHS = [0, EPOCH_MAX - 2, EPOCH_MAX - 1, EPOCH_MAX]
OUTCOMES = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


class SlowIds(Runner):
    """Producer ids come when the test gives them."""

    def __init__(self) -> None:
        self.due_ids: list[TakeProducerId] = []
        super().__init__()

    def _carry_out_effect(self, effect: Any) -> None:
        if self.last_token > 1 and isinstance(effect, TakeProducerId):  # a first one is there at once
            self.due_ids.append(effect)
        else:
            super()._carry_out_effect(effect)

    def give(self, *, at: int = 0) -> None:
        self.next_producer_id += 1
        self.decide(replace(self.due_ids.pop(at).command, fresh_producer_id=self.next_producer_id - 1))


def open_at(runner: Runner, epoch: int, version: int = 2) -> int:
    """An open transaction in this epoch, of the producer whose id is returned."""
    producer_id, _ = runner.brought_to(epoch)
    assert runner.add(producer_id, epoch, "t-0", version=version) == PartitionsResult((NONE,))
    return producer_id


def next_of(producer_id: int, epoch: int) -> tuple[int, int]:
    return (producer_id, epoch + 1) if epoch < EPOCH_MAX else (producer_id + 1, 0)


def answers(runner: Runner, kind: type) -> list[Any]:
    return [answer for answer in runner.answers.values() if isinstance(answer, kind)]


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_deadline_that_comes_after_the_decision_changes_nothing(is_commit: bool, version: int, epoch: int) -> None:
    """Its markers are on their way for long."""
    runner = Runner()
    producer_id = open_at(runner, epoch, version)
    runner.advance(TIMEOUT_MS - 1)
    found = runner.end(producer_id, epoch, is_commit=is_commit, version=version)
    assert found is not None
    assert found.error_code == NONE
    records = len(runner.log)
    for _ in range(3):
        runner.advance(TIMEOUT_MS)
    assert len(runner.log) == records
    [markers] = runner.due_markers
    assert markers.is_commit == is_commit
    runner.answer_all()
    assert runner.status() == OUTCOMES[is_commit]


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("version", [0, 2])
def test_an_end_that_comes_after_another_process_has_begun_is_fenced(version: int, epoch: int) -> None:
    runner = Runner()
    producer_id = open_at(runner, epoch, version)
    assert runner.init() is None, "the open transaction is aborted first"
    runner.end(producer_id, epoch, is_commit=True, version=version)
    [markers] = runner.due_markers
    assert (markers.producer_epoch, markers.is_commit) == (epoch + 1, False)
    runner.answer_all()
    [ended] = answers(runner, EndResult)
    assert ended.error_code in (FENCED, MAPPING)
    assert answers(runner, InitResult)[-1] == InitResult(NONE, *next_of(*next_of(producer_id, epoch)))


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("version", [0, 2])
def test_another_process_that_begins_after_the_decision_waits_for_it_and_changes_nothing_of_it(version: int, epoch: int) -> None:
    runner = Runner()
    producer_id = open_at(runner, epoch, version)
    found = runner.end(producer_id, epoch, is_commit=True, version=version)
    assert found is not None
    assert found.error_code == NONE
    assert runner.init() is None
    [markers] = runner.due_markers
    assert markers.is_commit
    runner.answer_all()
    assert answers(runner, InitResult)[-1] == InitResult(NONE, *next_of(found.producer_id, found.producer_epoch))
    assert runner.due_markers == []


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("is_open", [True, False])
def test_of_two_processes_that_begin_at_once_the_later_one_has_the_higher_epoch(is_open: bool, epoch: int) -> None:
    runner = Runner()
    if is_open:
        expected = next_of(open_at(runner, epoch), epoch)
    else:
        expected = runner.brought_to(epoch)
    for _ in range(2):
        runner.init()
    runner.answer_all()
    for found in answers(runner, InitResult)[-2:]:
        expected = next_of(*expected)
        assert found == InitResult(NONE, *expected)


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("is_commit", [True, False])
def test_partitions_of_the_next_transaction_before_and_after_the_last_one_is_complete(is_commit: bool, is_late: bool) -> None:
    runner = Runner()
    producer_id = open_at(runner, 0)
    runner.end(producer_id, 0, is_commit=is_commit)
    if is_late:
        runner.answer_all()
        assert runner.status() == OUTCOMES[is_commit]
    added = runner.add(producer_id, 1, "t-5")
    assert added == (PartitionsResult((NONE,)) if is_late else None)
    runner.answer_all()
    assert runner.status() == TransactionState.ONGOING
    assert [str(key) for key in runner.state.partitions] == ["t-5"]
    assert answers(runner, PartitionsResult)[-1] == PartitionsResult((NONE,))


# -- while a new producer id is due


@pytest.mark.parametrize("first", ["end", "init"])
@pytest.mark.parametrize("given", ["in order", "in reverse"])
def test_an_end_and_another_process_that_both_lack_a_producer_id(first: str, given: str) -> None:
    """What has its id first is decided first, whatever came first; one of the ids that were taken is left over."""
    runner = SlowIds()
    producer_id = open_at(runner, EPOCH_MAX)
    if first == "end":
        runner.end(producer_id, EPOCH_MAX, is_commit=True)
        runner.init()
    else:
        runner.init()
        runner.end(producer_id, EPOCH_MAX, is_commit=True)
    assert len(runner.due_ids) == 2
    assert runner.due_markers == []
    runner.give(at=0 if given == "in order" else 1)
    is_commit = (first == "end") == (given == "in order")
    [markers] = runner.due_markers
    assert (markers.producer_id, markers.producer_epoch, markers.is_commit) == (producer_id, EPOCH_MAX + 1, is_commit)
    runner.give()
    assert runner.due_markers == [markers]
    runner.answer_all()
    [ended], begun = answers(runner, EndResult), answers(runner, InitResult)[-1]
    assert (ended.error_code == NONE) == is_commit
    next_id = runner.state.producer_id
    assert next_id in (producer_id + 1, producer_id + 2)
    assert begun == InitResult(NONE, next_id, 1)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_deadline_that_comes_while_the_end_lacks_a_producer_id(is_late: bool) -> None:
    """The controller is away for long; what has its id first is decided."""
    runner = SlowIds()
    producer_id = open_at(runner, EPOCH_MAX)
    runner.end(producer_id, EPOCH_MAX, is_commit=True)
    runner.advance(TIMEOUT_MS)
    assert runner.status() == TransactionState.ONGOING
    assert len(runner.due_ids) == 2
    runner.give(at=1 if is_late else 0)
    assert runner.status() == (TransactionState.PREPARE_ABORT if is_late else TransactionState.PREPARE_COMMIT)
    while runner.due_ids:
        runner.give()
    runner.answer_all()
    assert runner.status() == OUTCOMES[not is_late]
    [ended] = answers(runner, EndResult)
    assert ended == (EndResult(FENCED) if is_late else EndResult(NONE, runner.state.producer_id, 0))


@pytest.mark.parametrize("is_restarted", [True, False])
def test_an_end_whose_producer_id_comes_when_its_coordinator_is_lost_is_asked_for_again(is_restarted: bool) -> None:
    runner = SlowIds()
    producer_id = open_at(runner, EPOCH_MAX)
    assert runner.end(producer_id, EPOCH_MAX, is_commit=True) is None
    if is_restarted:
        runner.due_ids.clear()
        runner.restart()
        assert runner.status() == TransactionState.ONGOING
        assert runner.end(producer_id, EPOCH_MAX, is_commit=True) is None
    runner.give()
    runner.answer_all()
    assert answers(runner, EndResult) == [EndResult(NONE, runner.state.producer_id, 0)]
    assert runner.status() == TransactionState.COMPLETE_COMMIT

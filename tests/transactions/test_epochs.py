"""Who may go on under a transactional id: ids, epochs, fences, and requests that are repeated because their answer was lost."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from tests.transactions.coordinator_runner import ID, NONE, Runner, partitions

from ottla.errors import ErrorCode
from ottla.machine import StoredRecord
from ottla.messages.transaction_records import TransactionLogKey, TransactionLogValue
from ottla.transactions.commands import EndResult, EndTransaction, InitResult, PartitionsResult, VerifyPartitions
from ottla.transactions.records import decode_record, encode_record
from ottla.transactions.transaction import TransactionState

FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
EPOCHS = [0, 1, 32_764, 32_765, 32_766]
"""The last of them can still be written under."""


def next_of(producer_id: int, epoch: int) -> tuple[int, int]:
    """What follows; tests have one producer, whose next id is one more."""
    return (producer_id, epoch + 1) if epoch < 32_766 else (producer_id + 1, 0)


def test_a_new_transactional_id_gets_a_producer_id_at_epoch_0() -> None:
    assert Runner().init() == InitResult(NONE, 1000, 0)


@pytest.mark.parametrize("epoch", EPOCHS)
def test_each_start_of_a_producer_has_the_next_epoch(epoch: int) -> None:
    runner = Runner()
    last = runner.brought_to(epoch)
    for _ in range(3):
        found = runner.init()
        assert found == InitResult(NONE, *next_of(*last))
        last = (found.producer_id, found.producer_epoch)


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_producer_that_goes_on_has_the_next_epoch_and_the_same_one_again_when_it_repeats(epoch: int, is_restarted: bool) -> None:
    """Over a failover too, though Kafka's records have no room for what it had before."""
    runner = Runner()
    producer_id, _ = runner.brought_to(epoch)
    wanted = InitResult(NONE, *next_of(producer_id, epoch))
    for _ in range(3):
        assert runner.init(producer_id, epoch) == wanted
        if is_restarted:
            runner.restart()


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_after_a_fence_nobody_goes_on_from_before(epoch: int, level: int, is_restarted: bool) -> None:
    runner = Runner(level=level)
    producer_id, _ = runner.brought_to(epoch)
    successor = runner.init()
    assert successor is not None
    if is_restarted:
        runner.restart()
    assert runner.init(producer_id, epoch) == InitResult(FENCED)
    assert runner.add(producer_id, epoch, "t-0") == PartitionsResult((FENCED if epoch < 32_766 else MAPPING,))
    assert runner.end(producer_id, epoch, is_commit=False, version=0) == EndResult(FENCED if epoch < 32_766 else MAPPING)
    assert runner.end(producer_id, epoch, is_commit=False) == EndResult(FENCED if epoch < 32_766 else MAPPING)
    assert runner.add(successor.producer_id, successor.producer_epoch, "t-0") == PartitionsResult((NONE,))


def test_a_refusal_that_ends_a_producer_is_one_of_the_coordinator_of_the_present() -> None:
    """One that has been replaced, and does not know it, would end a producer whose transaction the next coordinator has."""
    runner, of_it = Runner(), (1000, 0)
    assert runner.init() == InitResult(NONE, *of_it)
    end = partial(EndTransaction, 0, ID, *of_it, transaction_version=2)
    assert code_and_confirmation(runner, end(is_commit=True)) == (ErrorCode.INVALID_TXN_STATE, True)
    assert code_and_confirmation(runner, replace(end(is_commit=True), producer_epoch=5)) == (FENCED, True)
    assert code_and_confirmation(runner, replace(end(is_commit=True), transactional_id="others")) == (MAPPING, True)
    assert code_and_confirmation(runner, VerifyPartitions(0, ID, *of_it, partitions("t-0"))) == (ErrorCode.TRANSACTION_ABORTABLE, False)
    assert runner.add(*of_it, "t-0") == PartitionsResult((NONE,))
    assert code_and_confirmation(runner, end(is_commit=True)) == (NONE, False), "its own records say who leads"
    before = dict(runner.machine._transactions)
    confirmation = runner.machine.decide(replace(end(is_commit=True), producer_epoch=5), runner.now_ms).confirmation
    assert confirmation is not None
    assert decode_record(*encode_record(confirmation, transaction_version=2)) == confirmation
    runner.machine.apply(confirmation)
    assert runner.machine._transactions == before


def code_and_confirmation(runner: Runner, command: Any) -> tuple[int, bool]:
    decision = runner.machine.decide(command, runner.now_ms)
    [(_, found)] = decision.replies
    return found.error_codes[0] if isinstance(found, PartitionsResult) else found.error_code, decision.confirmation is not None


def test_a_zombie_that_goes_on_does_not_abort_its_successor() -> None:
    runner = Runner()
    zombie = runner.init()
    successor = runner.init()
    assert zombie is not None
    assert successor is not None
    runner.add(successor.producer_id, successor.producer_epoch, "t-0")
    assert runner.init(zombie.producer_id, zombie.producer_epoch) == InitResult(FENCED)
    assert runner.status() == TransactionState.ONGOING


@pytest.mark.parametrize("epoch", EPOCHS)
def test_a_fence_aborts_the_open_transaction_under_one_higher_epoch_and_waits_for_its_markers(epoch: int) -> None:
    runner = Runner()
    producer_id, _ = runner.brought_to(epoch)
    runner.add(producer_id, epoch, "t-0", "t-1", version=0)
    for _ in range(3):
        assert runner.init() is None
    [markers] = runner.due_markers
    assert (markers.producer_id, markers.producer_epoch, markers.is_commit) == (producer_id, epoch + 1, False)
    runner.answer(markers)
    fenced = next_of(producer_id, epoch)
    ends = [answer for answer in runner.answers.values() if isinstance(answer, InitResult)][-3:]
    for answer in ends:
        fenced = next_of(*fenced)
        assert answer == InitResult(NONE, *fenced)
    assert runner.init(producer_id, epoch) == InitResult(FENCED)


@pytest.mark.parametrize("epoch", EPOCHS)
def test_a_producer_that_goes_on_within_its_transaction_aborts_it_and_has_the_epoch_of_the_abort(epoch: int) -> None:
    runner = Runner()
    producer_id, _ = runner.brought_to(epoch)
    runner.add(producer_id, epoch, "t-0")
    assert runner.init(producer_id, epoch) is None
    runner.answer_all()
    wanted = InitResult(NONE, *next_of(producer_id, epoch))
    assert [answer for answer in runner.answers.values() if isinstance(answer, InitResult)][-1] == wanted
    runner.restart()
    assert runner.init(producer_id, epoch) == wanted


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_of_a_transaction_of_version_2_has_the_next_epoch(epoch: int, is_commit: bool) -> None:
    """A late request of the transaction is fenced by that; markers have the epoch that follows, whatever the producer id is next."""
    runner = Runner()
    producer_id, _ = runner.brought_to(epoch)
    runner.add(producer_id, epoch, "t-0")
    wanted = EndResult(NONE, *next_of(producer_id, epoch))
    assert runner.end(producer_id, epoch, is_commit=is_commit) == wanted
    [markers] = runner.due_markers
    assert (markers.producer_id, markers.producer_epoch) == (producer_id, epoch + 1)
    assert (markers.is_commit, markers.transaction_version) == (is_commit, 2)
    assert runner.end(producer_id, epoch, is_commit=is_commit) is None, "its answer waits for the markers"
    runner.answer_all()
    assert [answer for answer in runner.answers.values() if isinstance(answer, EndResult)] == [wanted, wanted]
    for _ in range(3):
        runner.restart()
        assert runner.end(producer_id, epoch, is_commit=is_commit) == wanted
    assert runner.end(producer_id, epoch, is_commit=not is_commit) == EndResult(ErrorCode.INVALID_TXN_STATE if is_commit else FENCED)
    assert runner.init(producer_id, epoch) == InitResult(NONE, wanted.producer_id, wanted.producer_epoch)


@pytest.mark.parametrize("epoch", EPOCHS)
def test_the_next_transaction_may_be_asked_for_before_the_markers_are_written(epoch: int) -> None:
    """It has an id and epoch that the state does not have yet: it waits, and is not fenced by itself."""
    runner = Runner()
    producer_id, _ = runner.brought_to(epoch)
    runner.add(producer_id, epoch, "t-0")
    ended = runner.end(producer_id, epoch, is_commit=True)
    assert ended is not None
    assert runner.add(ended.producer_id, ended.producer_epoch, "t-1") is None
    runner.answer_all()
    assert [answer for answer in runner.answers.values() if isinstance(answer, PartitionsResult)][-1] == PartitionsResult((NONE,))
    assert runner.status() == TransactionState.ONGOING


@pytest.mark.parametrize("epoch", [5, 32_765, 32_766])
def test_below_version_2_the_end_of_a_transaction_keeps_the_epoch(epoch: int) -> None:
    runner = Runner(level=0)
    producer_id, _ = runner.brought_to(epoch)
    for is_commit in (True, False):
        runner.add(producer_id, epoch, "t-0", version=0)
        assert runner.end(producer_id, epoch, is_commit=is_commit, version=0) == EndResult(NONE, producer_id, epoch)
        [markers] = runner.due_markers
        assert (markers.producer_epoch, markers.transaction_version) == (epoch, 0)
        runner.answer_all()
        assert runner.end(producer_id, epoch, is_commit=is_commit, version=0) == EndResult(NONE, producer_id, epoch)
        assert runner.end(producer_id, epoch, is_commit=not is_commit, version=0) == EndResult(ErrorCode.INVALID_TXN_STATE)


def test_what_the_request_says_counts_and_not_the_level_of_the_cluster() -> None:
    runner = Runner(level=2)
    found = runner.init()
    assert found is not None
    runner.add(found.producer_id, 0, "t-0", version=0)
    assert runner.end(found.producer_id, 0, is_commit=True, version=0) == EndResult(NONE, found.producer_id, 0)
    assert [markers.producer_epoch for markers in runner.due_markers] == [0]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_zombie_of_version_2_does_not_take_the_end_of_its_successors_transaction_for_its_own(is_commit: bool) -> None:
    """Below version 2 an end raises no epoch: the one before it is a zombie's, who would be handed the successor's epoch."""
    runner = Runner()
    zombie = runner.init()
    successor = runner.init()
    assert zombie is not None
    assert successor is not None
    runner.add(successor.producer_id, successor.producer_epoch, "t-0", version=0)
    runner.end(successor.producer_id, successor.producer_epoch, is_commit=is_commit, version=0)
    runner.answer_all()
    assert runner.end(zombie.producer_id, zombie.producer_epoch, is_commit=is_commit) == EndResult(FENCED)


@pytest.mark.parametrize("epoch", EPOCHS)
def test_an_abort_of_nothing_has_the_next_epoch_too_and_no_marker(epoch: int) -> None:
    runner = Runner()
    producer_id, _ = runner.brought_to(epoch)
    wanted = EndResult(NONE, *next_of(producer_id, epoch))
    assert runner.end(producer_id, epoch, is_commit=False) == wanted
    assert runner.due_markers == []
    runner.restart()
    assert runner.end(producer_id, epoch, is_commit=False) == wanted, "repeated"
    assert runner.end(wanted.producer_id, wanted.producer_epoch, is_commit=True) == EndResult(ErrorCode.INVALID_TXN_STATE)
    assert runner.end(wanted.producer_id, wanted.producer_epoch, is_commit=False, version=0) == EndResult(
        NONE, *next_of(producer_id, epoch)
    )


def test_a_higher_epoch_than_that_of_the_state_is_fenced_as_a_lower_one_is() -> None:
    runner = Runner()
    producer_id, epoch = runner.brought_to(5)
    for wrong in (4, 6):
        assert runner.init(producer_id, wrong) == InitResult(FENCED)
        assert runner.add(producer_id, wrong, "t-0") == PartitionsResult((FENCED,))
        assert runner.verify(producer_id, wrong, "t-0") == PartitionsResult((FENCED,))
        assert runner.end(producer_id, wrong, is_commit=True) == EndResult(FENCED)
        assert runner.end(producer_id, wrong, is_commit=True, version=0) == EndResult(FENCED)
    assert runner.add(producer_id + 9, epoch, "t-0") == PartitionsResult((MAPPING,))


def test_a_producer_whose_transactional_id_has_expired_goes_on_under_a_new_producer_id() -> None:
    runner = Runner()
    assert runner.init(77, 5) == InitResult(NONE, 1000, 0)
    assert runner.init(77, 5) == InitResult(NONE, 1000, 0), "repeated"
    assert runner.init(77, 4) == InitResult(FENCED)


def test_kafkas_record_of_an_exhausted_producer_id_is_enough_to_repeat_the_answer() -> None:
    """It does not record which epoch the client had; that was the last one, or nobody's."""
    runner = Runner()
    producer_id, epoch = runner.brought_to(32_766)
    runner.init(producer_id, epoch)
    value = runner.state.to_value()
    value.last_producer_epoch = -1
    rewrite(runner, value)
    assert runner.init(producer_id, 32_766) == InitResult(NONE, producer_id + 1, 0)
    assert runner.init(producer_id, 32_765) == InitResult(FENCED)


def rewrite(runner: Runner, value: TransactionLogValue) -> None:
    runner.log.append(encode_record(StoredRecord(TransactionLogKey(ID), value), transaction_version=2))
    runner.restart()


@pytest.mark.parametrize(
    ("name", "timeout_ms", "producer_id", "epoch", "code"),
    [
        ("", 1000, -1, -1, ErrorCode.INVALID_REQUEST),
        ("", 0, -1, -1, ErrorCode.INVALID_REQUEST),
        ("é" * 20_000, 1000, -1, -1, ErrorCode.INVALID_REQUEST),
        (ID, 1000, 7, -1, ErrorCode.INVALID_REQUEST),
        (ID, 1000, -1, 0, ErrorCode.INVALID_REQUEST),
        (ID, 0, -1, -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (ID, -1, -1, -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (ID, 900_001, -1, -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_impossible_arguments_of_init_are_refused(name: str, timeout_ms: int, producer_id: int, epoch: int, code: ErrorCode) -> None:
    runner = Runner()
    assert runner.init(producer_id, epoch, name=name, timeout_ms=timeout_ms) == InitResult(code)
    assert runner.log == []

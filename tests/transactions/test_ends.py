"""From the first partition to the last marker: decisions, what brokers answer, and coordinators that are lost in between."""

from __future__ import annotations

import pytest
from tests.transactions.coordinator_runner import ID, NONE, Runner, partitions

from ottla.errors import ErrorCode
from ottla.transactions.commands import EndResult, ListResult, ListTransactions, PartitionsResult
from ottla.transactions.transaction import TransactionState

ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
AGAIN = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
]


def opened(*names: str, version: int = 2) -> tuple[Runner, int]:
    """A transaction of these partitions, by a producer at epoch 0 of the id."""
    runner = Runner()
    found = runner.init()
    assert found is not None
    assert runner.add(found.producer_id, 0, *names, version=version) == PartitionsResult((NONE,) * len(names))
    return runner, found.producer_id


def test_partitions_are_added_until_the_transaction_ends() -> None:
    runner, producer_id = opened("t-0")
    records = len(runner.log)
    assert runner.add(producer_id, 0, "t-0") == PartitionsResult((NONE,))
    assert len(runner.log) == records, "they are known"
    runner.add(producer_id, 0, "t-1", "u-0")
    assert runner.state.partitions == frozenset(partitions("t-0", "t-1", "u-0"))
    runner.end(producer_id, 0, is_commit=True)
    [markers] = runner.due_markers
    assert markers.partitions == frozenset(partitions("t-0", "t-1", "u-0"))


def test_nothing_begins_with_no_partition() -> None:
    runner = Runner()
    found = runner.init()
    assert found is not None
    assert runner.add(found.producer_id, 0) == PartitionsResult(())
    assert runner.status() == TransactionState.EMPTY


def test_partitions_are_verified() -> None:
    runner, producer_id = opened("t-0")
    assert runner.verify(producer_id, 0, "t-0", "t-1") == PartitionsResult((NONE, ABORTABLE))
    runner.end(producer_id, 0, is_commit=True)
    busy = PartitionsResult((ErrorCode.CONCURRENT_TRANSACTIONS,))
    assert runner.verify(producer_id, 1, "t-0") == busy, "a broker holds the producer's connection: it does not wait here"
    assert runner.verify(producer_id, 0, "t-0") == busy
    runner.answer_all()
    assert runner.verify(producer_id, 1, "t-0") == PartitionsResult((ABORTABLE,))
    assert runner.verify(producer_id, 1, "t-0", name="nobody") == PartitionsResult((ErrorCode.INVALID_PRODUCER_ID_MAPPING,))


@pytest.mark.parametrize("is_commit", [True, False])
def test_it_is_complete_when_every_partition_has_its_marker(is_commit: bool) -> None:
    runner, producer_id = opened("t-0", "t-1", "t-2")
    runner.end(producer_id, 0, is_commit=is_commit)
    [markers] = runner.due_markers
    runner.answer(markers, NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, NONE)
    assert runner.status().is_prepared
    shown = runner.described()
    assert shown is not None
    assert shown.partitions == frozenset(partitions("t-1"))
    runner.advance(20)
    again = runner.due_markers
    assert [markers.partitions for markers in again] == [frozenset(partitions("t-1"))]
    runner.answer(again[0])
    assert runner.status() == (TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT)
    assert runner.state.partitions == frozenset()


@pytest.mark.parametrize("code", AGAIN)
def test_a_marker_is_asked_for_until_it_is_written(code: ErrorCode) -> None:
    """Also when a broker does not know the topic: it may lag behind the one that does."""
    runner, producer_id = opened("t-0")
    runner.end(producer_id, 0, is_commit=True)
    delays = []
    for _ in range(9):
        [markers] = runner.due_markers
        runner.answer(markers, code)
        assert runner.status() == TransactionState.PREPARE_COMMIT
        delays.append(runner.asked[0].due_ms - runner.now_ms)
        runner.advance(delays[-1])
    assert delays == [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]
    assert runner.reports == []
    runner.answer_all()
    assert runner.status() == TransactionState.COMPLETE_COMMIT


def test_a_marker_refused_with_an_unforeseen_code_is_asked_for_again_and_reported() -> None:
    runner, producer_id = opened("t-0")
    runner.end(producer_id, 0, is_commit=True)
    runner.answer(runner.due_markers[0], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert [report.error_code for report in runner.reports] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    runner.answer_all()
    assert runner.status() == TransactionState.COMPLETE_COMMIT


def test_a_topic_that_was_deleted_needs_no_marker() -> None:
    runner, producer_id = opened("t-0", "u-0")
    runner.end(producer_id, 0, is_commit=True)
    runner.answer(runner.due_markers[0], NONE, deleted=partitions("u-0"))
    assert runner.status() == TransactionState.COMPLETE_COMMIT


def test_a_marker_that_its_partition_refuses_for_ever_does_not_keep_the_transaction() -> None:
    """Its transaction of this epoch has ended there (KAFKA-19999): that is reported, and the producer goes on."""
    runner, producer_id = opened("t-0", "t-1")
    runner.end(producer_id, 0, is_commit=True)
    runner.answer(runner.due_markers[0], ErrorCode.INVALID_PRODUCER_EPOCH)
    assert [str(report.partition) for report in runner.reports] == ["t-0"]
    assert runner.status() == TransactionState.COMPLETE_COMMIT


def test_a_coordinator_that_was_superseded_completes_nothing() -> None:
    runner, producer_id = opened("t-0", "t-1")
    runner.end(producer_id, 0, is_commit=True)
    [markers] = runner.due_markers
    runner.answer(markers, NONE, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert runner.asked == []
    runner.answer(markers)
    assert runner.status() == TransactionState.PREPARE_COMMIT
    runner.restart()
    runner.answer_all()
    assert runner.status() == TransactionState.COMPLETE_COMMIT, "the next one does"


def test_an_answer_about_an_earlier_transaction_says_nothing_of_this_one() -> None:
    runner, producer_id = opened("t-0")
    runner.end(producer_id, 0, is_commit=True)
    [first] = runner.due_markers
    runner.answer(first)
    runner.add(producer_id, 1, "t-0")
    runner.end(producer_id, 1, is_commit=False)
    runner.answer(first)
    assert runner.status() == TransactionState.PREPARE_ABORT
    [second] = [asked.markers for asked in runner.asked]
    runner.answer(second)
    runner.answer(second)
    assert runner.status() == TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("level", [0, 2])
def test_what_was_decided_stays_so_when_the_coordinator_is_lost(is_commit: bool, level: int) -> None:
    """At any moment: all markers of a producer's epoch say the same, and are written in every partition."""
    runner = Runner(level=level)
    found = runner.init()
    assert found is not None
    runner.add(found.producer_id, 0, "t-0", "t-1", version=level)
    runner.end(found.producer_id, 0, is_commit=is_commit, version=level)
    for code in (ErrorCode.NETWORK_EXCEPTION, NONE):
        runner.restart()
        [markers] = runner.due_markers
        assert (markers.is_commit, markers.producer_epoch) == (is_commit, min(level, 1))
        assert markers.partitions == frozenset(partitions("t-0", "t-1"))
        runner.answer(markers, code)
    runner.answer_all()
    runner.restart()
    assert runner.due_markers == []
    assert runner.status() == (TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT)


def test_a_waiting_request_is_decided_in_the_turn_that_completes_the_transaction() -> None:
    """The end of one and the beginning of the next are two records of one moment, in their order."""
    runner, producer_id = opened("t-0")
    runner.end(producer_id, 0, is_commit=True)
    assert runner.add(producer_id, 1, "t-5") is None
    runner.advance(900)
    runner.answer_all()
    assert runner.waiting == set()
    assert runner.status() == TransactionState.ONGOING
    runner.restart()
    assert runner.status() == TransactionState.ONGOING
    assert runner.state.partitions == frozenset(partitions("t-5"))


def test_a_broker_does_not_wait_for_markers_that_take_long() -> None:
    """What other producers ask for comes after it on the same connection; a client waits on its own."""
    runner, producer_id = opened("t-0", "t-1")
    runner.end(producer_id, 0, is_commit=True)
    [markers] = runner.due_markers
    assert runner.add(producer_id, 1, "t-5", version=0) is None
    runner.answer(markers, NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert runner.add(producer_id, 1, "t-5") == PartitionsResult((ErrorCode.CONCURRENT_TRANSACTIONS,))
    assert runner.add(producer_id, 1, "t-6", version=0) is None
    runner.answer_all()
    assert runner.add(producer_id, 1, "t-5") == PartitionsResult((NONE,))
    assert runner.end(producer_id, 1, is_commit=True) is not None
    assert runner.add(producer_id, 2, "t-5") is None, "that was another transaction"


def test_what_has_waited_too_long_is_answered_all_the_same() -> None:
    runner, producer_id = opened("t-0")
    runner.end(producer_id, 0, is_commit=True)
    assert runner.add(producer_id, 1, "t-5", "t-6") is None
    runner.advance(1000)
    assert runner.waiting == set()
    assert [*runner.answers.values()][-1] == PartitionsResult((ErrorCode.CONCURRENT_TRANSACTIONS,) * 2)
    runner.answer_all()
    assert runner.status() == TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("version", [0, 2])
def test_the_other_outcome_of_a_decided_transaction_is_refused(version: int) -> None:
    """At level 0 it may be for the next transaction, and waits first."""
    runner, producer_id = opened("t-0", version=version)
    runner.end(producer_id, 0, is_commit=True, version=version)
    refused = EndResult(ErrorCode.INVALID_TXN_STATE)
    assert runner.end(producer_id, 0, is_commit=False, version=version) == (refused if version else None)
    assert runner.end(producer_id, 0, is_commit=True, version=version) is None
    runner.answer_all()
    assert [markers.is_commit for markers in runner.due_markers] == []
    answers = [answer for answer in runner.answers.values() if isinstance(answer, EndResult)]
    assert answers == [EndResult(NONE, producer_id, min(version, 1)), refused, EndResult(NONE, producer_id, min(version, 1))]


@pytest.mark.parametrize(("ends_last", "is_commit"), [(True, False), (False, True), (True, True), (False, False)])
@pytest.mark.parametrize("version", [0, 2])
def test_the_end_of_a_transaction_does_not_overtake_the_partitions_that_wait_to_be_added(
    version: int, ends_last: bool, is_commit: bool
) -> None:
    """librdkafka aborts while its AddPartitionsToTxn is on its way; INVALID_TXN_STATE would end the application."""
    runner, producer_id = opened("t-0", version=version)
    assert runner.end(producer_id, 0, is_commit=ends_last, version=version) is not None
    epoch = min(version, 1)
    assert runner.add(producer_id, epoch, "t-1", version=version) is None
    assert runner.end(producer_id, epoch, is_commit=is_commit, version=version) is None
    runner.answer_all()
    assert [*runner.answers.values()][-2:] == [PartitionsResult((NONE,)), EndResult(NONE, producer_id, 2 * epoch)]
    assert runner.status() == (TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT)


def test_nothing_is_committed_that_was_not_begun() -> None:
    runner = Runner()
    found = runner.init()
    assert found is not None
    for version in (0, 2):
        assert runner.end(found.producer_id, 0, is_commit=True, version=version) == EndResult(ErrorCode.INVALID_TXN_STATE)
    assert runner.end(found.producer_id, 0, is_commit=False, version=0) == EndResult(ErrorCode.INVALID_TXN_STATE)
    assert runner.end(5, 0, is_commit=True, name="nobody") == EndResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def test_transactions_are_listed_and_described() -> None:
    runner, _ = opened("t-0")
    runner.init(name="other")

    listed = runner.ask(ListTransactions(runner.token()))
    assert isinstance(listed, ListResult)
    assert [(name, found.state.name) for name, found in listed.transactions] == [(ID, "ONGOING"), ("other", "EMPTY")]
    assert runner.described("nobody") is None

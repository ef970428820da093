"""The records of ``__transaction_state``, and a coordinator that is rebuilt from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.transactions.coordinator_runner import ID, Runner, partitions

from ottla.errors import DecodeError
from ottla.machine import StoredRecord
from ottla.messages.transaction_records import TransactionLogKey, TransactionLogValue, TransactionPartitions
from ottla.transactions.coordinator import TransactionCoordinator, TransactionSettings
from ottla.transactions.records import decode_record, encode_record
from ottla.transactions.transaction import Transaction, TransactionState
from ottla.types import TopicPartition

KEY = TransactionLogKey("id")
ONGOING = Transaction(7, 3, 60_000, TransactionState.ONGOING, 2_000, frozenset(partitions("t-1", "t-0", "u-5")), 1_000, 2, 2, 6, 8)

transactions = st.builds(
    Transaction,
    producer_id=st.integers(0, 2**62),
    producer_epoch=st.integers(0, 32_767),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([state for state in TransactionState if state != TransactionState.PREPARE_EPOCH_FENCE]),
    updated_ms=st.integers(0, 2**62),
    start_ms=st.integers(-1, 2**62),
    version=st.integers(0, 2),
    last_epoch=st.integers(-2, 32_766),
    previous_producer_id=st.integers(-1, 2**62),
    next_producer_id=st.integers(-1, 2**62),
)


def test_a_record_of_version_0_is_as_kafka_writes_it() -> None:
    key, value = encode_record(StoredRecord(KEY, ONGOING.to_value()), transaction_version=0)
    assert key == b"\0\0" + b"\0\2id"
    assert value == (
        b"\0\0" + (7).to_bytes(8, "big") + b"\0\3" + (60_000).to_bytes(4, "big") + b"\1"
        + b"\0\0\0\2" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\1" + b"\0\1u" + b"\0\0\0\1" + b"\0\0\0\5"
        + (2_000).to_bytes(8, "big") + (1_000).to_bytes(8, "big")
    )  # fmt: skip


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_record_of_version_1_has_the_rest_in_tags(transaction_version: int) -> None:
    key, value = encode_record(StoredRecord(KEY, ONGOING.to_value()), transaction_version=transaction_version)
    assert key == b"\0\0" + b"\0\2id"
    assert value == (
        b"\0\1" + (7).to_bytes(8, "big") + b"\0\3" + (60_000).to_bytes(4, "big") + b"\1"
        + b"\3" + b"\2t" + b"\3" + b"\0\0\0\0" + b"\0\0\0\1" + b"\0" + b"\2u" + b"\2" + b"\0\0\0\5" + b"\0"
        + (2_000).to_bytes(8, "big") + (1_000).to_bytes(8, "big")
        + b"\4" + b"\0\x08" + (6).to_bytes(8, "big") + b"\1\x08" + (8).to_bytes(8, "big") + b"\2\2\0\2" + b"\x90\x4e\2\0\2"
    )  # fmt: skip


def test_partitions_are_written_in_order_without_comparing_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are written with each one that is added: of 5,000, comparing pairs took 15 ms each time."""

    def compared(one: TopicPartition, other: TopicPartition) -> bool:
        raise AssertionError(f"{one} was compared with {other}")

    monkeypatch.setattr(TopicPartition, "__lt__", compared)
    many = frozenset(TopicPartition(topic, index) for topic in ("u", "t") for index in reversed(range(100)))
    written = replace(ONGOING, partitions=many).to_value().transaction_partitions
    assert written == [TransactionPartitions("t", list(range(100))), TransactionPartitions("u", list(range(100)))]


@given(transactions, st.integers(1, 2))
def test_every_transaction_is_read_as_it_was_written(found: Transaction, transaction_version: int) -> None:
    record = decode_record(*encode_record(StoredRecord(KEY, found.to_value()), transaction_version=transaction_version))
    assert record is not None
    assert isinstance(record.value, TransactionLogValue)
    assert Transaction.from_value(record.value) == found


def test_an_empty_one_has_no_list_of_partitions_and_is_read_with_one_too() -> None:
    value = Transaction(7, 0, 60_000, TransactionState.EMPTY, 1_000).to_value()
    assert value.transaction_partitions is None
    assert Transaction.from_value(TransactionLogValue(producer_id=7, transaction_partitions=[])).partitions == frozenset()


def test_a_tombstone_and_one_that_is_dead_are_forgotten() -> None:
    for value in (None, Transaction(7, 0, 60_000, TransactionState.DEAD, 1_000).to_value()):
        machine = TransactionCoordinator(TransactionSettings())
        machine.apply(StoredRecord(KEY, ONGOING.to_value()))
        machine.apply(StoredRecord(KEY, value))
        assert list(machine.snapshot()) == []


def test_an_abort_that_its_coordinator_had_not_come_to_is_gone_on_with() -> None:
    value = ONGOING.to_value()
    value.transaction_status = TransactionState.PREPARE_EPOCH_FENCE
    runner = Runner()
    runner.log.append(encode_record(StoredRecord(TransactionLogKey(ID), value), transaction_version=1))
    runner.restart()
    assert [markers.is_commit for markers in runner.due_markers] == [False]


def test_one_that_was_decided_without_partitions_is_completed_when_it_is_loaded() -> None:
    value = Transaction(7, 4, 60_000, TransactionState.PREPARE_ABORT, 1_000, last_epoch=3).to_value()
    runner = Runner()
    runner.log.append(encode_record(StoredRecord(TransactionLogKey(ID), value), transaction_version=1))
    runner.restart()
    assert runner.status() == TransactionState.COMPLETE_ABORT
    assert runner.due_markers == []


def test_other_record_types_are_passed_over_and_later_versions_refused() -> None:
    assert decode_record(b"\0\1\0\1t", b"") is None
    with pytest.raises(DecodeError):
        decode_record(b"\0\0\0\1t", b"\0\2")
    with pytest.raises(DecodeError):
        decode_record(b"\0", b"")


def test_a_state_that_does_not_exist_is_refused() -> None:
    value = ONGOING.to_value()
    value.transaction_status = 8
    with pytest.raises(DecodeError):
        decode_record(*encode_record(StoredRecord(KEY, value), transaction_version=1))


def test_a_snapshot_rebuilds_the_coordinator_and_what_is_given_up_is_empty() -> None:
    runner = Runner()
    for number, name in enumerate(("a", "b", ID), 1000):
        runner.init(name=name)
        runner.add(number, 0, "t-0", name=name)
    runner.end(1002, 0, is_commit=True)
    copy = TransactionCoordinator(TransactionSettings())
    records = list(runner.machine.snapshot())
    for record in records:
        copy.apply(record)
    list(copy.on_loaded(runner.now_ms))
    assert list(copy.snapshot()) == records
    assert len(list(copy.dismantle())) > 3
    assert list(copy.snapshot()) == []


def test_a_load_reads_the_last_record_of_each_id_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition that is added writes all of them once more: of a transaction over 5,000, a load took more than 20 s."""
    runner = Runner()
    for name in ("a", ID):
        made = runner.init(name=name)
        assert made is not None
        for index in range(10):
            runner.add(made.producer_id, 0, f"t-{index}", name=name)
    known, read, count = dict(runner.machine._transactions), Transaction.from_value, 0

    def counted(value: TransactionLogValue) -> Transaction:
        nonlocal count
        count += 1
        return read(value)

    monkeypatch.setattr(Transaction, "from_value", counted)
    runner.restart()
    assert count == 2
    assert runner.machine._transactions == known


def test_a_coordinator_that_is_given_up_while_it_loads_leaves_nothing() -> None:
    machine = TransactionCoordinator(TransactionSettings())
    for name in ("a", "b", "c"):
        machine.apply(StoredRecord(TransactionLogKey(name), ONGOING.to_value()))
    next(iter(machine.on_loaded(3_000)))
    assert len(list(machine.dismantle())) > 3
    assert not machine._transactions
    assert not machine._unread

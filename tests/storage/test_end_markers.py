"""End markers, and what brokers write for a producer: judged over what is staged and what is in the log."""

from __future__ import annotations

import pytest
from tests.storage.batches import append, batch, open_log, stage

from ottla.errors import ErrorCode, KafkaError
from ottla.records.control import build_end_marker
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.tail import Appended

PRODUCER = 7


def data(sequence: int = 0, *, epoch: int = 5) -> memoryview:
    return batch(b"x", producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)


def end(
    log: PartitionLog, *, epoch: int = 5, coordinator_epoch: int = 1, is_commit: bool = False, transaction_version: int = 0
) -> Appended:
    marker = build_end_marker(
        is_commit=is_commit, producer_id=PRODUCER, producer_epoch=epoch, coordinator_epoch=coordinator_epoch, timestamp_ms=1
    )
    return log.stage(memoryview(marker), leader_epoch=0, now_ms=2000, from_client=False, transaction_version=transaction_version)


def refusal(log: PartitionLog, view: memoryview, *, from_client: bool = True) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        stage(log, view, from_client=from_client)
    return caught.value.code


def stable_offset(log: PartitionLog) -> int:
    return log.producers.last_stable_offset(log.log_end_offset)


class Flushed:
    """A log whose every step is written, or none before ``end``; or one that is closed and opened again after each."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.disk = InstantDisk()
        self.log = open_log(self.disk)

    def step(self) -> PartitionLog:
        if self.how != "staged":
            run(self.log.flush())
        if self.how == "opened again":
            run(self.log.close())
            self.log = open_log(self.disk, clean=True)
        elif self.how == "recovered":
            self.log = open_log(self.disk)
        return self.log


every_way = pytest.mark.parametrize("how", ["staged", "written", "opened again", "recovered"])


@every_way
def test_each_batch_that_a_broker_writes_for_a_producer_is_written(how: str) -> None:
    """The coordinator of a group numbers none of them: offsets of one transaction may come in several requests."""
    flushed = Flushed(how)
    for _ in range(3):
        assert not stage(flushed.log, data(), from_client=False).is_duplicate
        flushed.step()
    run(flushed.log.flush())
    assert flushed.log.log_end_offset == 3
    assert stable_offset(flushed.log) == 0


@every_way
def test_broker_written_batches_of_an_ended_epoch_are_refused(how: str) -> None:
    flushed = Flushed(how)
    stage(flushed.log, data(epoch=5), from_client=False)
    assert refusal(flushed.step(), data(epoch=4), from_client=False) == ErrorCode.INVALID_PRODUCER_EPOCH


@every_way
@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_marker_of_an_earlier_producer_epoch_ends_nothing(how: str, transaction_version: int) -> None:
    flushed = Flushed(how)
    stage(flushed.log, data(epoch=5))
    flushed.step()
    with pytest.raises(KafkaError) as caught:
        end(flushed.log, epoch=3, transaction_version=transaction_version)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    run(flushed.log.flush())
    assert (flushed.log.log_end_offset, stable_offset(flushed.log)) == (1, 0)


@every_way
@pytest.mark.parametrize("transaction_version", [0, 2])
def test_a_marker_of_an_earlier_coordinator_epoch_ends_nothing(how: str, transaction_version: int) -> None:
    """A coordinator that was replaced, and does not know it yet, may have decided otherwise. That is its answer, whatever else is wrong."""
    flushed = Flushed(how)
    stage(flushed.log, data())
    flushed.step()
    end(flushed.log, coordinator_epoch=9, is_commit=True)
    flushed.step()
    stage(flushed.log, data(1))
    flushed.step()
    with pytest.raises(KafkaError) as caught:
        end(flushed.log, coordinator_epoch=2, transaction_version=transaction_version)
    assert caught.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    run(flushed.log.flush())
    assert (flushed.log.log_end_offset, stable_offset(flushed.log)) == (3, 2)


@every_way
def test_a_late_batch_of_an_epoch_is_refused_once_the_marker_that_ends_it_is_staged(how: str) -> None:
    """Its transaction would have no end: the stable offset would stay where it is for ever."""
    flushed = Flushed(how)
    stage(flushed.log, data())
    flushed.step()
    end(flushed.log, epoch=6, transaction_version=2)
    assert refusal(flushed.step(), data(1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(flushed.log, data(1), from_client=False) == ErrorCode.INVALID_PRODUCER_EPOCH
    stage(flushed.log, data(0, epoch=6))
    run(flushed.log.flush())
    assert (flushed.log.log_end_offset, stable_offset(flushed.log)) == (3, 2)


@every_way
def test_the_epoch_of_the_records_ends_a_transaction_below_version_two_only(how: str) -> None:
    """At version 2 such a marker is late: it belongs to an earlier transaction, and this one goes on."""
    flushed = Flushed(how)
    stage(flushed.log, data())
    flushed.step()
    with pytest.raises(KafkaError) as caught:
        end(flushed.log, transaction_version=2)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert not end(flushed.log, transaction_version=1).is_duplicate
    run(flushed.log.flush())
    assert stable_offset(flushed.log) == 2


@every_way
@pytest.mark.parametrize("transaction_version", [0, 2])
def test_a_repeated_marker_is_no_error_and_is_not_written_again(how: str, transaction_version: int) -> None:
    flushed = Flushed(how)
    stage(flushed.log, data())
    flushed.step()
    for count in range(3):
        assert end(flushed.log, epoch=6, transaction_version=transaction_version).is_duplicate == (count > 0)
        flushed.step()
    run(flushed.log.flush())
    assert flushed.log.log_end_offset == 2


@every_way
def test_a_marker_that_ends_nothing_is_written_where_it_fences(how: str) -> None:
    flushed = Flushed(how)
    assert not end(flushed.log, epoch=5, coordinator_epoch=1).is_duplicate
    assert refusal(flushed.step(), data(epoch=4)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert not end(flushed.log, epoch=5, coordinator_epoch=2).is_duplicate
    flushed.step()
    assert not end(flushed.log, epoch=6, coordinator_epoch=2).is_duplicate
    assert refusal(flushed.step(), data(epoch=5)) == ErrorCode.INVALID_PRODUCER_EPOCH
    run(flushed.log.flush())
    assert flushed.log.log_end_offset == 3


def test_a_marker_that_was_not_written_is_not_known() -> None:
    log = open_log(InstantDisk())
    append(log, data())
    end(log, epoch=6, transaction_version=2)
    log.tail.drop_unwritten()
    append(log, data(1))
    assert not end(log, epoch=6, transaction_version=2).is_duplicate
    run(log.flush())
    assert stable_offset(log) == 3

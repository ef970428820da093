"""One transactional id: its producer, and its transaction from the first partition to the last end marker.

::

      +------------------------- InitProducerId ----------------------------+
      v                                                                     |
    Empty --partitions added--> Ongoing --EndTxn--> PrepareCommit --> CompleteCommit --partitions added--> Ongoing
                                   |                                        |
                                   +--EndTxn, fence, timeout--> PrepareAbort --> CompleteAbort --partitions added--> Ongoing

A prepared transaction is decided: whatever happens, all its markers say the same. Their epoch is ``producer_epoch``, which a fence, a
timeout and the end of a transaction of version 2 have raised before. A producer writes under epochs up to ``EPOCH_MAX``; the one after it
exists in markers only, and the producer goes on with ``next_producer_id`` at epoch 0 then.

Source: KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from ottla.messages.transaction_records import LAST_EPOCH_UNKNOWN, TransactionLogValue, TransactionPartitions
from ottla.types import TopicPartition

EPOCH_MAX: Final = 32_766
"""The last epoch under which a producer writes."""
NO_PRODUCER_ID: Final = -1
NOBODY: Final = -2
"""For ``last_epoch``: no client may go on from an earlier epoch, as after a fence. Kafka's coordinators do not record it."""


class TransactionState(IntEnum):
    """The state of a transaction, by the number that records have for it."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def is_prepared(self) -> bool:
        """The outcome is decided, and markers are written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


STATE_NAMES: Final = {state: state.name.title().replace("_", "") for state in TransactionState}
"""As administrators see them."""


class Transaction(msgspec.Struct, frozen=True):
    """The recorded state of a transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    updated_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    version: int = 0  # of transactions, as the client's requests say
    last_epoch: int = LAST_EPOCH_UNKNOWN  # that the client had before this one: a repeated request still names it
    previous_producer_id: int = NO_PRODUCER_ID  # whose epochs are exhausted
    next_producer_id: int = NO_PRODUCER_ID  # while prepared: whose turn is next

    @property
    def is_exhausted(self) -> bool:
        """The next epoch is not for writing: a new producer id must be there first."""
        return self.producer_epoch >= EPOCH_MAX

    def renewed(self, *, now_ms: int, timeout_ms: int, last_epoch: int, fresh_producer_id: int) -> Transaction:
        """Returns a producer that starts, or goes on, under the next epoch; of ``fresh_producer_id`` where epochs are exhausted."""
        producer_id, epoch, previous_id = self.producer_id, self.producer_epoch + 1, self.previous_producer_id
        if self.is_exhausted:
            producer_id, epoch, previous_id = fresh_producer_id, 0, self.producer_id
        return Transaction(
            producer_id, epoch, timeout_ms, TransactionState.EMPTY, now_ms, last_epoch=last_epoch, previous_producer_id=previous_id
        )

    def begun(self, partitions: Iterable[TopicPartition], *, now_ms: int, version: int) -> Transaction:
        """Returns its next transaction, with the first partitions."""
        return replace(
            self, state=TransactionState.ONGOING, partitions=frozenset(partitions), start_ms=now_ms, updated_ms=now_ms, version=version
        )

    def extended(self, partitions: Iterable[TopicPartition], *, now_ms: int, version: int) -> Transaction:
        return replace(self, partitions=self.partitions | frozenset(partitions), updated_ms=now_ms, version=version)

    def prepared(
        self, *, is_commit: bool, now_ms: int, version: int, raises_epoch: bool, last_epoch: int, fresh_producer_id: int = NO_PRODUCER_ID
    ) -> Transaction:
        """Returns the decided transaction. With ``raises_epoch`` nothing more can be written under the epoch that it had."""
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        if not raises_epoch:
            return replace(self, state=state, updated_ms=now_ms, version=version)
        return replace(
            self, state=state, updated_ms=now_ms, version=version, producer_epoch=self.producer_epoch + 1, last_epoch=last_epoch,
            next_producer_id=fresh_producer_id if self.is_exhausted else NO_PRODUCER_ID,
        )  # fmt: skip

    def completed(self, *, now_ms: int) -> Transaction:
        """Returns the completed transaction: all its partitions have their marker."""
        assert self.state.is_prepared, "what is complete was decided before"
        state = TransactionState.COMPLETE_COMMIT if self.state.is_commit else TransactionState.COMPLETE_ABORT
        ended = replace(self, state=state, partitions=frozenset(), updated_ms=now_ms)
        if self.next_producer_id == NO_PRODUCER_ID:
            return ended
        return replace(
            ended,
            producer_id=self.next_producer_id,
            producer_epoch=0,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    def to_value(self) -> TransactionLogValue:
        topics = [TransactionPartitions(topic, indexes) for topic, indexes in by_topic(self.partitions).items()]
        return TransactionLogValue(
            producer_id=self.producer_id, previous_producer_id=self.previous_producer_id, next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch, transaction_timeout_ms=self.timeout_ms, transaction_status=self.state,
            transaction_partitions=None if self.state == TransactionState.EMPTY else topics,
            transaction_last_update_timestamp_ms=self.updated_ms, transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.version, last_producer_epoch=self.last_epoch,
        )  # fmt: skip

    @classmethod
    def from_value(cls, value: TransactionLogValue) -> Transaction:
        state = TransactionState(value.transaction_status)
        if state == TransactionState.PREPARE_EPOCH_FENCE:  # an abort that its coordinator had not come to yet
            state = TransactionState.PREPARE_ABORT
        topics = value.transaction_partitions or []
        return cls(
            value.producer_id, value.producer_epoch, value.transaction_timeout_ms, state, value.transaction_last_update_timestamp_ms,
            frozenset(TopicPartition(found.topic, index) for found in topics for index in found.partition_ids),
            value.transaction_start_timestamp_ms, value.client_transaction_version, value.last_producer_epoch,
            value.previous_producer_id, value.next_producer_id,
        )  # fmt: skip


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the numbers of the partitions, sorted, by topic, sorted too.

    Each partition that is added to a transaction has the whole list written once more: pairs are not compared, since that takes ten times
    as long as numbers.
    """
    found: dict[str, list[int]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition.partition)
    return {topic: sorted(found[topic]) for topic in sorted(found)}

"""Transactions that hang: open in a partition, and not open at any coordinator, so that nothing ends them.

They hold back all readers of committed records. A marker was lost, or a record came after the end of its transaction. Where the
coordinator knows how the transaction ended, that outcome is written again, a lost commit as a commit; else only the operator can decide,
by ``abort_transaction``. The partition is asked first, then the coordinator, then the partition again: a transaction that ends meanwhile
does not hang. Source: KIP-664, KAFKA-12671.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ottla.client.admin.brokers import BrokerAdmin
from ottla.client.admin.descriptions import ActiveProducer
from ottla.client.admin.topics import TopicAdmin
from ottla.client.admin.transactions import TransactionAdmin, TransactionDescription
from ottla.client.positions import PartitionLike
from ottla.client.transactions import FEATURE
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.write_txn_markers import WritableTxnMarker
from ottla.types import LATE_TRANSACTION_MS, TopicPartition

LONGER_THAN_MS: Final = 15 * 60_000 + LATE_TRANSACTION_MS
"""With the default of transaction.max.timeout.ms."""
RECORD_WAITS_MS_MAX: Final = 120_000
"""From its timestamp until its transaction starts at the coordinator: the default of delivery.timeout.ms."""
_ENDED: Final = {"PrepareCommit": True, "CompleteCommit": True, "PrepareAbort": False, "CompleteAbort": False}
_OPEN: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


class Outcome(Enum):
    """The decision of a transactional id's coordinator on a transaction that hangs."""

    COMMIT = "commit"
    """It was committed."""
    ABORT = "abort"
    """It was aborted."""
    UNKNOWN = "unknown"
    """No coordinator knows it."""


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction of a partition that no coordinator has open: readers of committed records wait at its start."""

    partition: TopicPartition
    """The partition where it is open."""
    producer_id: int
    """The producer that wrote it."""
    producer_epoch: int
    """The epoch that it wrote with."""
    coordinator_epoch: int
    """The epoch of the coordinator that wrote the producer's last marker there; -1 without one."""
    start_offset: int
    """The offset of its first record: readers of committed records wait there."""
    last_timestamp_ms: int
    """The time of its last record, in milliseconds since 1970."""
    transactional_id: str | None = None
    """None where no coordinator knows the producer."""
    outcome: Outcome = Outcome.UNKNOWN
    """What the coordinator had decided, and ``end_hanging_transaction`` writes."""
    ended_epoch: int = -1
    """The coordinator's epoch after the end; that of the data at levels 0 and 1, one more at level 2."""


class HangingAdmin(TransactionAdmin, BrokerAdmin, TopicAdmin):
    async def find_hanging_transactions(
        self, partitions: Iterable[PartitionLike] | None = None, *, longer_than_ms: int = LONGER_THAN_MS
    ) -> list[HangingTransaction]:
        """Returns the transactions whose last record is older than that and that no coordinator has open. All partitions when None."""
        if partitions is None:
            topics = await self.list_topics()
            partitions = [TopicPartition(name, index) for name, topic in topics.items() for index in topic.partitions]
        latest_ms = self._cluster.world.clock.now_ms() - longer_than_ms
        suspects = [found for found in await self._open_in(partitions) if found.last_timestamp_ms <= latest_ms]
        judged = [await self._judged(suspect) for suspect in suspects]
        hanging = [found for found in judged if found is not None]
        still = {_identity(found) for found in await self._open_in({found.partition for found in hanging})}
        return sorted((found for found in hanging if _identity(found) in still), key=lambda found: found.partition)

    async def end_hanging_transaction(self, hanging: HangingTransaction) -> None:
        """Writes the marker that the coordinator had decided on into the partition, if the transaction still hangs as it was found.

        INVALID_REQUEST when no coordinator knows the outcome: see ``abort_transaction``; INVALID_TXN_STATE when it no longer hangs.
        """
        if hanging.outcome is Outcome.UNKNOWN:
            text = f"no coordinator knows how the transaction of producer {hanging.producer_id} in {hanging.partition} ended"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if hanging not in await self.find_hanging_transactions([hanging.partition], longer_than_ms=0):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"the transaction of producer {hanging.producer_id} hangs no more")
        is_level_2 = hanging.ended_epoch > hanging.producer_epoch
        marker = WritableTxnMarker(
            hanging.producer_id,
            hanging.ended_epoch,
            hanging.outcome is Outcome.COMMIT,
            coordinator_epoch=hanging.coordinator_epoch,
            transaction_version=2 if is_level_2 else 0,
        )
        await self._write_marker(hanging.partition, marker)

    async def _open_in(self, partitions: Iterable[PartitionLike]) -> list[HangingTransaction]:
        """Returns the transactions that the partitions have open. KafkaError for a partition that cannot say."""
        found: list[HangingTransaction] = []
        for partition, states in (await self.describe_producers(partitions)).items():
            if isinstance(states, KafkaError):
                if states.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise KafkaError(states.code, f"topic {partition.topic!r}: to see its producers takes READ") from states
                raise states
            found += [_suspect(partition, state) for state in states if state.transaction_start_offset >= 0]
        return found

    async def _judged(self, suspect: HangingTransaction) -> HangingTransaction | None:
        """Returns the suspect with what its coordinator knows; None when the transaction is open there."""
        names = [found.transactional_id for found in await self.list_transactions(producer_ids=[suspect.producer_id])]
        for known in (await self.describe_transactions(names)).values():
            if isinstance(known, KafkaError):
                if known.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    continue
                raise known
            if known.producer_id == suspect.producer_id:
                return judge(suspect, known, level=self._cluster.finalized_level(FEATURE))
        return suspect


def judge(suspect: HangingTransaction, known: TransactionDescription, *, level: int) -> HangingTransaction | None:
    """Returns the suspect with the outcome that the coordinator knows; None when the transaction does not hang.

    The coordinator knows the outcome of the last transaction only. That is the suspect's outcome when the coordinator's epoch matches the
    end of the suspect, and when the last transaction did not start later than a record of the suspect could have waited for it.
    """
    if known.state in _OPEN and suspect.partition in known.partitions:
        return None
    named = replace(suspect, transactional_id=known.transactional_id)
    epochs = (suspect.producer_epoch, suspect.producer_epoch + 1) if level >= 2 else (suspect.producer_epoch,)
    is_same = known.producer_epoch in epochs and known.started_ms <= suspect.last_timestamp_ms + RECORD_WAITS_MS_MAX
    if not is_same or known.state not in _ENDED:
        return named
    outcome = Outcome.COMMIT if _ENDED[known.state] else Outcome.ABORT
    return replace(named, outcome=outcome, ended_epoch=known.producer_epoch)


def _suspect(partition: TopicPartition, state: ActiveProducer) -> HangingTransaction:
    return HangingTransaction(
        partition,
        state.producer_id,
        state.producer_epoch,
        max(0, state.coordinator_epoch),
        state.transaction_start_offset,
        state.last_timestamp_ms,
    )


def _identity(found: HangingTransaction) -> tuple[TopicPartition, int, int, int]:
    return found.partition, found.producer_id, found.producer_epoch, found.start_offset

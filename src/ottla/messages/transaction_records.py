"""The records of ``__transaction_state``: a 2-byte version before each key and each value."""

from __future__ import annotations

from ottla.wire.schema import Stored, Struct, array, int8, int16, int32, int64, string

LAST_EPOCH_UNKNOWN = -1


class TransactionLogKey(Stored, api_key=0, versions=(0, 0)):
    transactional_id: str = string()


class TransactionPartitions(Struct):
    topic: str = string()
    partition_ids: list[int] = array(int32())


class TransactionLogValue(Stored, api_key=0, versions=(0, 1), flexible=1):
    """``last_producer_epoch`` is ottla's own: Kafka's record lacks the epoch that the client knew before the last bump."""

    producer_id: int = int64()
    previous_producer_id: int = int64(default=-1, since=1, tag=0)
    next_producer_id: int = int64(default=-1, since=1, tag=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16(default=-1, since=1, tag=3)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[TransactionPartitions] | None = array(TransactionPartitions, nullable=0)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16(default=0, since=1, tag=2)
    last_producer_epoch: int = int16(default=LAST_EPOCH_UNKNOWN, since=1, tag=10_000)

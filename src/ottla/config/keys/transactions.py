"""Transactions and their coordinator."""

from __future__ import annotations

from typing import Final

from ottla.config.definition import ConfigKey, Scope, boolean, int16, int32

KEYS: Final[tuple[ConfigKey, ...]] = (
    int32("transaction.state.log.num.partitions", 50, "Partitions of __transaction_state.", low=1),
    int16("transaction.state.log.replication.factor", 3, "Replicas of __transaction_state.", low=1),
    int32("transaction.state.log.min.isr", 2, "min.insync.replicas of __transaction_state.", low=1),
    int32("transaction.state.log.segment.bytes", 104857600, "Segment size of __transaction_state.", low=1),
    int32(
        "transaction.max.timeout.ms",
        900000,
        "The longest timeout that a transactional producer may ask for.",
        low=1,
    ),
    int32(
        "transactional.id.expiration.ms",
        604800000,
        "How long an unused transactional id is remembered.",
        low=1,
    ),
    int32(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10000,
        "How often timed-out transactions are aborted.",
        low=1,
    ),
    int32(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3600000,
        "How often expired transactional ids are removed.",
        low=1,
    ),
    boolean(
        "transaction.partition.verification.enable",
        True,
        "Whether a partition verifies a transactional batch with the coordinator before it appends it.",
        scope=Scope.CLUSTER_WIDE,
    ),
    int32(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        "The first pause before adding a partition to a transaction is retried.",
        low=1,
    ),
    int32(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        "How long adding a partition to a transaction is retried.",
        low=0,
    ),
)

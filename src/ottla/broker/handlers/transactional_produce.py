"""Batches that are part of a transaction: which of them the coordinator is asked about, and what its answer means to producers.

A batch whose transaction is open in its partition goes on without a question. Of any other one the coordinator is asked, and the connection
waits meanwhile; from Produce 12 on that adds the partition to the transaction (KIP-890), before it only verifies that it was added. What is
permitted is judged again in the turn of the append: permission ends with the marker of a transaction, and with the leader epoch; then the
coordinator is asked again.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.coordinators.transaction_codes import code_for
from ottla.broker.handlers.staged_produce import Held, Permission, StagedProduce
from ottla.broker.parts import Parts
from ottla.broker.replicas.partition import Partition
from ottla.broker.requests.context import RequestContext
from ottla.errors import ErrorCode as Code
from ottla.errors import KafkaError, error_of
from ottla.types import TopicPartition

ADDS_SINCE: Final = 12
PRODUCER_ID_AT: Final = slice(43, 51)
_NOT_NOW: Final = frozenset(
    {
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.NETWORK_EXCEPTION,
        Code.CLUSTER_AUTHORIZATION_FAILED,  # this broker's rights, which are no matter of the client's
    }
)


def check(staged: StagedProduce, records: memoryview) -> None:
    """Checks that a transactional batch may come in this request; KafkaError otherwise."""
    if staged.transactional_id is None:
        raise KafkaError(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch came in a request without a transactional.id")
    producer_id = int.from_bytes(records[PRODUCER_ID_AT], "big", signed=True)
    if producer_id < 0:
        raise KafkaError(Code.INVALID_RECORD, "a transactional batch has no producer id")
    if staged.producer_id not in (producer_id, -1):
        raise KafkaError(Code.INVALID_PRODUCER_ID_MAPPING, "a request has transactional batches of several producers")
    staged.producer_id = producer_id


def is_free(parts: Parts, context: RequestContext) -> bool:
    """True when no coordinator is asked: for an old client, where the configuration says so."""
    return context.version < ADDS_SINCE and not parts.config["transaction.partition.verification.enable"]


def permission_of(partition: Partition, producer_id: int) -> Permission:
    """Returns the state before the coordinator is asked."""
    return partition.led_epoch, partition.log.producers.marker_count(producer_id)


def still_permits(held: Held, producer_id: int) -> bool:
    """True when what was permitted still is."""
    return held.permission is not None and held.permission == permission_of(held.partition, producer_id)


async def ask(parts: Parts, staged: StagedProduce, producer_epoch: int, asking: list[Held]) -> list[tuple[Held, KafkaError | None]]:
    """Returns for each batch that waits whether the coordinator permits it. All of them are of one producer and epoch."""
    assert staged.transactional_id is not None, "only transactional batches wait"
    version, producer_id = staged.context.version, staged.producer_id
    for held in asking:
        held.permission = permission_of(held.partition, producer_id)
    keys = [TopicPartition(held.partition.topic, held.partition.index) for held in asking]
    codes = await parts.permits.permit(staged.transactional_id, producer_id, producer_epoch, keys, adds=version >= ADDS_SINCE)
    return [(held, _error(version, codes[key])) for held, key in zip(asking, keys, strict=True)]


def _error(version: int, code: int) -> KafkaError | None:
    if not code:
        return None
    text = f"the transaction coordinator says {error_of(code).name}"
    if code in _NOT_NOW or (code == Code.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE):
        return KafkaError(Code.NOT_ENOUGH_REPLICAS, text)
    if code == Code.PRODUCER_FENCED:
        return KafkaError(Code.INVALID_PRODUCER_EPOCH, "the producer was fenced")
    if code == Code.TRANSACTION_ABORTABLE:
        text = "the partition is not part of the transaction"
    return KafkaError(error_of(code_for("Produce", version, code)), text)

"""One Produce request and its answers, by partition."""

from __future__ import annotations

from collections.abc import Callable

from ottla.client.accumulator import ProducerBatch
from ottla.client.cluster import Cluster
from ottla.client.connection import ClientConnection
from ottla.client.enlistment import Enlistment
from ottla.client.late_answers import given_up_for_another
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.api_keys import ApiKey
from ottla.messages.produce import (
    TOPIC_IDS_SINCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.messages.registry import APIS
from ottla.types import TopicPartition


async def exchange(
    cluster: Cluster,
    connection: ClientConnection,
    batches: list[ProducerBatch],
    on_moved: Callable[[ProducerBatch, KafkaError], None],
    *,
    acks: int,
    codec: int,
    is_idempotent: bool,
    transaction: Enlistment | None = None,
) -> dict[TopicPartition, PartitionProduceResponse]:
    """Returns the broker's answer for each batch. UNKNOWN_TOPIC_OR_PARTITION when a topic left the metadata since its batch was taken.

    While the answer is late, ``on_moved`` is called with each batch that is another leader's by now: it waits for the others no longer.
    """
    version, epoch = connection.version_of(APIS[ApiKey.PRODUCE]), 0
    version_max: int | None = None
    if transaction is not None:
        transaction.was_asked = True
        epoch, version_max = transaction.producer_epoch, transaction.produce_version_max(version)
    by_id = min(version, version if version_max is None else version_max) >= TOPIC_IDS_SINCE
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        name = batch.partition.topic
        known = cluster.topics.get(name)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} is no longer in the metadata")
        records = batch.builder.build(
            codec,
            producer_id=batch.numbered_for if is_idempotent else -1,
            producer_epoch=epoch if is_idempotent else -1,
            base_sequence=batch.base_sequence if is_idempotent else -1,
            is_transactional=transaction is not None,
        )
        data = topics.setdefault(name, TopicProduceData(name, known.topic_id))
        data.partition_data.append(PartitionProduceData(batch.partition.partition, records))
    transactional_id = None if transaction is None else transaction.transactional_id
    request = ProduceRequest(transactional_id, acks, cluster.request_timeout_ms, list(topics.values()))
    if acks == 0:
        connection.send_unanswered(request)
        return {batch.partition: PartitionProduceResponse(base_offset=-1) for batch in batches}

    waiting = list(batches)

    async def has_another() -> bool:
        await cluster.refresh(topics)
        moved = [batch for batch in waiting if _is_elsewhere(cluster, connection, batch)]
        if len(moved) == len(waiting):
            return True
        for batch in moved:
            waiting.remove(batch)
            text = f"{connection.address} did not answer, and another broker leads {batch.partition} by now"
            on_moved(batch, KafkaError(ErrorCode.NETWORK_EXCEPTION, text))
        return False

    with given_up_for_another(cluster.world, connection, has_another):
        response = await connection.ask(request, ProduceResponse, timeout_ms=cluster.request_timeout_ms, version_max=version_max)
    cluster.take_endpoints(response.node_endpoints)
    # The names are the request's: the metadata may have lost a topic while it was out.
    names = {topic.topic_id: topic.name for topic in topics.values()}
    return {
        TopicPartition(names.get(topic.topic_id, "") if by_id else topic.name, answer.index): answer
        for topic in response.responses
        for answer in topic.partition_responses
    }


def _is_elsewhere(cluster: Cluster, connection: ClientConnection, batch: ProducerBatch) -> bool:
    """True when another broker is known to lead the partition, in a newer epoch than that in which the batch was sent."""
    leader = cluster.leader(batch.partition)
    if leader is None or cluster.leader_epoch(batch.partition) <= batch.sent_epoch:
        return False
    return cluster.open_connection(leader) is not connection

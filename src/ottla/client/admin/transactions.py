"""Transactions: listed, described, fenced, and ended in a partition where nothing else ends them (KIP-664, KIP-1152, KIP-1228)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.base import AdminBase, by_topic, raise_for, without_leader
from ottla.client.cluster import KEY_TYPE_TRANSACTION
from ottla.client.positions import PartitionLike, partition_of
from ottla.client.wrong_calls import listed, named, node_ids_of
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.types import TopicPartition

DURATIONS_SINCE: Final = 1
PATTERNS_SINCE: Final = 2
FENCING_TIMEOUT_MS: Final = 60_000
"""What the coordinator keeps as the id's transaction.timeout.ms, until a producer initializes it again."""

_STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort")


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id, the producer that has it, and the broker that coordinates it. ``state`` is Kafka's word, such as Ongoing."""

    transactional_id: str
    """The name that the producer was given."""
    producer_id: int
    """The id that the coordinator gave it."""
    state: str
    """Kafka's word: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort."""
    coordinator_id: int
    """The broker that coordinates it."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id, as its coordinator knows it. ``state`` is Kafka's word, such as Ongoing."""

    transactional_id: str
    """The name that the producer was given."""
    coordinator_id: int
    """The broker that coordinates it."""
    state: str
    """Kafka's word, as in a ``ListedTransaction``."""
    producer_id: int
    """The id that the coordinator gave the producer."""
    producer_epoch: int
    """The producer's epoch: earlier ones are fenced."""
    timeout_ms: int
    """After so many milliseconds the coordinator aborts a transaction that is open."""
    started_ms: int
    """Milliseconds since 1970; -1 while no transaction is open."""
    partitions: frozenset[TopicPartition]
    """The partitions of the open transaction, as far as the coordinator has them."""


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The id and epoch that the transactional id has now; producers of earlier epochs are fenced."""

    producer_id: int
    """The id that the transactional id has now."""
    producer_epoch: int
    """Its epoch: producers of earlier ones are fenced."""


class TransactionAdmin(AdminBase):
    """Each transactional id's coordinator is asked: where it has moved, once it is found; while it loads, once it has them."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
        node_ids: Iterable[int] | None = None,
    ) -> list[ListedTransaction]:
        """Returns the transactional ids of every broker, or of the given ones, by name; only those that pass every filter that is given.

        ``pattern`` is a regular expression of RE2 that the whole transactional id matches. INVALID_REQUEST for a state that brokers do
        not know, UNSUPPORTED_VERSION for a filter that they do not.
        """
        state_names, ids = named(states, "list_transactions", "states"), listed(producer_ids, "list_transactions", "producer ids")
        request = ListTransactionsRequest(state_names, ids, -1 if longer_than_ms is None else longer_than_ms, pattern)
        needed = PATTERNS_SINCE if pattern is not None else DURATIONS_SINCE if longer_than_ms is not None else 0
        wanted = None if node_ids is None else node_ids_of(node_ids, "list_transactions")
        found: list[ListedTransaction] = []
        answers = await self._ask_brokers(wanted, request, ListTransactionsResponse, version_min=needed)
        for node_id, response in answers.items():
            if response.unknown_state_filters:
                text = f"unknown states of transactions: {', '.join(response.unknown_state_filters)}; there are {', '.join(_STATES)}"
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)
            found += [
                ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state, node_id)
                for each in response.transaction_states
            ]
        return sorted(found, key=lambda each: each.transactional_id)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | KafkaError]:
        """Returns what each id's coordinator knows of it; TRANSACTIONAL_ID_NOT_FOUND for an unknown id."""

        async def describe(name: str) -> TransactionDescription:
            request = DescribeTransactionsRequest([name])
            node_id, response = await self._ask_coordinator(name, request, DescribeTransactionsResponse, KEY_TYPE_TRANSACTION)
            [found] = response.transaction_states
            raise_for(found.error_code, f"transactional id {name!r}")
            partitions = frozenset(TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions)
            return TransactionDescription(
                name,
                node_id,
                found.transaction_state,
                found.producer_id,
                found.producer_epoch,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms,
                partitions,
            )

        names = named(transactional_ids, "describe_transactions")
        return await self._of_each(names, lambda name: self._until_loaded(lambda: describe(name)))

    async def fence_producers(self, transactional_ids: Sequence[str]) -> dict[str, FencedProducer | KafkaError]:
        """Fences the producers that have these ids now; what they left open is aborted."""

        async def fence(name: str) -> FencedProducer:
            request = InitProducerIdRequest(name, FENCING_TIMEOUT_MS)
            _, response = await self._ask_coordinator(name, request, InitProducerIdResponse, KEY_TYPE_TRANSACTION)
            raise_for(response.error_code, f"transactional id {name!r}")
            return FencedProducer(response.producer_id, response.producer_epoch)

        again = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS})
        names = named(transactional_ids, "fence_producers")
        return await self._of_each(names, lambda name: self._until_loaded(lambda: fence(name), also=again))

    async def abort_transaction(self, partition: PartitionLike, *, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Writes an abort marker of the producer into the partition, whatever its coordinator knows; ``describe_producers`` has the
        numbers.

        This tears a transaction that is open or committed elsewhere: ``find_hanging_transactions`` says which are neither.
        """
        marker = WritableTxnMarker(producer_id, producer_epoch, False, coordinator_epoch=coordinator_epoch)
        await self._write_marker(partition_of(partition), marker)

    async def _write_marker(self, partition: TopicPartition, marker: WritableTxnMarker) -> None:
        """Writes the marker into the partition's log. KafkaError when its leader refuses it."""
        leaders, _ = await self._by_leader([partition])
        if not leaders:
            raise without_leader(partition)
        [leader] = leaders
        marker.topics = [WritableTxnMarkerTopic(*item) for item in by_topic([partition]).items()]
        response = await self._cluster.ask(leader, WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse)
        for answer in response.markers:
            for topic in answer.topics:
                for result in topic.partitions:
                    raise_for(result.error_code, f"marker of producer {marker.producer_id} in {topic.name}-{result.partition_index}")

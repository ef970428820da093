"""The client on the real network, for asyncio.

::

    async with Producer("localhost:9092") as producer:
        await producer.send_and_wait("orders", b"value", key=b"key")

    async with Consumer("localhost:9092", group_id="app", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            print(record.key, record.value)

Keyword arguments are Kafka's configuration keys with ``_`` for ``.``; their defaults are Kafka's. ``ottla.sync`` is the same interface
for programs without an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Unpack, overload

from ottla.client import admin, consumer, producer
from ottla.client.accumulator import RecordMetadata
from ottla.client.admin import (
    Acl,
    AclFilter,
    ActiveProducer,
    Append,
    Broker,
    BrokerLoggers,
    ClientMetrics,
    ClusterDescription,
    CommittedOffset,
    ConfigEntry,
    ConfigKind,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    DelegationToken,
    DirectoryReplica,
    Feature,
    FencedProducer,
    Group,
    GroupDescription,
    GroupListing,
    GroupMember,
    HangingTransaction,
    ListedTransaction,
    LogDir,
    NewTopic,
    OffsetSpec,
    Outcome,
    PartitionDescription,
    QuorumDescription,
    QuorumReplica,
    QuotaMatch,
    Reassignment,
    Subtract,
    Topic,
    TransactionDescription,
    UpgradeType,
    UserChange,
)
from ottla.client.admin.configs import QuotaEntity
from ottla.client.admin.resources import ConfigChange, ConfigChanges, ConfigValue
from ottla.client.buffer import Bytes, ConsumerRecord, DeserializationError, Deserializer, K, V
from ottla.client.cluster import Cluster
from ottla.client.cluster_metadata import Node, PartitionMetadata, TopicMetadata
from ottla.client.commits import Committable
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.face import Face
from ottla.client.failures import DeliveryError
from ottla.client.fetch_settings import FetchSettings
from ottla.client.group_metadata import GroupMetadata, OffsetAndMetadata, Offsets
from ottla.client.membership_settings import MembershipSettings
from ottla.client.meters import ConsumerMetrics, ProducerMetrics
from ottla.client.offset_lookup import FoundOffset
from ottla.client.on_delivery import OnDelivery
from ottla.client.options import AdminOptions, AdminSettings, ClusterOptions, ClusterSettings, ConsumerOptions, ProducerOptions
from ottla.client.other_keywords import with_hints
from ottla.client.other_methods import with_method_hints
from ottla.client.other_names import hint_fields, hint_import
from ottla.client.outgoing import HeadersLike, Serializer
from ottla.client.partitioner import Partitioner
from ottla.client.positions import ByPartition, PartitionLike
from ottla.client.producer_settings import ProducerSettings
from ottla.client.rebalance_listener import Rebalanced
from ottla.client.security import ClientSecurity, security_of
from ottla.client.settings import by_arguments, divided
from ottla.client.subscription import SubscriptionPattern
from ottla.client.transaction_errors import (
    CommitOutcomeUnknownError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionFatalError,
)
from ottla.client.unclosed import Unclosed
from ottla.client.usable import ClientClosedError, on_own_loop
from ottla.client.watch import OnConnectivity
from ottla.client.wrong_calls import with_brokers_first
from ottla.errors import ErrorCode, KafkaError, UndeliveredRecord
from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.ports import World
from ottla.runtime.world import real_world
from ottla.types import Headers, Secret, TopicPartition

__all__ = [
    "Acl",
    "AclFilter",
    "ActiveProducer",
    "Admin",
    "AdminOptions",
    "Append",
    "Broker",
    "BrokerLoggers",
    "ByPartition",
    "ClientClosedError",
    "ClientMetrics",
    "ClusterDescription",
    "ClusterOptions",
    "CommitOutcomeUnknownError",
    "Committable",
    "CommittedOffset",
    "ConfigChange",
    "ConfigChanges",
    "ConfigEntry",
    "ConfigKind",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "ConfigValue",
    "Consumer",
    "ConsumerMetrics",
    "ConsumerOptions",
    "ConsumerRecord",
    "DelegationToken",
    "DeliveryError",
    "DeserializationError",
    "Deserializer",
    "DirectoryReplica",
    "ErrorCode",
    "Feature",
    "FencedProducer",
    "FoundOffset",
    "Group",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupMetadata",
    "HangingTransaction",
    "Headers",
    "HeadersLike",
    "KafkaError",
    "ListedTransaction",
    "LogDir",
    "NewTopic",
    "Node",
    "OffsetAndMetadata",
    "OffsetSpec",
    "Offsets",
    "OnConnectivity",
    "OnDelivery",
    "Operation",
    "Outcome",
    "PartitionDescription",
    "PartitionLike",
    "PartitionMetadata",
    "Partitioner",
    "PatternType",
    "Permission",
    "Producer",
    "ProducerFencedError",
    "ProducerMetrics",
    "ProducerOptions",
    "QuorumDescription",
    "QuorumReplica",
    "QuotaEntity",
    "QuotaMatch",
    "Reassignment",
    "Rebalanced",
    "RecordMetadata",
    "ResourceType",
    "Secret",
    "Serializer",
    "SubscriptionPattern",
    "Subtract",
    "Topic",
    "TopicMetadata",
    "TopicPartition",
    "TransactionAbortableError",
    "TransactionDescription",
    "TransactionFatalError",
    "UndeliveredRecord",
    "UpgradeType",
    "UserChange",
]

hint_fields(
    ClusterDescription, ConsumerRecord, FoundOffset, KafkaError, NewTopic, Node, OffsetAndMetadata, RecordMetadata, TopicPartition
)  # fmt: skip
if not TYPE_CHECKING:  # which would take any name then

    def __getattr__(name: str) -> NoReturn:
        hint_import(__name__, __all__, name)


ITERATION_POLL_MS = 1000
CLOSE = "make it with `async with`, or call `await client.close()`"


def _cluster(bootstrap_servers: str | Sequence[str], settings: ClusterSettings) -> Cluster:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        text = "a client of ottla.aio is made on a running loop, within a coroutine; a program without one uses ottla.sync"
        raise RuntimeError(text) from None
    world = real_world()
    cluster = Cluster(
        world,
        bootstrap_servers,
        client_id=settings.client_id,
        request_timeout_ms=settings.request_timeout_ms,
        metadata_max_age_ms=settings.metadata_max_age_ms,
        security=_security(world, settings),
    )
    if settings.on_connectivity is not None:
        cluster.watch(settings.on_connectivity)
    return cluster


def _security(world: World, settings: ClusterSettings) -> ClientSecurity:
    with by_arguments():
        security = security_of(settings, lambda path: Path(path).read_bytes(), world)
        if security.tls is not None:
            try:
                world.network.check_tls(security.tls)
            except ValueError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"the ssl settings of a client: {error}") from None
    return security


_OF_OTHERS: Final = {"producers": (ProducerSettings,), "consumers": (ConsumerSettings, FetchSettings, MembershipSettings)}


@with_method_hints
@on_own_loop
@with_hints
class Producer(Face, producer.Producer):
    """A producer; ``ProducerOptions`` are its settings.

    That of ``ottla.sync`` may be used by several threads at once; that of ``ottla.aio`` on the loop on which it was made.
    """

    @with_brokers_first
    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Unpack[ProducerOptions]) -> None:
        of_cluster, of_producer = divided((ClusterSettings, ProducerSettings), settings, _OF_OTHERS)
        super().__init__(_cluster(bootstrap_servers, of_cluster), of_producer)
        self._unclosed = Unclosed("ottla.aio.Producer", CLOSE, self._cluster)


@with_method_hints
@on_own_loop
@with_hints
class Consumer(Face, consumer.Consumer, Generic[K, V]):
    """A consumer; ``ConsumerOptions`` are its settings, and the two deserializers.

    That of ``ottla.sync`` is used by one thread, and another may call ``close``; that of ``ottla.aio`` on the loop on which it was made.

    ``K`` and ``V`` are what its deserializers return, and the types of its records' keys and values: bytes or None without them.
    """

    @overload
    def __init__(
        self: Consumer[Bytes, Bytes], bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Unpack[ConsumerOptions]
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Bytes, V],
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        value_deserializer: Callable[[Bytes], V],
        **settings: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[K, Bytes],
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        key_deserializer: Callable[[Bytes], K],
        **settings: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        key_deserializer: Callable[[Bytes], K],
        value_deserializer: Callable[[Bytes], V],
        **settings: Unpack[ConsumerOptions],
    ) -> None: ...

    @with_brokers_first
    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Any) -> None:
        kinds = (ClusterSettings, ConsumerSettings, FetchSettings, MembershipSettings)
        of_cluster, of_consumer, fetch, membership = divided(kinds, settings, _OF_OTHERS)
        super().__init__(_cluster(bootstrap_servers, of_cluster), replace(of_consumer, fetch=fetch, membership=membership))
        self._loop = asyncio.get_running_loop()
        self._unclosed = Unclosed("ottla.aio.Consumer", CLOSE, self._cluster)

    async def poll(self, timeout_ms: int = 0, *, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Returns records that have come, at most ``max_records``; an empty list when none came in ``timeout_ms``.

        The records of a partition come in the order of their offsets, the partitions in any order.
        Drives everything: joining and rebalancing, resets, auto-commit. KafkaError for what the application has to decide on:
        INVALID_REQUEST where it neither subscribes nor is assigned; TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED;
        FENCED_INSTANCE_ID; OFFSET_OUT_OF_RANGE where ``auto_offset_reset`` is none; DeserializationError.
        While brokers do not answer it raises nothing: it returns an empty list after ``timeout_ms``, and the next poll goes on trying;
        ``on_connectivity`` is called when no broker can be reached.
        """
        return await super().poll(timeout_ms, max_records=max_records)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Yields records for ever, each one consumed as it is handed out."""
        while True:
            record = self._next_record()
            if record is None:
                await self._fetch(ITERATION_POLL_MS)
            else:
                yield record


@with_method_hints
@on_own_loop
@with_hints
class Admin(Face, admin.Admin):
    """Administration; ``AdminOptions`` are its settings.

    That of ``ottla.sync`` is used by one thread at a time; that of ``ottla.aio`` on the loop on which it was made.

    Each call ends within ``default_api_timeout_ms``, or within its own ``timeout_ms`` where one is given, with REQUEST_TIMED_OUT and what
    it waited for.
    """

    @with_brokers_first
    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Unpack[AdminOptions]) -> None:
        of_cluster, of_admin = divided((ClusterSettings, AdminSettings), settings, _OF_OTHERS)
        super().__init__(_cluster(bootstrap_servers, of_cluster), default_api_timeout_ms=of_admin.default_api_timeout_ms)
        self._loop = asyncio.get_running_loop()
        self._unclosed = Unclosed("ottla.aio.Admin", CLOSE, self._cluster)

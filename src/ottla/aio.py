"""The client on the real network, for asyncio.

::

    async with Producer("localhost:9092") as producer:
        await producer.send_and_wait("orders", b"value", key=b"key")

    async with Consumer("localhost:9092", group_id="app", auto_offset_reset="earliest") as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            print(record.key, record.value)

Keyword arguments are Kafka's configuration keys with ``_`` for ``.``; their defaults are Kafka's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

from ottla.client import admin, consumer, producer
from ottla.client.accumulator import RecordMetadata
from ottla.client.admin import ClusterDescription, NewTopic
from ottla.client.buffer import ConsumerRecord
from ottla.client.cluster import Cluster, TopicMetadata
from ottla.client.fetcher import FetchSettings
from ottla.client.membership import MembershipSettings
from ottla.errors import KafkaError
from ottla.runtime.world import real_world
from ottla.types import TopicPartition

__all__ = [
    "Admin",
    "ClusterDescription",
    "Consumer",
    "ConsumerRecord",
    "KafkaError",
    "NewTopic",
    "Producer",
    "RecordMetadata",
    "TopicMetadata",
    "TopicPartition",
]

_FETCH_KEYS = frozenset(FetchSettings.__dataclass_fields__)
_MEMBERSHIP_KEYS = frozenset(MembershipSettings.__dataclass_fields__)


def _cluster(bootstrap_servers: str | Sequence[str], client_id: str, request_timeout_ms: int) -> Cluster:
    return Cluster(real_world(), bootstrap_servers, client_id=client_id, request_timeout_ms=request_timeout_ms)


class Producer(producer.Producer):
    """A producer; see ``ottla.client.producer.ProducerSettings`` for the settings. Made on a running loop."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        client_id: str = "ottla",
        request_timeout_ms: int = 30_000,
        **settings: Any,
    ) -> None:
        super().__init__(_cluster(bootstrap_servers, client_id, request_timeout_ms), producer.ProducerSettings(**settings))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class Consumer(consumer.Consumer):
    """A consumer; see ``ConsumerSettings``, ``FetchSettings`` and ``MembershipSettings``. Made on a running loop."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        client_id: str = "ottla",
        request_timeout_ms: int = 30_000,
        **settings: Any,
    ) -> None:
        fetch = FetchSettings(**{key: settings.pop(key) for key in list(settings) if key in _FETCH_KEYS})
        membership = MembershipSettings(**{key: settings.pop(key) for key in list(settings) if key in _MEMBERSHIP_KEYS})
        super().__init__(
            _cluster(bootstrap_servers, client_id, request_timeout_ms),
            consumer.ConsumerSettings(fetch=fetch, membership=membership, **settings),
        )

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Records for ever."""
        while True:
            for record in await self.poll(1000):
                yield record

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class Admin(admin.Admin):
    """Administration. Made on a running loop."""

    def __init__(
        self, bootstrap_servers: str | Sequence[str] = "localhost:9092", *, client_id: str = "ottla", request_timeout_ms: int = 30_000
    ) -> None:
        super().__init__(_cluster(bootstrap_servers, client_id, request_timeout_ms))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

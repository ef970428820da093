"""The client for programs without an event loop: each object runs its own, in a thread of its own.

::

    with Producer("localhost:9092") as producer:
        future = producer.send("orders", b"value", key=b"key")
        print(future.result().offset)

    with Consumer("localhost:9092", group_id="app", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer.poll(timeout_ms=1000):
            print(record.value)

The methods are those of ``ottla.aio``, and block until they are done; ``Producer.send`` returns at once with a
``concurrent.futures.Future``. Objects may be used from one thread at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ottla import aio
from ottla.aio import ClusterDescription, ConsumerRecord, KafkaError, NewTopic, RecordMetadata, TopicMetadata, TopicPartition
from ottla.client.admin import CommittedOffset
from ottla.client.admin.configs import QuotaEntity
from ottla.messages.describe_configs import DescribeConfigsResourceResult
from ottla.messages.describe_groups import DescribedGroup
from ottla.messages.describe_log_dirs import DescribeLogDirsResult
from ottla.messages.describe_producers import ProducerState
from ottla.messages.describe_quorum import PartitionQuorum
from ottla.messages.list_groups import ListedGroup
from ottla.messages.list_partition_reassignments import OngoingPartitionReassignment

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

T = TypeVar("T")
C = TypeVar("C", aio.Producer, aio.Consumer, aio.Admin)


class _LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="ottla-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class _Blocking(Generic[C]):
    """One asynchronous object, driven from outside its loop."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._thread = _LoopThread()

        async def build() -> C:
            return make()

        try:
            self._inner: C = self._thread.run(build())
        except BaseException:
            self._thread.stop()
            raise
        self._is_closed = False

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(coroutine)

    def close(self) -> None:
        """As the asynchronous ``close``; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._run(self._inner.close())
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Producer(_Blocking[aio.Producer]):
    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Any) -> None:
        super().__init__(lambda: aio.Producer(bootstrap_servers, **settings))

    def send(self, topic: str, value: bytes | None, **arguments: Any) -> Future[RecordMetadata]:
        """The record is on its way; blocks only while the buffer is full. KafkaError for what ``aio.Producer.send`` refuses."""
        done: Future[RecordMetadata] = Future()

        async def send() -> None:
            inner = await self._inner.send(topic, value, **arguments)
            inner.add_done_callback(lambda acknowledged: _pass_on(acknowledged, done))

        self._run(send())
        return done

    def send_many(self, records: Iterable[tuple[str, bytes | None, bytes | None]]) -> list[Future[RecordMetadata]]:
        """Topic, value and key of each: one hop to the loop for all of them."""
        futures: list[Future[RecordMetadata]] = []

        async def send() -> None:
            for topic, value, key in records:
                done: Future[RecordMetadata] = Future()
                inner = await self._inner.send(topic, value, key=key)
                inner.add_done_callback(lambda acknowledged, done=done: _pass_on(acknowledged, done))  # type: ignore[misc]
                futures.append(done)

        self._run(send())
        return futures

    def flush(self) -> None:
        self._run(self._inner.flush())


def _pass_on(source: asyncio.Future[RecordMetadata], target: Future[RecordMetadata]) -> None:
    error = source.exception()
    if error is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())


class Consumer(_Blocking[aio.Consumer]):
    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Any) -> None:
        super().__init__(lambda: aio.Consumer(bootstrap_servers, **settings))

    def subscribe(self, topics: Sequence[str] = (), *, pattern: str | None = None) -> None:
        self._run(self._inner.subscribe(topics, pattern=pattern))

    def unsubscribe(self) -> None:
        self._run(self._inner.unsubscribe())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._run(self._inner.assign(partitions))

    def assignment(self) -> list[TopicPartition]:
        return self._inner.assignment()

    def poll(self, timeout_ms: int = 0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        return self._run(self._inner.poll(timeout_ms, max_records=max_records))

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        self._run(self._inner.commit(offsets))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._run(self._inner.committed(partitions))

    def position(self, partition: TopicPartition) -> int:
        return self._run(self._inner.position(partition))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._run(self._inner.seek(partition, offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        self._run(self._inner.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        self._run(self._inner.seek_to_end(partitions))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._run(self._inner.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._run(self._inner.end_offsets(partitions))

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int, int]]:
        return self._run(self._inner.offsets_for_times(times))


class Admin(_Blocking[aio.Admin]):
    """Every coroutine of ``aio.Admin``, blocking."""

    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Any) -> None:
        super().__init__(lambda: aio.Admin(bootstrap_servers, **settings))

    def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, KafkaError | None]:
        return self._run(self._inner.create_topics(topics))

    def delete_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        return self._run(self._inner.delete_topics(names))

    def list_topics(self) -> dict[str, TopicMetadata]:
        return self._run(self._inner.list_topics())

    def describe_topic(self, name: str) -> TopicMetadata:
        return self._run(self._inner.describe_topic(name))

    def describe_cluster(self) -> ClusterDescription:
        return self._run(self._inner.describe_cluster())

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int, int]]:
        return self._run(self._inner.offsets_for_times(times))

    def describe_configs(self, resource_type: int, name: str) -> list[DescribeConfigsResourceResult]:
        return self._run(self._inner.describe_configs(resource_type, name))

    def create_partitions(self, counts: Mapping[str, int], **options: Any) -> dict[str, KafkaError | None]:
        return self._run(self._inner.create_partitions(counts, **options))

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        return self._run(self._inner.delete_records(offsets))

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        return self._run(self._inner.elect_leaders(partitions, unclean=unclean))

    def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        return self._run(self._inner.alter_partition_reassignments(replicas))

    def list_partition_reassignments(self) -> dict[TopicPartition, OngoingPartitionReassignment]:
        return self._run(self._inner.list_partition_reassignments())

    def alter_configs(
        self, resource_type: int, name: str, changes: Sequence[tuple[str, int, str | None]], *, validate_only: bool = False
    ) -> None:
        self._run(self._inner.alter_configs(resource_type, name, changes, validate_only=validate_only))

    def replace_configs(self, resource_type: int, name: str, values: Mapping[str, str], *, validate_only: bool = False) -> None:
        self._run(self._inner.replace_configs(resource_type, name, values, validate_only=validate_only))

    def list_config_resources(self, resource_types: Iterable[int] = ()) -> list[tuple[int, str]]:
        return self._run(self._inner.list_config_resources(resource_types))

    def describe_client_quotas(
        self, components: Sequence[tuple[str, int, str | None]] = (), *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        return self._run(self._inner.describe_client_quotas(components, strict=strict))

    def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> dict[QuotaEntity, KafkaError | None]:
        return self._run(self._inner.alter_client_quotas(changes, validate_only=validate_only))

    def alter_replica_log_dirs(self, node_id: int, folders: Mapping[TopicPartition, str]) -> dict[TopicPartition, KafkaError | None]:
        return self._run(self._inner.alter_replica_log_dirs(node_id, folders))

    def describe_log_dirs(self) -> dict[int, list[DescribeLogDirsResult]]:
        return self._run(self._inner.describe_log_dirs())

    def describe_quorum(self) -> PartitionQuorum:
        return self._run(self._inner.describe_quorum())

    def update_features(self, levels: Mapping[str, int], **options: Any) -> None:
        self._run(self._inner.update_features(levels, **options))

    def describe_producers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
        return self._run(self._inner.describe_producers(partitions))

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
        return self._run(self._inner.delete_offsets(group_id, partitions))

    def list_groups(self) -> list[ListedGroup]:
        return self._run(self._inner.list_groups())

    def describe_group(self, group_id: str) -> DescribedGroup:
        return self._run(self._inner.describe_group(group_id))

    def delete_groups(self, group_ids: Sequence[str]) -> dict[str, KafkaError | None]:
        return self._run(self._inner.delete_groups(group_ids))

    def committed_offsets(self, group_id: str, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, CommittedOffset]:
        return self._run(self._inner.committed_offsets(group_id, partitions))

    def set_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._run(self._inner.set_offsets(group_id, offsets))

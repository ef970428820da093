"""What the exactly-once machine asks for, as one transactional producer does it. It lives on the loop of its clusters.

Each FENCE makes a new producer: one that has failed, or whose commit was not answered, does not come back. Markers and metadata
are asked over a cluster of their own, which stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.group_metadata import GroupMetadata, OffsetAndMetadata
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.client.transaction_errors import ProducerFencedError, TransactionAbortableError, TransactionFatalError
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.delivery import RAISE_LIMIT, TOO_LARGE, partition_counts
from ottla.spark.exactly_once import Ask, Seal, Step, TransactionExpiredError
from ottla.spark.marker import Committed, committed_of, in_portions
from ottla.spark.offsets import Offsets
from ottla.spark.options import invalid
from ottla.types import TopicPartition

READ_TIMEOUT_MS: Final = 60_000


class Transactor:
    def __init__(self, cluster: Cluster, connect: Callable[[], Cluster], app: str, settings: ProducerSettings) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._connect = connect
        self._app = app
        self._settings = settings
        self._producer: Producer | None = None
        self._begun_ms: int | None = None  # of the transaction that is open, by the monotonic clock
        self._has_looked = False  # for the sources' partitions, since it was made, or a step has failed

    @property
    def producer(self) -> Producer:
        assert self._producer is not None, "FENCE comes first"
        return self._producer

    async def perform(self, asked: Ask) -> Committed | None:
        """Does the step; READ returns what it has read. The rows, COLLECT and WRITE, are the caller's."""
        if isinstance(asked, Seal):
            for portion in in_portions(asked.offsets, self._app):
                await self.producer.send_offsets_to_transaction(portion, GroupMetadata(self._app))
        elif asked is Step.FENCE:
            await self.close()
            self._begun_ms = None
            self._producer = Producer(self._connect(), self._settings)
            await self._take_epoch(self._producer)
        elif asked is Step.READ:
            return await self._read()
        elif asked is Step.BEGIN:
            await self.producer.begin_transaction()
            self._begun_ms = self._cluster.world.clock.monotonic_ms()
        elif asked is Step.COMMIT:
            await self.producer.commit_transaction()
        elif asked is Step.ABORT:
            try:
                await self.producer.abort_transaction()
            except ProducerFencedError:
                raise
            except KafkaError:
                return None  # the next FENCE does it, or the coordinator when its time is over
        return None

    async def _take_epoch(self, producer: Producer) -> None:
        """Fences the application's earlier producers. KafkaError INVALID_CONFIG for an option that its brokers refuse."""
        try:
            await producer.init_transactions()
        except TransactionFatalError as error:
            if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            timeout = f"kafka.transaction.timeout.ms={self._settings.transaction_timeout_ms}"
            raise invalid(f"{timeout} is more than the brokers' transaction.max.timeout.ms allows: lower it, or have that raised") from None

    def judged(self, error: BaseException) -> BaseException:
        """Returns the error of a failed step; a fence that came when the transaction's time was over is its own error.

        One of a record that is too large has the way out.
        """
        self._has_looked = False  # a topic whose offsets were refused may have been deleted
        if isinstance(error, TransactionAbortableError) and error.code in TOO_LARGE:
            return TransactionAbortableError(error.code, f"{error.message}; {RAISE_LIMIT}")
        timeout_ms = self._settings.transaction_timeout_ms
        if not isinstance(error, ProducerFencedError) or self._begun_ms is None:
            return error
        if self._cluster.world.clock.monotonic_ms() - self._begun_ms < timeout_ms:
            return error
        text = f"the transaction was open for longer than kafka.transaction.timeout.ms={timeout_ms}, and its coordinator has ended it"
        return TransactionExpiredError(error.code, f"{text}: {error.message}")

    async def _read(self) -> Committed:
        """Returns the newest marker. Offsets whose end is decided may not count yet; no transaction starts, for the producer is fenced."""
        deadline_ms = self._cluster.world.clock.monotonic_ms() + READ_TIMEOUT_MS
        attempt = 0
        while True:
            try:
                found = await self._admin.committed_offsets(self._app, require_stable=True)
                return committed_of({key: OffsetAndMetadata(place.offset, place.metadata) for key, place in found.items()})
            except KafkaError as error:
                if not error.is_transient:
                    raise
                problem = error
            await self._cluster.pause(attempt, deadline_ms, problem)
            attempt += 1

    async def places(self, ends: Offsets, *, topic: str | None, number: int, kept: TopicPartition | None = None) -> Offsets:
        """Returns what the group commits: the ends of the partitions that the cluster has. Where a batch has none, its number, for its
        topic, or for the partition where its checkpoint is ``kept``.

        A source may be of another cluster, of no topic at all, or of a pattern that no topic matches yet; the marker needs an offset to be
        in. A topic that was deleted since the batch was planned takes none, so after a failure all are looked up again.
        """
        unsure = {partition.topic for partition in ends if not self._has_looked or not self._has(partition)}
        if unsure:
            await self._refresh(unsure)
            self._has_looked = True
        found = {partition: offset for partition, offset in ends.items() if self._has(partition)}
        if found:
            return found
        if topic is None:
            if kept is not None:
                return {kept: number + 1}
            text = "exactly once keeps its marker in the offsets of a source of topics, or for the option topic, or with checkpoint=topic"
            raise invalid(f"{text}; there is none of them")
        await partition_counts(self._cluster, [topic], is_new=False)
        return {TopicPartition(topic, 0): number + 1}

    def _has(self, partition: TopicPartition) -> bool:
        """Returns whether the cluster is known to have the partition."""
        known = self._cluster.topics.get(partition.topic)
        return known is not None and partition.partition in known.partitions

    async def _refresh(self, topics: set[str]) -> None:
        deadline_ms = self._cluster.world.clock.monotonic_ms() + READ_TIMEOUT_MS
        attempt = 0
        while True:
            try:
                await self._cluster.refresh(topics)
                return
            except KafkaError as error:
                if not error.is_transient:
                    raise
                await self._cluster.pause(attempt, deadline_ms, error)
                attempt += 1

    async def close(self) -> None:
        """Closes the producer; what it had open is aborted where it still can be."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaError):
                await producer.close()

"""The active controller of a cluster with one voter: decides over the newest image, commits, publishes.

A decision is taken and appended without suspending, so two requests cannot decide over the same image. Commits go on in order,
several decisions sharing one fsync; what is committed is published in order beside them, so that a log that opens slowly keeps no
decision back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from ottla.broker.metadata.log import MetadataLog
from ottla.broker.tasks.single_flight import Turns
from ottla.broker.tasks.slices import sliced
from ottla.config import BrokerConfig
from ottla.controller.decided import Decided
from ottla.controller.features import first_features
from ottla.controller.producer_ids import next_block
from ottla.controller.topics import NewTopic, TopicCreation, create_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage, EndpointImage
from ottla.ports import World
from ottla.wire.schema import Stored

Publish = Callable[[ImageDelta], Awaitable[None]]

D = TypeVar("D", bound=Decided)
SLICE_DECISIONS: Final = 50
"""What is decided before other requests have their turn: some milliseconds."""


class ActiveController:
    def __init__(self, world: World, config: BrokerConfig, log: MetadataLog, publish: Publish) -> None:
        self._world = world
        self._config = config
        self._log = log
        self._publish = publish
        self._published = EMPTY_IMAGE
        self._commit = Turns(self._commit_once)
        self._publish_turn = Turns(self._publish_newest)
        self._is_closed = False
        self._added_count = 0  # partitions that were ever added
        self._unopened: deque[tuple[int, int]] = deque()  # those of them that are not open yet, by the end of what added them
        self._producer_ids: deque[int] = deque()  # recorded, and not yet given away

    @property
    def image(self) -> ClusterImage:
        """The newest committed image."""
        return self._log.committed

    @property
    def high_watermark(self) -> int:
        """The end of what is committed of the metadata log."""
        return self._log.committed.end_offset

    async def publish(self) -> None:
        """The newest committed image is followed, once more if it was before."""
        await self._publish_turn(self._publish_once)

    async def close(self) -> None:
        """What was decided is carried out, and nothing is decided any more."""
        self._is_closed = True
        await self.published()

    async def published(self) -> None:
        """What was decided before the call is committed, and this broker has what it asks for: partitions open, coordinators loaded."""
        await self._commit()
        await self._publish_turn()

    async def register_broker(self, broker_id: int, endpoints: Sequence[EndpointImage], rack: str | None) -> None:
        """The broker is in the image, unfenced, with these addresses."""
        ends = [BrokerEndpoint(end.listener, end.host, end.port, 0) for end in endpoints]
        epoch = self._log.end_offset
        await self._append([RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, end_points=ends, rack=rack, fenced=False)])

    async def activate(self) -> None:
        """A new cluster has its features, and every cluster what its features ask for."""
        await self.decide([partial(first_features, min_isr=self.static_min_isr)])

    @property
    def static_min_isr(self) -> int:
        """What this node was started with."""
        min_isr: int = self._config.static("min.insync.replicas")
        return min_isr

    async def create_topics(self, topics: Sequence[NewTopic]) -> list[TopicCreation | KafkaError]:
        """One result a topic, in order. What was created can be written to when this returns."""
        return await self.decide(self.creation(topic) for topic in topics)

    async def decide(self, decisions: Iterable[Callable[[ClusterImage], D]], *, validate_only: bool = False) -> list[D | KafkaError]:
        """One result each, in order; what they record is committed and published when this returns, and what they rest on is committed.

        Each decision is taken over the image that those before it made; with ``validate_only`` nothing is made. Many decisions come
        in slices, with others' between them, and each is asked for when its turn comes.
        """
        if self._is_closed:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is stopping")
        results: list[D | KafkaError] = []
        has_records = False
        added_max = -1
        async for decision in sliced(decisions, SLICE_DECISIONS):
            try:
                result = decision(self._log.draft)
                added = self._added_here(result.records)
                if added:
                    if added_max < 0:  # counting open files takes its time: once is enough
                        added_max = self._added_count - self._unopened_count + self._world.disk.open_files_left()
                    _check_room(added, added_max - self._added_count)
            except KafkaError as error:
                results.append(error.with_traceback(None))  # whose frames would be kept with every result
                continue
            if result.records and not validate_only:
                self._log.append(result.records, now_ms=self._world.clock.now_ms())
                if added:
                    self._unopened.append((self._log.end_offset, added))
                    self._added_count += added
                has_records = True
            results.append(result)
        if has_records:
            await self.published()
        elif self._log.committed.end_offset < self._log.end_offset:  # what the results rest on, "it exists" for one, could still be lost
            await self._commit()
        return results

    @property
    def _unopened_count(self) -> int:
        return sum(count for _, count in self._unopened)

    def _added_here(self, records: Sequence[Stored]) -> int:
        """How many partitions the records add to this broker."""
        node_id = self._config.node_id
        return sum(type(record) is PartitionRecord and node_id in record.replicas for record in records)

    async def next_producer_id(self) -> int:
        """An id that no producer ever had; they are taken from blocks that were recorded first."""
        while len(self._producer_ids) == 0:
            block, record = next_block(self._log.draft, broker_id=self._config.node_id)
            await self._append([record])
            self._producer_ids.extend(block)
        return self._producer_ids.popleft()

    def creation(self, topic: NewTopic) -> Callable[[ClusterImage], TopicCreation]:
        """The decision to create the topic, with its id and its place chosen by chance."""
        random = self._world.random
        topic_id = random.getrandbits(128).to_bytes(16, "big")
        start, shift = self.random_place()
        return lambda image: create_topic(image, topic, config=self._config, topic_id=topic_id, start=start, shift=shift)

    def random_place(self) -> tuple[int, int]:
        """Start and shift for ``placement``."""
        count = max(1, len(self._log.draft.brokers))
        return self._world.random.randrange(count), self._world.random.randrange(count)

    async def _append(self, records: Sequence[Stored]) -> None:
        self._log.append(records, now_ms=self._world.clock.now_ms())
        await self.published()

    async def _commit_once(self) -> None:
        while self._log.has_pending:  # more may be appended while this waits for the disk
            self._log.commit(await self._log.flush())

    async def _publish_newest(self) -> None:
        if self._log.committed is not self._published:
            await self._publish_once()

    async def _publish_once(self) -> None:
        image = self._log.committed
        await self._publish(ImageDelta(self._published, image))
        self._published = image
        while self._unopened and self._unopened[0][0] <= image.end_offset:
            self._unopened.popleft()
        await self._log.snapshot_when_due()


def _check_room(added: int, left: int) -> None:
    """POLICY_VIOLATION when the broker could not open so many partitions: each needs a file."""
    if added > left:
        text = f"{added} more partitions need as many open files, and this broker may open {max(0, left)} more (ulimit -n)"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)

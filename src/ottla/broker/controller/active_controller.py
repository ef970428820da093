"""The controller of this node: while it is active it decides over the newest draft, and answers once that is committed.

A decision is taken and appended without suspending, so two requests cannot decide over the same image; many share one fsync. What is
committed is published beside that, so a log that opens slowly keeps no decision back: only the answer to its client waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.broker.metadata.neighbours import MetadataStore
from ottla.broker.metadata.publisher import Publisher
from ottla.broker.part import Part
from ottla.broker.tasks.slices import sliced
from ottla.config import BrokerConfig
from ottla.controller.arrivals import Arrivals
from ottla.controller.decided import Decided
from ottla.controller.elections import elections_in
from ottla.controller.features import MIN_ISR, first_features
from ottla.controller.operation_size import too_many_topics
from ottla.controller.producer_ids import next_block
from ottla.controller.sweeps import Sweep
from ottla.controller.topic_rules import UNCLEAN, TopicRules
from ottla.controller.topics import NewTopic, TopicCreation, create_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.messages.metadata_records import PartitionRecord
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.members import broker_record
from ottla.ports import World
from ottla.wire.schema import Stored

if TYPE_CHECKING:
    from ottla.broker.controller.remote import RemoteController

log = get_logger(__name__)

D = TypeVar("D", bound=Decided)
LOGGED_MAX: Final = 20
"""Topics of one change that the log names."""
SLICE_DECISIONS: Final = 50
"""What is decided before other requests have their turn: some milliseconds."""


class ActiveController(Part):
    """Decides while its node is the active controller; the ``remote`` one is asked otherwise, where other nodes may be.

    ``replicates`` says whether partitions may have several replicas: only where several nodes can be one cluster.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        replica: MetadataStore,
        publisher: Publisher,
        *,
        remote: RemoteController | None,
        replicates: bool,
    ) -> None:
        self._world = world
        self._config = config
        self._replica = replica
        self._publisher = publisher
        self._is_closed = False
        self._became_active = asyncio.Event()
        self._added_count = 0  # partitions that were ever added to this broker
        self._unopened: deque[tuple[int, int]] = deque()  # added partitions that are not open yet, by the end of what added them
        self._remote = remote
        self.replicates = replicates
        self._arrivals = Arrivals()
        self._producer_ids: deque[int] = deque()  # recorded, and not yet given away
        self.election_count = 0
        """Leaders that this controller has elected, not counting the first leaders of new partitions."""
        self.unclean_election_count = 0
        """The ones among these that may lack committed records."""

    @property
    def image(self) -> ClusterImage:
        """The newest committed image."""
        return self._replica.image

    @property
    def replica(self) -> MetadataStore:
        """To be looked at only."""
        return self._replica

    @property
    def is_active(self) -> bool:
        return self._replica.is_active

    # -- life

    async def on_image(self, delta: ImageDelta) -> None:
        self.note_brokers(delta.new)
        if self.is_active:
            _tell_topics(delta)

    def on_active(self, epoch: int) -> None:
        log.info("controller_active", epoch=epoch)
        self._became_active.set()

    def on_inactive(self) -> None:
        log.info("controller_inactive")
        self._became_active.clear()
        self._unopened.clear()

    async def active(self) -> None:
        """Waits until this node's controller may decide."""
        await self._became_active.wait()

    async def stop(self) -> None:
        """Stops after what was decided is carried out; this node then neither decides nor follows another controller's decisions."""
        self._is_closed = True
        await self._publisher.end()

    async def published(self) -> None:
        """Waits until what was decided before is committed and carried out here: partitions are open, coordinators loaded."""
        if self._replica.is_active:
            await self._replica.committed()
        await self._publisher.catch_up()

    async def register_broker(self, broker: BrokerImage) -> None:
        """Registers the only broker, unfenced."""
        await self._append([broker_record(broker)])

    async def activate(self) -> None:
        """Gives a new cluster its features and its first users, and every cluster what its features ask for."""
        first = await self._replica.first_image()
        users = tuple(first.scram_credentials.values())
        await self.decide([partial(first_features, min_isr=self.static_min_isr, levels=first.features, users=users)])

    @property
    def static_min_isr(self) -> int:
        """What this node was started with."""
        min_isr: int = self._config.static(MIN_ISR)
        return min_isr

    def rules(self, image: ClusterImage) -> TopicRules:
        """Returns the rules for partitions of that image."""
        self.note_brokers(image)
        return TopicRules(image, self.static_min_isr, self._config.static(UNCLEAN), self.young)

    def note_brokers(self, image: ClusterImage) -> None:
        """Notes since when the image's brokers serve."""
        self._arrivals.note(image.brokers, self._world.clock.monotonic_ms())

    @property
    def young(self) -> Mapping[int, int]:
        """Brokers that came just now, as far as this node knows."""
        return self._arrivals.young(self._world.clock.monotonic_ms())

    # -- deciding

    @property
    def _elsewhere(self) -> RemoteController | None:
        """Who is asked in place of this node's controller."""
        return None if self.is_active else self._remote

    async def create_topics(self, topics: Sequence[NewTopic]) -> list[TopicCreation | KafkaError]:
        """Creates topics. Returns one result a topic, in order; what was created here can be written to then."""
        if (elsewhere := self._elsewhere) is not None:
            return await elsewhere.create_topics(topics)
        excess = too_many_topics(topics, partitions_default=self._config["num.partitions"])
        return await self.decide(map(self.creation, topics), refused=excess)

    async def sweep(self, sweep: Sweep, *, is_followed: bool = False) -> KafkaError | None:
        """Commits what the sweep decides, a slice at a time, with others' turns between them. Returns the error, if it is refused.

        NOT_CONTROLLER as of ``decide``.
        """
        results = await self.decide(sweep.steps(), is_followed=is_followed, slice_size=1, is_kept=False)
        return next((result for result in results if isinstance(result, KafkaError)), None)

    async def decide(
        self,
        decisions: Iterable[Callable[[ClusterImage], D]],
        *,
        validate_only: bool = False,
        is_followed: bool = True,
        slice_size: int = SLICE_DECISIONS,
        is_kept: bool = True,
        refused: KafkaError | None = None,
    ) -> list[D | KafkaError]:
        """Decides in order, one result each; what they record and rest on is committed when this returns, and with ``is_followed`` followed
        here.

        Each decision is taken over the image that those before it made; with ``validate_only`` nothing is made. Many decisions come
        in slices, with others' between them, and each is asked for when its turn comes. With ``refused`` nothing is decided: that is
        every result. NOT_CONTROLLER when this node's controller is not active, or was no longer before its decisions were committed: they
        may be, or not. Without ``is_kept`` only errors are results: what was decided on hundreds of thousands of partitions would be freed
        in one turn of the loop.
        """
        if self._is_closed:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is stopping")
        if refused is not None:
            return [refused async for _ in sliced(decisions, SLICE_DECISIONS)]
        results: list[D | KafkaError] = []
        has_records = False
        added_max = -1
        async for decision in sliced(decisions, slice_size):
            if not self._replica.is_active:  # a decision notes what it has seen: of an image that may be of long ago
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
            try:
                result = decision(self._replica.draft)
                if not self.replicates:
                    _check_factor(result.records)
                added = self._added_here(result.records)
                if added:
                    if added_max < 0:  # counting open files takes its time: once is enough
                        added_max = self._added_count - self._unopened_count + self._world.disk.open_files_left()
                    _check_room(added, added_max - self._added_count)
            except KafkaError as error:
                results.append(error.with_traceback(None))  # whose frames would be kept with every result
                continue
            if result.records and not validate_only:
                self._note_elections(result.records)
                try:
                    end_offset = self._replica.append(result.records)
                except KafkaError as error:
                    if error.code == ErrorCode.NOT_CONTROLLER:
                        raise
                    results.append(error.with_traceback(None))  # the home has no place for such records
                    continue
                has_records = True
                if added:
                    self._unopened.append((end_offset, added))
                    self._added_count += added
            if is_kept:
                results.append(result)
        await self._replica.committed()  # "it exists", for one, could still be lost
        if has_records and is_followed:
            await self._publisher.catch_up()
        return results

    def _note_elections(self, records: Sequence[Stored]) -> None:
        for elected in elections_in(self._replica.draft, records):
            self.election_count += 1
            if elected.is_unclean:
                self.unclean_election_count += 1
                others = f", and replicas {list(elected.lost_to)} may have had" if elected.lost_to else ""
                log.warning(
                    "unclean_leader_elected",
                    partition=f"{elected.topic}-{elected.index}",
                    leader=elected.leader,
                    lost=f"records that the leader does not have{others}",
                )

    @property
    def _unopened_count(self) -> int:
        published = self._publisher.published.end_offset
        while self._unopened and self._unopened[0][0] <= published:
            self._unopened.popleft()
        return sum(count for _, count in self._unopened)

    def _added_here(self, records: Sequence[Stored]) -> int:
        """Returns how many partitions the records add to this broker."""
        node_id = self._config.node_id
        return sum(type(record) is PartitionRecord and node_id in record.replicas for record in records)

    async def next_producer_id(self) -> int:
        """Returns an id that no producer ever had; they are taken from blocks that were recorded first."""
        while len(self._producer_ids) == 0:
            elsewhere = self._elsewhere
            self._producer_ids.extend(await (self._own_producer_ids() if elsewhere is None else elsewhere.next_producer_ids()))
        return self._producer_ids.popleft()

    async def _own_producer_ids(self) -> range:
        allocated = next_block(self._replica.draft, broker_id=self._config.node_id)
        await self._append(allocated.records)
        return allocated.block

    def creation(self, topic: NewTopic) -> Callable[[ClusterImage], TopicCreation]:
        """Returns the decision to create the topic, with its id and its place chosen by chance."""
        random = self._world.random
        topic_id = random.getrandbits(128).to_bytes(16, "big")
        start, shift = self.random_place()
        absent = self._replica.absent
        return lambda image: create_topic(
            image, topic, config=self._config, topic_id=topic_id, start=start, shift=shift, absent=absent
        )  # fmt: skip

    def random_place(self) -> tuple[int, int]:
        """Returns start and shift for ``placement``."""
        count = max(1, len(self._replica.draft.brokers))
        return self._world.random.randrange(count), self._world.random.randrange(count)

    async def _append(self, records: Sequence[Stored]) -> None:
        await self._replica.committed(self._replica.append(records))
        await self._publisher.catch_up()


def _check_factor(records: Sequence[Stored]) -> None:
    """Refuses a new partition of several replicas: INVALID_REPLICATION_FACTOR, for no other broker can join a node that is alone."""
    for record in records:
        if type(record) is PartitionRecord and len(record.replicas) > 1:
            text = f"replication factor {len(record.replicas)} needs several brokers; none can join one without controller.listener.names"
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def _check_room(added: int, left: int) -> None:
    """Refuses more partitions than the broker could open, each of which needs a file: POLICY_VIOLATION."""
    if added > left:
        text = f"{added} more partitions need as many open files, and this broker may open {max(0, left)} more (ulimit -n)"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)


def _tell_topics(delta: ImageDelta) -> None:
    """Logs the topics that came and went, by name where they are few."""
    created = [topic for topic in delta.changed_topics if topic.name not in delta.old.topics]
    for topic in created[:LOGGED_MAX]:
        log.info("topic_created", topic=topic.name, partitions=len(topic.partitions))
    for topic in delta.deleted_topics[:LOGGED_MAX]:
        log.info("topic_deleted", topic=topic.name)
    more = max(0, len(created) - LOGGED_MAX), max(0, len(delta.deleted_topics) - LOGGED_MAX)
    if any(more):
        log.info("more_topics_changed", created=more[0], deleted=more[1])

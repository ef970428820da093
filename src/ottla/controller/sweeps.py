"""Decisions over all partitions of a broker, a slice at a time: so many partitions are never decided on in one go.

Each step is a decision of its own over the newest image, and is recorded as a group: what is half done is a cluster like any other.
Between two steps anything may be decided. What says that it is done comes with the last step, as in Kafka: a broker is fenced once it has
left its last ISR, so a controller that ends before that leaves one that is not fenced, has no session with the next controller, and is
fenced by that one. A broker that joined an ISR again meanwhile is found by the index, which counts what is left: then there is another
pass. What starts with its record (a broker that is unfenced, or stops, or goes on without a directory) is completed by the next controller,
which looks at every partition once when it becomes active (``Completing``), or by the broker's next heartbeat.
Source: KIP-631, KIP-841, KIP-858, KIP-966.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ottla.controller.decided import Recorded
from ottla.controller.partition_change import SAME_LEADER, with_leader, without_replicas
from ottla.controller.topic_rules import TopicRules, directory_of, has_directory
from ottla.errors import KafkaError
from ottla.messages.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from ottla.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.partition_index import Places
from ottla.types import NO_LEADER
from ottla.wire.schema import Stored

RulesOf = Callable[[ClusterImage], TopicRules]
Suspected = Callable[[], Container[int]]
OnStep = Callable[[int], None]
"""Who is suspected to be dead, now."""
Step = Callable[[ClusterImage], Recorded]

CHANGED_MAX: Final = 250
"""Partitions that one step changes: two milliseconds."""
LOOKED_AT_MAX: Final = 1000
IDLE_PASSES_MAX: Final = 3
_NOTHING: Final = Recorded(())


class _Walk:
    """A walk over the partitions of some places, as many at a time as the caller wants; it leaves out partitions that no longer exist."""

    def __init__(self, places: Places) -> None:
        self._topics = iter(list(places))
        self._topic = ""
        self._numbers: Iterator[int] = iter(())
        self.is_over = False

    def next(self, places: Places) -> tuple[str, int] | None:
        """Returns the next place, None after the last. ``places`` are the places as they are now."""
        while True:
            number = next(self._numbers, -1)
            if number >= 0:
                return self._topic, number
            topic = next(self._topics, None)
            if topic is None:
                self.is_over = True
                return None
            self._topic, self._numbers = topic, iter(tuple(places.get(topic, ())))


class Sweep:
    """``step`` until ``is_done``. It ends early and silently once ``is_wanted`` says of the image that it is no longer wanted.

    ``on_step`` is called with where the records of a step will end, when there are some.
    """

    def __init__(self, rules: RulesOf, is_wanted: Callable[[ClusterImage], bool], on_step: OnStep = lambda offset: None) -> None:
        self._rules = rules
        self._is_wanted = is_wanted
        self._walk: _Walk | None = None
        self.is_done = False
        self._on_step = on_step

    def steps(self) -> Iterator[Step]:
        """Yields the steps that are left; the caller takes each one before it asks for the next."""
        while not self.is_done:
            yield self.step

    def step(self, image: ClusterImage) -> Recorded:
        """Decides on the next slice. An error ends the sweep."""
        try:
            decided = self._step(image)
        except KafkaError:
            self.is_done = True
            raise
        if decided.records:
            self._on_step(image.end_offset + len(decided.records))
        return decided

    def _step(self, image: ClusterImage) -> Recorded:
        if self.is_done or not self._is_wanted(image):
            self.is_done = True
            return _NOTHING
        records: list[Stored] = []
        if self._walk is None:
            records += self._begin(image)
            self._walk = _Walk(self._places(image))
        records += self._changes(self._judged(image), self._walk)
        if self._walk.is_over:
            self._end(image, records)
        return Recorded(tuple(records))

    def _changes(self, image: ClusterImage, walk: _Walk) -> Iterator[PartitionChangeRecord]:
        rules, places, topics = self._rules(image), self._places(image), image.topics
        count = 0
        for _ in range(LOOKED_AT_MAX):
            place = walk.next(places)
            if place is None:
                return
            name, number = place
            topic = topics.get(name)
            partition = None if topic is None else topic.partitions.get(number)
            if topic is None or partition is None:
                continue
            record = self._change(image, rules, name, topic.topic_id, number, partition)
            if record is not None:
                yield record
                count += 1
                if count == CHANGED_MAX:
                    return

    def _begin(self, image: ClusterImage) -> Sequence[Stored]:
        """Returns the records that come before those of any partition."""
        return ()

    def _judged(self, image: ClusterImage) -> ClusterImage:
        """Returns the image that the partitions are decided on."""
        return image

    def _places(self, image: ClusterImage) -> Places:
        raise NotImplementedError

    def _change(
        self, image: ClusterImage, rules: TopicRules, name: str, topic_id: bytes, number: int, partition: PartitionImage
    ) -> PartitionChangeRecord | None:
        raise NotImplementedError

    def _end(self, image: ClusterImage, records: list[Stored]) -> None:
        """Ends the sweep after every partition was looked at; ``records`` are those of this step."""
        self.is_done = True


class _Decided(Struct, frozen=True):
    """The decision on a partition, and on any other in the same state; ``record`` is None where nothing does."""

    record: PartitionChangeRecord | None
    stays: bool = False
    """In the ISR, alone."""
    leaves: bool = False
    resigns: bool = False
    loses_eligibility: int = 0
    """-1 for who becomes eligible."""


class Leaving(Sweep):
    """A sweep that takes a broker out of every ISR where it need not stay alone; uncleanly, out of those that are eligible, too.

    ``first`` and ``last`` say what is recorded before and after that, the latter of the image and the offset where that will be.
    """

    def __init__(
        self,
        broker_id: int,
        rules: RulesOf,
        is_wanted: Callable[[ClusterImage], bool],
        *,
        first: Callable[[ClusterImage], Sequence[Stored]] = lambda image: (),
        last: Callable[[ClusterImage, int], Sequence[Stored]] = lambda image, offset: (),
        is_clean: Callable[[ClusterImage], bool] = lambda image: True,
        suspected: Suspected = lambda: (),
        on_step: OnStep = lambda offset: None,
    ) -> None:
        super().__init__(rules, is_wanted, on_step)
        self._broker_id = broker_id
        self._first = first
        self._last = last
        self._is_clean = is_clean
        self._suspected = suspected
        self._has_begun = False
        self._is_of_leaders = False  # in this pass: where there are many, what it leads comes first
        self._kept = self._changed = 0  # in this pass: ISRs that it stays in, and partitions that were changed
        self._idle_passes = 0
        self.changed_count = 0
        """Partitions that were changed so far, each as often as it was."""
        self._removed = [0, 0, 0]  # in this step: from how many ISRs, leaderships and ELRs
        self._alike: dict[tuple[str, int], _Decided] = {}  # in this step: partitions of one topic that are one object have one decision
        self._is_clean_now = True  # asked once a step
        self._suspected_now: Container[int] = ()

    def _places(self, image: ClusterImage) -> Places:
        return image.index.of_broker(self._broker_id)

    def _step(self, image: ClusterImage) -> Recorded:
        self._removed = [0, 0, 0]
        self._alike.clear()
        self._is_clean_now, self._suspected_now = self._is_clean(image), self._suspected()
        return super()._step(image)

    def _begin(self, image: ClusterImage) -> Sequence[Stored]:
        self._kept = self._changed = 0
        if self._has_begun:
            return ()
        self._has_begun = True
        index, broker_id = image.index, self._broker_id
        self._is_of_leaders = index.in_sync.get(broker_id, 0) > CHANGED_MAX and broker_id in index.led
        return self._first(image)

    def _change(
        self, image: ClusterImage, rules: TopicRules, name: str, topic_id: bytes, number: int, partition: PartitionImage
    ) -> PartitionChangeRecord | None:
        if self._is_of_leaders and partition.leader != self._broker_id:
            return None
        kind = name, id(partition)  # which the image of this step keeps
        decided = self._alike.get(kind)
        if decided is None:
            decided = self._alike[kind] = self._decide(rules, name, topic_id, partition)
        self._kept += decided.stays
        known = decided.record
        if known is None:
            return None
        self._changed += 1
        self.changed_count += 1
        removed = self._removed
        removed[0] += decided.leaves
        removed[1] += decided.resigns
        removed[2] += decided.loses_eligibility
        return PartitionChangeRecord(
            number, topic_id, known.isr, known.leader, known.replicas, known.removing_replicas, known.adding_replicas,
            known.leader_recovery_state, known.directories, known.eligible_leader_replicas, known.last_known_elr,
        )  # fmt: skip

    def _decide(self, rules: TopicRules, name: str, topic_id: bytes, partition: PartitionImage) -> _Decided:
        """Decides for every partition of the topic that looks like this one."""
        broker_id, is_clean = self._broker_id, self._is_clean_now
        in_sync, was_eligible = broker_id in partition.isr, broker_id in partition.elr
        if not in_sync and (is_clean or not was_eligible):
            return _Decided(None)
        known = rules.of(name, partition, self._suspected_now)
        record = without_replicas(topic_id, -1, partition, {broker_id}, known, is_clean=is_clean)
        if record is None:
            return _Decided(None, stays=in_sync)
        stays = in_sync and (record.isr is None or broker_id in record.isr)
        is_eligible = was_eligible if record.eligible_leader_replicas is None else broker_id in record.eligible_leader_replicas
        return _Decided(
            record,
            stays=stays,
            leaves=in_sync and not stays,
            resigns=partition.leader == broker_id and record.leader not in (SAME_LEADER, broker_id),
            loses_eligibility=was_eligible - is_eligible,
        )

    def _end(self, image: ClusterImage, records: list[Stored]) -> None:
        if self._is_of_leaders:
            self._is_of_leaders, self._walk = False, None
            return
        if self._is_clear(image):
            self.is_done = True
            records += self._last(image, image.end_offset + len(records))
            return
        self._walk = None  # it joined again somewhere, or a topic was deleted: once more
        self._idle_passes = 0 if self._changed else self._idle_passes + 1
        assert self._idle_passes < IDLE_PASSES_MAX, "the index counts what the partitions say"

    def _is_clear(self, image: ClusterImage) -> bool:
        index, broker_id = image.index, self._broker_id
        left = [counts.get(broker_id, 0) for counts in (index.in_sync, index.led, index.eligible)]
        in_sync, led, eligible = (count - removed for count, removed in zip(left, self._removed, strict=True))
        return in_sync == self._kept and led == 0 and (eligible == 0 or self._is_clean_now)


class Returning(Sweep):
    """A sweep that unfences a broker (``first`` says so), and lets it lead what no other could."""

    def __init__(self, broker: BrokerImage, rules: RulesOf, first: Stored) -> None:
        super().__init__(rules, self._is_still_wanted)
        self._broker = broker
        self._first = first
        self._has_begun = False

    def _is_still_wanted(self, image: ClusterImage) -> bool:
        known = image.brokers.get(self._broker.broker_id)
        return known is not None and known.broker_epoch == self._broker.broker_epoch and known.is_fenced is not self._has_begun

    def _begin(self, image: ClusterImage) -> Sequence[Stored]:
        self._has_begun = True
        return (self._first,)

    def _judged(self, image: ClusterImage) -> ClusterImage:
        broker = image.brokers[self._broker.broker_id]
        return dataclasses.replace(image, brokers={**image.brokers, broker.broker_id: replace(broker, is_fenced=False)})

    def _places(self, image: ClusterImage) -> Places:
        return image.index.leaderless

    def _change(
        self, image: ClusterImage, rules: TopicRules, name: str, topic_id: bytes, number: int, partition: PartitionImage
    ) -> PartitionChangeRecord | None:
        if partition.leader != NO_LEADER or self._broker.broker_id not in partition.replicas:
            return None
        return with_leader(topic_id, number, partition, rules.of(name, partition))


class WithoutDirectories(Sweep):
    """The broker goes on without these log directories, and others lead what is there."""

    def __init__(self, broker: BrokerImage, failed: Collection[bytes], rules: RulesOf, is_wanted: Callable[[ClusterImage], bool]) -> None:
        super().__init__(rules, is_wanted)
        self._broker_id = broker.broker_id
        self._failed = failed

    def _begin(self, image: ClusterImage) -> Sequence[Stored]:
        broker = image.brokers[self._broker_id]
        left = [directory for directory in broker.directories if directory not in self._failed]
        return (BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, log_dirs=left),)

    def _places(self, image: ClusterImage) -> Places:
        return image.index.of_broker(self._broker_id)

    def _change(
        self, image: ClusterImage, rules: TopicRules, name: str, topic_id: bytes, number: int, partition: PartitionImage
    ) -> PartitionChangeRecord | None:
        broker_id = self._broker_id
        if broker_id not in partition.isr or directory_of(partition, broker_id) not in self._failed:
            return None
        return without_replicas(topic_id, number, partition, {broker_id}, rules.of(name, partition))


class Completing(Sweep):
    """A sweep that completes what an earlier controller started: every partition that can be led is led, by a replica that has a directory.

    Who serves leads what has no leader, without losing a record; who has no log directory for its replica, or is fenced, is in no ISR.
    """

    _may_be_unclean = False

    def __init__(self, rules: RulesOf, *, suspected: Suspected = lambda: ()) -> None:
        super().__init__(rules, lambda image: True)
        self._suspected = suspected

    def _is_gone(self, image: ClusterImage, partition: PartitionImage, node: int) -> bool:
        broker = image.brokers.get(node)
        return broker is None or broker.is_fenced or not has_directory(image, partition, node)

    def _places(self, image: ClusterImage) -> Places:
        return _AllPlaces(image.topics)

    def _change(
        self, image: ClusterImage, rules: TopicRules, name: str, topic_id: bytes, number: int, partition: PartitionImage
    ) -> PartitionChangeRecord | None:
        gone = {node for node in partition.isr if self._is_gone(image, partition, node)}
        if not gone and partition.leader != NO_LEADER:
            return None
        known = rules.of(name, partition, self._suspected())
        if not self._may_be_unclean:
            known = replace(known, may_be_unclean=False)
        return without_replicas(topic_id, number, partition, gone, known) if gone else with_leader(topic_id, number, partition, known)


class _AllPlaces(Mapping[str, Collection[int]]):
    """All partitions there are, without a look at them."""

    def __init__(self, topics: Mapping[str, TopicImage]) -> None:
        self._topics = topics

    def __getitem__(self, name: str) -> Collection[int]:
        return self._topics[name].partitions.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)

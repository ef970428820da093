"""What the driver asks the cluster: which partitions there are, and offsets by bound.

Everything is requested again each time, so new partitions are seen with the next batch. A request that may succeed later is repeated
for ``kafka.default.api.timeout.ms``, as Kafka's admin client does, in each of the tries that ``fetchOffset.numRetries`` allows: a
query outlives the restart of its brokers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.client.offset_lookup import offsets_for_times
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.ends import news_after
from ottla.spark.link import Link, link_for
from ottla.spark.offsets import EARLIEST, LATEST, Bound, Offsets, TopicIds, ids_in, parse_partitions
from ottla.spark.options import invalid, number_of
from ottla.spark.weights import bytes_per_offset
from ottla.types import TopicPartition, topic_name_problem, topic_text

T = TypeVar("T")
SELECTIONS = ("subscribe", "subscribePattern", "assign")


def check_selection(options: Mapping[str, str]) -> None:
    """Checks that exactly one way of naming partitions is given, and can be read. KafkaError INVALID_CONFIG otherwise."""
    given = [name for name in (*SELECTIONS, "path") if name in options]
    if len(given) != 1:
        raise invalid(f"exactly one of subscribe, subscribePattern and assign must be given, not {', '.join(given) or 'none'}")
    if "assign" in options:
        parse_partitions(options["assign"])
    for name in topics_of(options.get(given[0], "")) if given[0] in ("subscribe", "path") else ():
        problem = topic_name_problem(name)
        if problem is not None:
            raise invalid(f"{given[0]}={options[given[0]]}: {problem}; several topics have commas between them: orders,payments")
    if "subscribePattern" in options:
        try:
            re.compile(options["subscribePattern"])
        except re.error as error:
            raise invalid(f"subscribePattern={options['subscribePattern']} is not a valid regular expression: {error}") from None


def topics_of(text: str) -> set[str]:
    """Returns the names that the text has with commas between them."""
    return {name.strip() for name in text.split(",") if name.strip()}


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions that are read, in their order, and the ids that their topics had when they were looked up."""

    partitions: list[TopicPartition]
    topic_ids: TopicIds


class Lookup:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self.link: Link = link_for(options)
        self._isolation_level = 1 if options.get("kafka.isolation.level") == "read_committed" else 0
        self.retry_count = number_of(options, "fetchOffset.numRetries")
        self._retry_interval_ms = number_of(options, "fetchOffset.retryIntervalMs")
        self._api_timeout_ms = number_of(options, "kafka.default.api.timeout.ms")

    def ask(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Returns the coroutine's result; tries again while the error is one that may pass."""
        return self.link.run(self._ask(make))

    def pause(self) -> None:
        """Waits ``fetchOffset.retryIntervalMs``."""
        self.link.run(asyncio.sleep(self._retry_interval_ms / 1000))

    async def _ask(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        for left in range(self.retry_count, -1, -1):
            try:
                return await self._ask_once(make)
            except KafkaError as error:
                if left == 0 or not error.is_transient:
                    raise
                await asyncio.sleep(self._retry_interval_ms / 1000)
        raise AssertionError("the last try returns or raises")

    async def _ask_once(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        cluster = self.link.cluster
        deadline_ms = cluster.world.clock.monotonic_ms() + self._api_timeout_ms
        attempt = 0
        while True:
            try:
                return await make()
            except KafkaError as error:
                if not error.is_transient:
                    raise
                await cluster.pause(attempt, deadline_ms, error)
                attempt += 1

    def selection(self, *, must_exist: bool) -> Selection:
        """Returns the partitions that the options name and that exist. UNKNOWN_TOPIC_OR_PARTITION when some must exist and do not."""
        if "assign" in self._options:
            wanted = parse_partitions(self._options["assign"])
            found = self._of_topics({partition.topic for partition in wanted}, must_exist=must_exist)
            there = set(found.partitions)
            missing = sorted(set(wanted) - there)
            if missing and must_exist:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {missing[0]}, named by assign, does not exist")
            return Selection([partition for partition in wanted if partition in there], found.topic_ids)
        if "subscribePattern" in self._options:
            pattern = re.compile(self._options["subscribePattern"])
            topics = self.ask(self.link.cluster.all_topics)
            names = {name for name, topic in topics.items() if not topic.is_internal and pattern.fullmatch(name)}
            return self._of_topics(names, must_exist=False)
        return self._of_topics(self._subscribed(), must_exist=must_exist)

    def _subscribed(self) -> set[str]:
        return topics_of(self._options.get("subscribe") or self._options["path"])

    def reads(self, partition: TopicPartition) -> bool:
        """True when the options name the partition, whether it exists or not; a checkpoint may have others."""
        if "assign" in self._options:
            return partition in parse_partitions(self._options["assign"])
        if "subscribePattern" in self._options:
            return re.compile(self._options["subscribePattern"]).fullmatch(partition.topic) is not None
        return partition.topic in self._subscribed()

    def _of_topics(self, names: set[str], *, must_exist: bool) -> Selection:
        cluster = self.link.cluster
        missing: list[str] = []

        async def look() -> Selection:
            await cluster.refresh(names)
            missing.clear()
            for name in sorted(names):
                code = cluster.topic_errors.get(name, ErrorCode.NONE)
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    missing.append(name)
                elif code:
                    raise KafkaError(code, topic_text(name))
            there = {name: cluster.topics[name] for name in names if name in cluster.topics}
            partitions = sorted(TopicPartition(name, index) for name, topic in there.items() for index in topic.partitions)
            return Selection(partitions, ids_in(there))

        found = self.ask(look) if names else Selection([], {})
        if missing and must_exist:  # not within look: the error is one that is tried again
            way_out = f"create it first, with ottla topic create {missing[0]}, or correct the option that names it"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {missing[0]!r} does not exist: {way_out}")
        return found

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self.at_times(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self.at_times(dict.fromkeys(partitions, LATEST))

    def at_times(self, times: Offsets) -> Offsets:
        """Returns the first offset of each partition that is not older; -1 when there is none. EARLIEST and LATEST stand for the ends."""
        if not times:
            return {}
        cluster = self.link.cluster
        found = self.ask(lambda: offsets_for_times(cluster, times, isolation_level=self._isolation_level))
        return {partition: offset for partition, (offset, _, _) in found.items()}

    def has_news(self, ends: Offsets, wait_ms: int) -> bool:
        """True when any log goes on after its end as given, or none of its brokers can say; waits for it up to ``wait_ms``."""
        return self.link.run(news_after(self.link.cluster, ends, wait_ms=wait_ms, isolation_level=self._isolation_level))

    def weigh(self, starts: Offsets) -> dict[TopicPartition, float]:
        """Returns how many bytes an offset has on average, from these on; partitions of which that is not known are left out."""
        return self.link.run(bytes_per_offset(self.link.cluster, starts))

    def resolve(self, bound: Bound, partitions: list[TopicPartition], *, none_is_latest: bool) -> Offsets:
        """Returns the bound as offsets. Where no record is young enough: the latest offset, or OFFSET_NOT_AVAILABLE.

        INVALID_CONFIG for a bound that leaves a partition out, or names one that is not read.
        """
        bound.check_read(partitions)
        meant = {partition: bound.of(partition) for partition in partitions}
        if not bound.is_by_time:
            looked_up = self.at_times({partition: value for partition, value in meant.items() if value < 0})
            return meant | looked_up
        offsets = self.at_times(meant)
        missing = sorted(partition for partition, offset in offsets.items() if offset < 0)
        if missing and not none_is_latest:
            text = f"{bound.option}: {missing[0]} has no record at or after {meant[missing[0]]}"
            way_out = "set startingOffsetsByTimestampStrategy=latest to start at its end in that case"
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{text}; {way_out}")  # there may be one later
        return offsets | self.latest(missing)

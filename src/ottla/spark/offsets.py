"""Offsets of many partitions: as JSON, and as options say them.

The JSON is that of Spark's Kafka connector, ``{"topic": {"partition": offset}}``, in options as well as in checkpoints. In
options -2 stands for the earliest and -1 for the latest offset.

The end of a query's first batch also says where the batch started. Spark asks for the initial offset twice in that batch, and
again after a restart when it was never committed; its checkpoint holds only where batches end, and the latest offset has moved by
then. So it is the checkpoint that keeps a query's start, as its own.

Each end of a batch has the ids of its topics, too. A topic that was deleted and made again under its name has another id, however many
records it has by now. Source: KIP-516.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from ottla.client.cluster_metadata import TopicMetadata
from ottla.spark.options import NUMBER_MAX, did_you_mean, invalid
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition, uuid_text

Offsets = dict[TopicPartition, int]
BEGAN_AT: Final = "began at"  # which no topic is called, for it has a blank
TOPIC_IDS: Final = "topic ids"  # nor that
TopicIds = Mapping[str, str]
"""The ids of topics, as text; a topic whose id is not known is left out."""
EARLIEST: Final = EARLIEST_TIMESTAMP
LATEST: Final = LATEST_TIMESTAMP
FOLLOW: Final = "follow"
OFFSET: Final = "an offset; -2 is the earliest one, -1 the latest"
TIME: Final = "a time in milliseconds since 1970"
ISO: Final = ", nor an ISO time such as 2026-01-31, or 2026-01-31T12:00:00Z"
_STRATEGIES: Final = ("error", "latest")


def as_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        result.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return result


def from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(index)): int(offset)
        for topic, by_index in value.items()
        if topic not in (BEGAN_AT, TOPIC_IDS)
        for index, offset in by_index.items()
    }


def first_end_as_json(end: Offsets, start: Offsets) -> dict[str, dict[str, int]]:
    """Returns the end of a first batch, with its start."""
    return as_json(end) | {BEGAN_AT: {str(partition): offset for partition, offset in sorted(start.items())}}


def with_ids(value: dict[str, Any], ids: TopicIds) -> dict[str, Any]:
    """Returns the JSON of offsets, with the ids of its topics."""
    found = {topic: ids[topic] for topic in sorted(value) if topic in ids}
    return value | {TOPIC_IDS: found} if found else value


def ids_of(value: Mapping[str, Any]) -> TopicIds:
    """Returns the ids that the JSON of offsets has: none where it is of Spark's connector, or of a version that wrote none."""
    return cast(TopicIds, value.get(TOPIC_IDS, {}))


def ids_in(topics: Mapping[str, TopicMetadata]) -> TopicIds:
    """Returns the ids that a cluster's metadata has of the topics: none of brokers older than topic ids."""
    return {name: uuid_text(topic.topic_id) for name, topic in topics.items() if any(topic.topic_id)}


def made_again(before: TopicIds, now: TopicIds) -> set[str]:
    """Returns the topics that have another id now."""
    return {topic for topic, known in before.items() if now.get(topic, known) != known}


def batch_start(start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Returns where a batch started: the first one where its end says it did, every other one where Spark says it does.

    Topics that were made again before its end was settled are left out, as ones that have come since.
    """
    if BEGAN_AT in start or BEGAN_AT not in end:
        others = made_again(ids_of(start), ids_of(end))
        return {partition: offset for partition, offset in from_json(start).items() if partition.topic not in others}
    places = ((*name.rpartition("-"), offset) for name, offset in end[BEGAN_AT].items())
    return {TopicPartition(topic, int(index)): offset for topic, _, index, offset in places}


def parse(name: str, text: str, *, number_min: int = EARLIEST, meaning: str = OFFSET) -> Offsets:
    """Parses an option's JSON of offsets or times; ``meaning`` is what its numbers are, for the error of one that is out of range."""
    try:
        value: Any = json.loads(text)
        found = {_partition(topic, index): number for topic, by_index in value.items() for index, number in by_index.items()}
    except (ValueError, TypeError, AttributeError):
        raise invalid(f'{name}={text} is not of the form {{"topic": {{"0": 23}}}}') from None
    for partition, number in found.items():
        if type(number) is not int or not number_min <= number <= NUMBER_MAX:
            raise invalid(f"{name}: {json.dumps(number)} of {partition} is not {meaning}")
    return found


def _partition(topic: str, index: Any) -> TopicPartition:
    number = int(index)
    if number < 0:
        raise ValueError("no partition has a number below 0")
    return TopicPartition(topic, number)


def parse_partitions(text: str) -> list[TopicPartition]:
    """Parses the option assign."""
    try:
        value: Any = json.loads(text)
        return sorted({_partition(topic, index) for topic, indexes in value.items() for index in indexes})
    except (ValueError, TypeError, AttributeError):
        raise invalid(f'assign={text} is not of the form {{"topic": [0, 1]}}') from None


@dataclass(frozen=True, slots=True)
class Bound:
    """A place to start or end at: one offset or time for all partitions, or one for each. Exactly one field is set."""

    option: str  # that said so, for error texts
    everywhere: int | None = None  # EARLIEST or LATEST
    offsets: Offsets | None = None
    time_ms: int | None = None
    times_ms: Offsets | None = None

    @property
    def is_by_time(self) -> bool:
        return self.time_ms is not None or self.times_ms is not None

    def is_given(self, partition: TopicPartition) -> bool:
        """True when the partition has an offset or a time of its own, and not the earliest or the latest one."""
        return self.is_by_time or self.of(partition) >= 0

    @property
    def _table(self) -> Offsets | None:
        return self.offsets if self.offsets is not None else self.times_ms

    def check_read(self, partitions: Iterable[TopicPartition]) -> None:
        """Raises INVALID_CONFIG for a partition of its own that is not read, of a topic that is. One table may be for several sources."""
        read = set(partitions)
        topics = {partition.topic for partition in read}
        unread = sorted(partition for partition in self._table or () if partition.topic in topics and partition not in read)
        if unread:
            read_too = ", ".join(str(partition) for partition in sorted(read) if partition.topic == unread[0].topic)
            raise invalid(f"{self.option} names {unread[0]}, which does not exist or is not read: it must name {read_too}")

    def of(self, partition: TopicPartition) -> int:
        """Returns the offset (or EARLIEST, LATEST), or the time, that is meant for the partition."""
        for constant in (self.everywhere, self.time_ms):
            if constant is not None:
                return constant
        table = self._table
        assert table is not None, "one field is set"
        if partition not in table:
            raise invalid(f"{self.option} has no offset for {partition}; it must name every partition that is read")
        return table[partition]


def starting_bound(options: Mapping[str, str], *, is_stream: bool) -> Bound:
    bound = _bound(options, "starting", "latest" if is_stream else "earliest")
    names_latest = bound.everywhere == LATEST or LATEST in (bound.offsets or {}).values()
    if names_latest and not is_stream:
        raise invalid("startingOffsets may not be latest for a batch: nothing would be read; use earliest or offsets")
    return bound


def falls_back(options: Mapping[str, str]) -> bool:
    """True when a start by time that no record reaches becomes the end."""
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in _STRATEGIES:
        raise invalid(f"startingOffsetsByTimestampStrategy={strategy} is neither error nor latest{did_you_mean(strategy, _STRATEGIES)}")
    return strategy == "latest"


def follows(options: Mapping[str, str]) -> bool:
    """True when a batch read ends where its topics do when it runs, each time that it does."""
    return not any(name in options for name in ("endingTimestamp", "endingOffsetsByTimestamp")) and (
        options.get("endingOffsets", "").strip().lower() == FOLLOW
    )


def ending_bound(options: Mapping[str, str]) -> Bound:
    bound = _bound(options, "ending", "latest")
    if bound.everywhere == EARLIEST or EARLIEST in (bound.offsets or {}).values():
        raise invalid("endingOffsets may not be earliest: nothing would be read; use latest or offsets")
    return bound


def _bound(options: Mapping[str, str], prefix: str, default: str) -> Bound:
    """Returns the first that is given: a time for all, times, offsets."""
    name = f"{prefix}Timestamp"
    if name in options:
        return Bound(name, time_ms=_time_ms(name, options[name]))
    name = f"{prefix}OffsetsByTimestamp"
    if name in options:
        return Bound(name, times_ms=parse(name, options[name], number_min=0, meaning=TIME))
    name = f"{prefix}Offsets"
    text = options.get(name, default).strip()
    if text.lower() == "earliest":
        return Bound(name, everywhere=EARLIEST)
    if text.lower() == "latest" or (prefix == "ending" and text.lower() == FOLLOW):
        return Bound(name, everywhere=LATEST)
    words = ["earliest", "latest"] if prefix == "starting" else ["latest", FOLLOW]
    if not text.startswith(("{", "[")):
        expected = f'{", ".join(words)} or JSON of the form {{"topic": {{"0": 23}}}}'
        raise invalid(f"{name}={text} is not {expected}{did_you_mean(text, words)}")
    return Bound(name, offsets=parse(name, text))


def _time_ms(name: str, text: str) -> int:
    """Returns the time: milliseconds, as Spark's connector takes them, or an ISO time, which is of UTC unless it says otherwise."""
    if re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
        return int(text)
    try:
        found = datetime.fromisoformat(text.strip())
        time_ms = int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    except ValueError:
        time_ms = -1
    if time_ms < 0:
        raise invalid(f"{name}={text} is not {TIME}{ISO}")
    return time_ms

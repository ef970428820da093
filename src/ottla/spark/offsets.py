"""Offsets of many partitions: as JSON, as options say them, and how many of them one batch may take.

The JSON is that of Spark's Kafka connector, ``{"topic": {"partition": offset}}``, in options as well as in checkpoints. In
options -2 stands for the earliest and -1 for the latest offset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.spark.options import invalid
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

Offsets = dict[TopicPartition, int]
EARLIEST: Final = EARLIEST_TIMESTAMP
LATEST: Final = LATEST_TIMESTAMP


def as_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        result.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return result


def from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {TopicPartition(topic, int(index)): int(offset) for topic, by_index in value.items() for index, offset in by_index.items()}


def parse(name: str, text: str) -> Offsets:
    """An option's JSON of offsets or times."""
    try:
        return from_json(json.loads(text))
    except (ValueError, TypeError, AttributeError):
        raise invalid(f'{name}={text} is not of the form {{"topic": {{"0": 23}}}}') from None


def parse_partitions(text: str) -> list[TopicPartition]:
    """The option assign."""
    try:
        value: Any = json.loads(text)
        return sorted({TopicPartition(topic, int(index)) for topic, indexes in value.items() for index in indexes})
    except (ValueError, TypeError, AttributeError):
        raise invalid(f'assign={text} is not of the form {{"topic": [0, 1]}}') from None


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to start or end: one offset or time for all partitions, or one for each. Exactly one field is set."""

    option: str  # that said so, for error texts
    everywhere: int | None = None  # EARLIEST or LATEST
    offsets: Offsets | None = None
    time_ms: int | None = None
    times_ms: Offsets | None = None

    @property
    def is_by_time(self) -> bool:
        return self.time_ms is not None or self.times_ms is not None

    def of(self, partition: TopicPartition) -> int:
        """The offset (or EARLIEST, LATEST), or the time, that is meant for the partition."""
        for constant in (self.everywhere, self.time_ms):
            if constant is not None:
                return constant
        table = self.offsets if self.offsets is not None else self.times_ms
        assert table is not None, "one field is set"
        if partition not in table:
            raise invalid(f"{self.option} says nothing about {partition}; it must name every partition that is read")
        return table[partition]


def starting_bound(options: Mapping[str, str], *, is_stream: bool) -> Bound:
    bound = _bound(options, "starting", "latest" if is_stream else "earliest")
    names_latest = bound.everywhere == LATEST or LATEST in (bound.offsets or {}).values()
    if names_latest and not is_stream:
        raise invalid("startingOffsets may not be latest for a batch: nothing would be read; use earliest or offsets")
    return bound


def ending_bound(options: Mapping[str, str]) -> Bound:
    bound = _bound(options, "ending", "latest")
    if bound.everywhere == EARLIEST or EARLIEST in (bound.offsets or {}).values():
        raise invalid("endingOffsets may not be earliest: nothing would be read; use latest or offsets")
    return bound


def _bound(options: Mapping[str, str], prefix: str, default: str) -> Bound:
    """The first that is given: a time for all, times, offsets."""
    name = f"{prefix}Timestamp"
    if name in options:
        if not options[name].strip().isdigit():
            raise invalid(f"{name}={options[name]} is not a time in milliseconds since 1970")
        return Bound(name, time_ms=int(options[name]))
    name = f"{prefix}OffsetsByTimestamp"
    if name in options:
        return Bound(name, times_ms=parse(name, options[name]))
    name = f"{prefix}Offsets"
    text = options.get(name, default).strip()
    if text.lower() == "earliest":
        return Bound(name, everywhere=EARLIEST)
    if text.lower() == "latest":
        return Bound(name, everywhere=LATEST)
    return Bound(name, offsets=parse(name, text))


def limited(start: Offsets, end: Offsets, rows_max: int) -> Offsets:
    """An end no more than ``rows_max`` offsets behind the start, each partition's share in proportion to what it has waiting.

    Shares are rounded down, and what is left over goes one by one to the partitions with most cut off: so a limit below the
    number of partitions moves on too.
    """
    waiting = {partition: offset - start[partition] for partition, offset in end.items() if offset > start[partition]}
    total = sum(waiting.values())
    if total <= rows_max:
        return end
    shares = {partition: rows_max * count // total for partition, count in waiting.items()}
    left = rows_max - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda partition: (-(rows_max * waiting[partition] % total), partition))
    for partition in by_remainder[:left]:
        shares[partition] += 1
    return {partition: start[partition] + shares[partition] if partition in shares else offset for partition, offset in end.items()}

"""Which task reads what: ranges of offsets, packed into few tasks.

A Python task costs tens of milliseconds whatever it reads, so a task for each topic-partition would let many small partitions
cost more than their records. Ranges are packed into about as many tasks as there are cores, and fewer when there are few
records and few bytes; a range is cut only when an option asks for smaller ones. How many bytes an offset has on average is what the
first batch of its range says.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pyspark.sql.datasource import InputPartition

from ottla.spark.offsets import Offsets, TopicIds
from ottla.spark.options import positive
from ottla.types import TopicPartition

TASKS_VARIABLE: Final = "OTTLA_SPARK_TASKS"
"""How many tasks run at once, set by ``session``: a data source's own process has no SparkContext to ask."""
FILTERS_VARIABLE: Final = "OTTLA_SPARK_FILTERS"
"""Whether Spark gives filters to readers, set by ``session``: a data source's own process has no configuration to ask."""
ROWS_PER_TASK_MIN: Final = 10_000
BYTES_PER_TASK_MIN: Final = 4 << 20
Weights = Mapping[TopicPartition, float]
"""How many bytes an offset of the partition has; of one that is left out nothing is known."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``start <= offset < end`` of one partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


NO_IDS: Final[TopicIds] = MappingProxyType({})


class OffsetRanges(InputPartition):
    """The offset ranges that one task reads. They are of the topics with these ids; of one without an id, whatever has its name."""

    def __init__(self, ranges: tuple[OffsetRange, ...], topic_ids: TopicIds = NO_IDS) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.topic_ids = dict(topic_ids)


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Returns what is between, without partitions that have nothing."""
    return [OffsetRange(partition, start[partition], end[partition]) for partition in sorted(end) if end[partition] > start[partition]]


def planned(
    ranges: list[OffsetRange],
    options: Mapping[str, str],
    weigh: Callable[[Offsets], Weights] | None = None,
    topic_ids: TopicIds = NO_IDS,
) -> list[OffsetRanges]:
    """Divides the ranges into tasks, by the options and the machine. ``weigh`` is asked where rows alone would leave a core idle."""
    wanted = positive(options, "minPartitions") or 0
    rows_max = positive(options, "maxRecordsPerPartition")
    pieces = ranges if rows_max is None else [piece for found in ranges for piece in _cut(found, -(-found.size // rows_max))]
    total = sum(piece.size for piece in pieces)
    if wanted > len(pieces):
        pieces = [piece for found in pieces for piece in _cut(found, max(1, round(wanted * found.size / total)))]
    task_count = max(wanted, -(-total // ROWS_PER_TASK_MIN))
    task_count_max = max(wanted, positive(options, "defaultTasks") or task_count_default())
    weights: Weights = {}
    if weigh is not None and task_count < min(task_count_max, len(pieces)):
        weights = weigh({piece.partition: piece.start for piece in reversed(pieces)})
        task_count = max(task_count, round(sum(piece.size * weights.get(piece.partition, 0) for piece in pieces) / BYTES_PER_TASK_MIN))
    groups = packed(pieces, min(task_count, task_count_max), rows_max=rows_max, weights=weights)
    return [OffsetRanges(tuple(group), topic_ids) for group in groups]


def task_count_default() -> int:
    text = os.environ.get(TASKS_VARIABLE, "")
    return int(text) if text.isdigit() and int(text) > 0 else os.cpu_count() or 1


def packed(
    ranges: list[OffsetRange], task_count: int, *, rows_max: int | None = None, weights: Weights | None = None
) -> list[list[OffsetRange]]:
    """Packs groups of nearly equal size, ``task_count`` at most unless ``rows_max`` would be passed: largest first, into the emptiest."""

    def weight_of(piece: OffsetRange) -> float:
        return piece.size / ROWS_PER_TASK_MIN + piece.size * (weights or {}).get(piece.partition, 0) / BYTES_PER_TASK_MIN

    groups: list[list[OffsetRange]] = []
    sizes: list[int] = []
    loads: list[float] = []
    for piece in sorted(ranges, key=lambda piece: (-weight_of(piece), piece.partition, piece.start)):
        emptiest = min(range(len(groups)), key=loads.__getitem__, default=0)
        if len(groups) < task_count or (rows_max is not None and sizes[emptiest] + piece.size > rows_max):
            groups.append([piece])
            sizes.append(piece.size)
            loads.append(weight_of(piece))
        else:
            groups[emptiest].append(piece)
            sizes[emptiest] += piece.size
            loads[emptiest] += weight_of(piece)
    return groups


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Cuts the range into ``count`` pieces whose sizes differ by one at most; never more pieces than offsets."""
    count = min(count, whole.size)
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [OffsetRange(whole.partition, low, high) for low, high in itertools.pairwise(edges)]

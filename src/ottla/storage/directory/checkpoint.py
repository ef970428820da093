"""Kafka's checkpoint files: one offset for each partition of the log directory, as text.

Version, number of lines, then ``topic partition offset`` a line. Written atomically: a reader finds one complete state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.errors import DecodeError
from ottla.ports import Disk
from ottla.types import TopicPartition

RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET: Final = "log-start-offset-checkpoint"
CLEANER_OFFSET: Final = "cleaner-offset-checkpoint"  # below it, a log was compacted
HIGH_WATERMARK: Final = "replication-offset-checkpoint"  # below it, the log is committed; of partitions with several replicas
_VERSION: Final = 0


def to_text(offsets: Mapping[TopicPartition, int]) -> str:
    lines = [f"{key.topic} {key.partition} {offset}" for key, offset in sorted(offsets.items())]
    return "\n".join([str(_VERSION), str(len(lines)), *lines]) + "\n"


def from_text(text: str) -> dict[TopicPartition, int]:
    """Parses a checkpoint. DecodeError when the text is not a complete one."""
    lines = text.split("\n")
    offsets: dict[TopicPartition, int] = {}
    try:
        version, count = int(lines[0]), int(lines[1])
        for line in lines[2:-1]:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
    except (ValueError, IndexError):
        raise DecodeError("a checkpoint is version, count and lines of topic, partition and offset") from None
    if version != _VERSION or lines[-1] != "" or not count == len(lines) - 3 == len(offsets):
        raise DecodeError(f"a checkpoint of version {version} has {len(lines) - 3} of {count} lines")
    return offsets


async def read_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Returns the offsets; none when the file is absent or damaged, which only makes recovery longer."""
    try:
        return from_text((await disk.read_file(path)).decode())
    except (FileNotFoundError, DecodeError, UnicodeDecodeError):
        return {}


async def write_checkpoint(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    await disk.write_file_atomic(path, to_text(offsets).encode())

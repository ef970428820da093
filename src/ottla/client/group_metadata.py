"""What a transaction commits for a group: its offsets, and the place of the consumer in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.types import TopicPartition

NO_MEMBER: Final = "this consumer is not a member of its group at present, and another member may own its partitions; poll to rejoin"


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The coordinator refuses offsets of a member that is no longer one, where they come with its generation, or its epoch (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """The offset that is to be read next, with a text of the application's: at most offset.metadata.max.bytes (4096) of it."""

    offset: int
    metadata: str = ""


Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]

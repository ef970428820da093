"""What a transaction commits for a group: its offsets, and the place of the consumer in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.client.buffer import ConsumerRecord
from ottla.client.other_keywords import with_hints
from ottla.client.positions import P, partition_of
from ottla.client.wrong_calls import check_offsets
from ottla.errors import ErrorCode, KafkaError
from ottla.types import NO_EPOCH, TopicPartition

log: Final = logging.getLogger("ottla.client")  # as in watch.py
_NO_MEMBER: Final = "this consumer is not a member of its group at present, and another member may own its partitions"
_REJOIN: Final = "poll to rejoin"


def no_member(why_out: str) -> KafkaError:
    """Returns the error of a call that needs a member. ``why_out`` is why this one left and what to do, or empty."""
    return KafkaError(ErrorCode.ILLEGAL_GENERATION, f"{_NO_MEMBER}; {why_out or _REJOIN}")


def out_for_another(group_instance_id: str | None) -> str:
    """Returns why a static member is out whose id another process has taken, and what to do."""
    return f"another process has joined with group_instance_id={group_instance_id!r}; this one cannot while that runs: end one of the two"


def out_for_silence(group_id: str, interval_ms: int) -> str:
    """Returns why a member leaves whose application does not poll, and warns of it: other members get its partitions."""
    why = f"max_poll_interval_ms={interval_ms} passed without a poll"
    log.warning("a consumer has left group %r: %s; raise that, or poll for fewer records (max_poll_records)", group_id, why)
    return f"{_REJOIN}; it left the group, for {why}"


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A consumer's place in its group. With it the coordinator refuses offsets of a consumer that is no longer a member (KIP-447)."""

    group_id: str
    """The group."""
    generation_id: int = -1
    """The group's generation that the member belongs to, or its epoch in a group of the consumer protocol; -1 for no member."""
    member_id: str = ""
    """The member's name in the group; empty for no member."""
    group_instance_id: str | None = None
    """The name of a static member; None for others."""


@with_hints
@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """The offset that is to be read next, with a text of the application's: at most offset.metadata.max.bytes (4096) of it."""

    offset: int
    """The offset that is to be read next: that of the last record that was processed, and 1."""
    metadata: str = ""
    """A text of the application's; brokers refuse one above offset.metadata.max.bytes (4,096) with OFFSET_METADATA_TOO_LARGE."""


class Place(NamedTuple):
    """A place in a partition, as a commit stores it: the next offset, the leader epoch of the record before it, and a text."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


Offsets = Mapping[P, int | OffsetAndMetadata] | ConsumerRecord[Any, Any]
"""What a transaction commits for a group: by partition the offset that is to be read next, or a record: the offset after it."""


def places_of(offsets: Offsets[P]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets as a transaction commits them. TypeError for what is none."""
    if isinstance(offsets, ConsumerRecord):
        return {TopicPartition(offsets.topic, offsets.partition): OffsetAndMetadata(offsets.offset + 1)}
    check_offsets(offsets, "send_offsets_to_transaction", OffsetAndMetadata)
    return {
        partition_of(partition): given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        for partition, given in offsets.items()
    }

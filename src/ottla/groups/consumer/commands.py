"""What is asked of the coordinator about consumer groups, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ottla.groups.consumer.member import Partitions
from ottla.machine import Command
from ottla.metadata.image import ClusterImage


class ConsumerHeartbeat(Command["ConsumerHeartbeatResult"], msgspec.Struct, frozen=True):
    """``member_epoch`` is 0 to join, -1 to leave, -2 to leave for a while. What is None (-1 of the timeout) is as it was.

    ``image`` is the newest one that the broker has: topics, and the group's configuration.
    ``assignment_interval_ms`` is what the broker is configured with at the moment.
    """

    token: int
    group_id: str
    member_id: str
    member_epoch: int
    image: ClusterImage
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    assignment_interval_ms: int | None = None


class ConsumerHeartbeatResult(msgspec.Struct, frozen=True):
    """``assignment`` is None when it is as the member knows it. ``to_resolve`` are expressions to match (``ResolveRegexes``)."""

    error_code: int
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    to_resolve: tuple[str, ...] = ()


class ResolveRegexes(Command[None], msgspec.Struct, frozen=True):
    """Regular expressions of the group were matched against the topics of ``image``, those that their members may know of."""

    token: int
    group_id: str
    resolved: Mapping[str, frozenset[str]]
    image: ClusterImage


class DescribeConsumerGroup(Command["DescribedConsumerGroup"], msgspec.Struct, frozen=True):
    token: int
    group_id: str


class DescribedConsumer(msgspec.Struct, frozen=True):
    """``assigned`` is what it has, ``target`` what it is to have."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    assigned: Partitions
    target: Partitions
    is_classic: bool


class DescribedConsumerGroup(msgspec.Struct, frozen=True):
    """GROUP_ID_NOT_FOUND for a group of another kind, too."""

    error_code: int
    error_message: str | None = None
    state: str = ""
    epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


class ExpireConsumer(Command[None], msgspec.Struct, frozen=True):
    """No heartbeat for a session timeout."""

    group_id: str
    member_id: str


class ExpireStep(Command[None], msgspec.Struct, frozen=True):
    """A classic member should have joined, or synced, by now."""

    group_id: str
    member_id: str


class ExpireRevocation(Command[None], msgspec.Struct, frozen=True):
    """The member should have given up its partitions, and have left that epoch, by now."""

    group_id: str
    member_id: str
    member_epoch: int

"""One member of a classic group, as a value: a change makes a new one."""

from __future__ import annotations

from msgspec import Struct

from ottla.errors import DecodeError
from ottla.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.compiler import decode_from
from ottla.wire.schema import DECLARATIONS

CONSUMER_PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_BYTES_MAX = 1 << 18
"""Decoded while others wait: even topics with the shortest names take 30 ms. A group's record has room for four of them."""
_NEWEST = DECLARATIONS[ConsumerProtocolSubscription].versions[1]
_VERSION_BYTES = 2


class Member(Struct, frozen=True):
    """``join_token`` and ``sync_token`` name the parked request that waits for the rebalance; never both at once."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # in order of preference
    assignment: bytes = b""
    join_token: int | None = None
    sync_token: int | None = None
    is_new: bool = False  # its first join has not been answered, so it cannot send heartbeats yet
    is_sync_due: bool = False  # it knows the generation, and has not asked for its assignment

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Its request is parked here, so that it cannot send heartbeats."""
        return self.join_token is not None or self.sync_token is not None

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """Returns what it sent for that protocol, which it must support."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"the chosen protocol {protocol_name!r} is supported by every member, also by {self.member_id!r}")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Returns the topics of a consumer's subscription; None when the bytes are of another kind, or too many to look into.

    Like Kafka, it reads what version 0 has, the start of each version: some clients say 1 and write 0.
    """
    subscription = decoded_subscription(metadata, highest=0)
    return None if subscription is None else frozenset(subscription.topics)


def decoded_subscription(metadata: bytes, highest: int = _NEWEST) -> ConsumerProtocolSubscription | None:
    """Returns the subscription, read as the highest version at most; None as of ``subscribed_topics``."""
    if not _VERSION_BYTES <= len(metadata) <= SUBSCRIPTION_BYTES_MAX:
        return None
    version = int.from_bytes(metadata[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        return None
    try:  # newer versions only append fields
        subscription, _ = decode_from(ConsumerProtocolSubscription, min(version, highest), metadata, _VERSION_BYTES)
    except DecodeError:
        return None
    return subscription

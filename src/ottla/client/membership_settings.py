"""A consumer's settings of its membership in a group, in either protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.assignors import ASSIGNORS
from ottla.client.settings import Settings, choice, choices, integer, key_of, text
from ottla.errors import ErrorCode, KafkaError

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
_OF_CLASSIC: Final = {
    "session_timeout_ms": "the group has it: group.consumer.session.timeout.ms of brokers, consumer.session.timeout.ms of a group",
    "heartbeat_interval_ms": "the group has it: group.consumer.heartbeat.interval.ms of brokers, consumer.heartbeat.interval.ms of a group",
    "partition_assignment_strategy": "the coordinator divides the partitions; group_remote_assignor chooses how",
}


@dataclass(frozen=True)
class MembershipSettings(Settings):
    """Kafka's consumer configuration, by its names."""

    group_protocol: str = choice(CLASSIC, (CLASSIC, CONSUMER))
    group_remote_assignor: str | None = text(None)
    session_timeout_ms: int = integer(45_000, low=1)
    heartbeat_interval_ms: int = integer(3000, low=1)
    max_poll_interval_ms: int = integer(300_000, low=1)
    group_instance_id: str | None = text(None)
    partition_assignment_strategy: Sequence[str] = choices(("range", "cooperative-sticky"), ASSIGNORS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            text = f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be below session.timeout.ms={self.session_timeout_ms}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Raises INVALID_CONFIG for a setting of the other protocol, which would have no effect."""
        if self.group_protocol == CLASSIC:
            if given.get("group_remote_assignor") is not None:
                text = "group.remote.assignor needs group_protocol='consumer'; in a classic group set partition_assignment_strategy"
                raise KafkaError(ErrorCode.INVALID_CONFIG, text)
            return
        for name, reason in _OF_CLASSIC.items():
            if name in given:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key_of(name)} has no effect with group.protocol=consumer: {reason}")

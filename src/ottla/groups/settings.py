"""What the broker's configuration says about groups."""

from __future__ import annotations

from msgspec import Struct, field


class ConsumerGroupSettings(Struct, frozen=True):
    """The settings of the consumer protocol. A group's own configuration counts within the bounds that are given here."""

    session_timeout_ms: int = 45_000
    session_timeout_ms_min: int = 45_000
    session_timeout_ms_max: int = 60_000
    heartbeat_interval_ms: int = 5_000
    heartbeat_interval_ms_min: int = 5_000
    heartbeat_interval_ms_max: int = 15_000
    assignment_interval_ms: int = 1_000
    assignment_interval_ms_min: int = 0
    assignment_interval_ms_max: int = 15_000
    group_max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default
    regex_refresh_interval_ms: int = 600_000
    may_upgrade: bool = True  # a classic group that has members becomes a consumer group (group.consumer.migration.policy)
    may_downgrade: bool = True  # and a consumer group that has classic members alone a classic group


class GroupSettings(Struct, frozen=True):
    """Defaults are Kafka's."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    # A member that does not yet know its id cannot send heartbeats while its JoinGroup is parked. This bound keeps
    # clients that gave up waiting, and came back under another id, from piling up.
    new_member_join_timeout_ms: int = 300_000
    consumer: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)

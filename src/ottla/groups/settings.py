"""What the broker's configuration says about groups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
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

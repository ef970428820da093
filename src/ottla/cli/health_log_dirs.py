"""What the log directories of a cluster's brokers say about room and about replicas that lag."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.client.admin import LogDir
    from ottla.types import TopicPartition

_ALMOST_FULL: Final = (
    "log directory {} of broker {} has {:,} bytes left; once a write finds no room there, nothing more is written until there are 4 MB"
)


def without_room(log_dirs: Iterable[tuple[int, LogDir]]) -> dict[TopicPartition, set[int]]:
    """Returns the brokers that have a replica of the partition in a full directory."""
    found: dict[TopicPartition, set[int]] = {}
    for broker, log_dir in log_dirs:
        for replica in log_dir.replicas if log_dir.is_full else ():
            found.setdefault(replica.partition, set()).add(broker)
    return found


def lag_of(log_dirs: Collection[LogDir]) -> int:
    """Returns how many records the replicas there lack of what their leaders have committed; not those that move there."""
    return sum(replica.offset_lag for log_dir in log_dirs for replica in log_dir.replicas if not replica.is_future)


def lags_of(log_dirs: Iterable[tuple[int, LogDir]]) -> dict[int, int]:
    """Returns the lag of each broker."""
    lags: dict[int, int] = {}
    for broker, log_dir in log_dirs:
        lags[broker] = lags.get(broker, 0) + lag_of([log_dir])
    return lags


def room_notes(log_dirs: Iterable[tuple[int, LogDir]]) -> list[str]:
    """Returns which directories are almost full."""
    return [_ALMOST_FULL.format(found.path, broker, found.usable_bytes) for broker, found in log_dirs if found.is_almost_full]

"""Log directories as commands show them: room, what fills them, and replicas that lag."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.cli.output import print_rows

if TYPE_CHECKING:
    from ottla.client.admin import LogDir
    from ottla.types import TopicPartition

LARGEST_MAX: Final = 3
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


def named_only(log_dirs: Iterable[LogDir], paths: Collection[str]) -> list[LogDir]:
    """Returns the directories with these paths; all where there are none."""
    return [log_dir for log_dir in log_dirs if not paths or log_dir.path in paths]


def largest_of(log_dirs: Iterable[tuple[int, LogDir]]) -> dict[str, str]:
    """Returns what fills each full directory, as text: its largest replicas. The keys have the broker's id before the path."""
    found = {}
    for broker, log_dir in log_dirs:
        if log_dir.is_full and log_dir.replicas:
            largest = sorted(log_dir.replicas, key=lambda replica: (-replica.size_bytes, replica.partition))[:LARGEST_MAX]
            names = (f"{each.partition.topic}-{each.partition.partition} has {each.size_bytes:,} bytes" for each in largest)
            found[place_of(broker, log_dir.path)] = ", ".join(names)
    return found


def place_of(broker: int, path: str) -> str:
    return f"{broker}:{path}"


def lag_of(log_dirs: Iterable[LogDir]) -> int | None:
    """Returns how many records the replicas there lack of what their leaders have committed; not those that move there.

    None where the broker does not know it of each.
    """
    lags = [replica.offset_lag for log_dir in log_dirs for replica in log_dir.replicas if not replica.is_future]
    return None if any(lag < 0 for lag in lags) else sum(lags)


def lags_of(log_dirs: Iterable[tuple[int, LogDir]]) -> dict[int, int]:
    """Returns the lag of each broker that knows it."""
    found = list(log_dirs)
    lags = {broker: lag_of(log_dir for owner, log_dir in found if owner == broker) for broker, _ in found}
    return {broker: lag for broker, lag in lags.items() if lag is not None}


def room_notes(log_dirs: Iterable[tuple[int, LogDir]]) -> list[str]:
    """Returns which directories are almost full."""
    return [_ALMOST_FULL.format(found.path, broker, found.usable_bytes) for broker, found in log_dirs if found.is_almost_full]


def print_replicas(output: str, found: Mapping[int, Iterable[LogDir]]) -> None:
    """Prints a row for each replica of these brokers, the largest first."""
    rows = [
        (
            broker,
            replica.partition.topic,
            replica.partition.partition,
            replica.size_bytes,
            None if replica.offset_lag < 0 else replica.offset_lag,
            "moves there" if replica.is_future else "",
            log_dir.path,
        )
        for broker, log_dirs in found.items()
        for log_dir in log_dirs
        for replica in log_dir.replicas
    ]
    rows.sort(key=lambda row: (-row[3], row[:3]))
    print_rows(output, "broker logdirs", ("broker", "topic", "partition", "bytes", "lag", "state", "directory"), rows)

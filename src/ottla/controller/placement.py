"""Which brokers hold the replicas of a new topic.

The rule: sort the brokers; partition i leads at broker (start + i) mod n, replica j is j places further on, shifted by
one more each time the partitions have gone round, so that the followers of one broker's partitions spread over all
others. With racks, the brokers are first interleaved rack by rack, and a replica whose rack is taken is passed over while
another rack is free. ``start`` and ``shift`` are random in a cluster and 0 in the textbook rule.

Brokers that do not serve get replicas only where those that serve are too few, always after them, and never lead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.errors import ErrorCode, KafkaError

_NONE: Final[Mapping[int, str | None]] = {}


def assign_replicas(
    brokers: Mapping[int, str | None],
    *,
    fenced: Mapping[int, str | None] = _NONE,
    partition_count: int,
    replication_factor: int,
    start: int = 0,
    shift: int = 0,
    first_partition: int = 0,
) -> list[list[int]]:
    """Returns replicas of each partition, the preferred leader first. ``brokers`` maps the serving ones to racks, ``fenced`` the others.

    INVALID_PARTITIONS below one partition, INVALID_REPLICATION_FACTOR below one, above the brokers there are, or when none serves.
    """
    if partition_count < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions: at least 1 is needed")
    if replication_factor < 1:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {replication_factor}: at least 1 is needed")
    if replication_factor > len(brokers) + len(fenced):
        text = f"replication factor {replication_factor} is larger than the {len(brokers) + len(fenced)} brokers that are registered"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if not brokers:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "all brokers are fenced or stopping; none could lead a partition")
    ring, waiting = _interleave(brokers), _interleave(fenced)
    serving_factor = min(replication_factor, len(ring))
    racks = len(set(brokers.values()))
    rows: dict[tuple[int, int], list[int]] = {}  # they repeat themselves
    result = []
    for index in range(first_partition, first_partition + partition_count):
        place = (start + index) % len(ring), (shift + index // len(ring)) % max(1, len(ring) - 1)
        if place not in rows:
            rows[place] = _replicas(ring, brokers, racks, *place, serving_factor)
        missing = replication_factor - serving_factor
        result.append(rows[place] + [waiting[(start + index + turn) % len(waiting)] for turn in range(missing)])
    return result


def _interleave(brokers: Mapping[int, str | None]) -> list[int]:
    """Returns brokers by id; where racks are known, one of each rack in turn."""
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(brokers[broker], []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack, key=lambda rack: (rack is None, rack or ""))]
    ring: list[int] = []
    for row in range(max((len(column) for column in columns), default=0)):
        ring.extend(column[row] for column in columns if row < len(column))
    return ring


def _replicas(ring: Sequence[int], racks_of: Mapping[int, str | None], racks: int, leader: int, shift: int, factor: int) -> list[int]:
    order = [ring[leader]]
    followers = [ring[(leader + 1 + place) % len(ring)] for place in range(len(ring) - 1)]
    followers = followers[shift:] + followers[:shift]
    used = {racks_of[ring[leader]]}
    while len(order) < factor:
        fresh = [broker for broker in followers if racks_of[broker] not in used] if len(used) < racks else followers
        chosen = fresh[0]
        order.append(chosen)
        followers.remove(chosen)
        used.add(racks_of[chosen])
    return order

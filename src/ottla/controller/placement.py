"""Which brokers hold the replicas of a new topic.

The rule: sort the brokers; partition i leads at broker (start + i) mod n, replica j lies j places further on, shifted by
one more each time the partitions have gone round, so that the followers of one broker's partitions spread over all
others. With racks, the brokers are first interleaved rack by rack, and a replica whose rack is taken is passed over while
another rack is free. ``start`` and ``shift`` are random in a cluster and 0 in the textbook rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.errors import ErrorCode, KafkaError


def assign_replicas(
    brokers: Mapping[int, str | None],
    *,
    partition_count: int,
    replication_factor: int,
    start: int = 0,
    shift: int = 0,
    first_partition: int = 0,
) -> list[list[int]]:
    """Replicas of each partition, the preferred leader first. ``brokers`` maps ids to racks.

    INVALID_PARTITIONS below one partition, INVALID_REPLICATION_FACTOR below one or above the brokers there are.
    """
    if partition_count < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions: at least 1 is needed")
    if replication_factor < 1:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {replication_factor}: at least 1 is needed")
    if replication_factor > len(brokers):
        text = f"replication factor {replication_factor} is larger than the {len(brokers)} brokers that are up"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    ring = _interleave(brokers)
    racks = len(set(brokers.values()))
    rows: dict[tuple[int, int], list[int]] = {}  # they repeat themselves
    result = []
    for index in range(first_partition, first_partition + partition_count):
        place = (start + index) % len(ring), (shift + index // len(ring)) % max(1, len(ring) - 1)
        if place not in rows:
            rows[place] = _replicas(ring, brokers, racks, *place, replication_factor)
        result.append(rows[place].copy())
    return result


def _interleave(brokers: Mapping[int, str | None]) -> list[int]:
    """Brokers by id; where racks are known, one of each rack in turn."""
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

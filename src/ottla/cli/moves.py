"""``ottla partition moves``: what is being moved, how much of it is still to be copied, and what holds it back.

The leader's log has the size; what an added replica does not have yet is left. A replica in sync lacks nothing, whatever its size: the
cleaner may have shortened one log and not yet the other. Each leader and each broker that gets a replica is asked once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.output import bootstrap_option, complain, format_option, print_rows
from ottla.cli.throttles import UNLIMITED
from ottla.cli.unanswered import Unanswered
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin.descriptions import Reassignment
    from ottla.client.cluster_metadata import PartitionMetadata, TopicMetadata
    from ottla.sync import Admin

COLUMNS: Final = ("topic", "partition", "replicas", "adding", "removing", "size_bytes", "left_bytes", "percent", "throttle_rate")
_REFUSED: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
Sizes = Mapping[int, Mapping[TopicPartition, int]]


@click.command()
@bootstrap_option
@format_option
def moves(bootstrap: str, output: str) -> None:
    """List partitions whose replicas are moved, and what is left.

    SIZE-BYTES is what all added replicas will have, LEFT-BYTES what they lack, and THROTTLE-RATE the bytes a second of the throttle that
    holds for the move, of the leader or of an added replica.
    """
    from ottla.sync import Admin

    unanswered = Unanswered()
    with Admin(bootstrap, **client_settings()) as admin:
        found = admin.list_partition_reassignments()
        rows = _rows(admin, found, unanswered) if found else []
    print_rows(output, "partition moves", COLUMNS, rows)
    unanswered.end()


def _rows(admin: Admin, found: Mapping[TopicPartition, Reassignment], unanswered: Unanswered) -> list[tuple[object, ...]]:
    topics = admin.list_topics()
    leaders = {key: partition.leader for key in found if (partition := _partition(topics, key)) is not None}
    asked = {leader for leader in leaders.values() if leader >= 0} | {node for move in found.values() for node in move.adding}
    sizes: dict[int, dict[TopicPartition, int]] = {}
    for node in sorted(asked):
        with unanswered.of(node, f"the sizes of replicas of broker {node}"):
            directories = admin.describe_log_dirs([node])[node]
            sizes[node] = {has.partition: has.size_bytes for one in directories for has in one.replicas if not has.is_future}
    throttles = _throttles(admin, found, leaders, unanswered)
    rows: list[tuple[object, ...]] = []
    for key, move in sorted(found.items()):
        partition = _partition(topics, key)
        in_sync = [] if partition is None else partition.in_sync
        size, left = _progress(key, leaders.get(key, -1), [node for node in move.adding if node not in in_sync], len(move.adding), sizes)
        percent = None if not size or left is None else 100 * (size - left) // size
        lists = list(move.replicas), list(move.adding), list(move.removing)
        rows.append((key.topic, key.partition, *lists, size, left, percent, throttles.get(key)))
    return rows


def _partition(topics: Mapping[str, TopicMetadata], key: TopicPartition) -> PartitionMetadata | None:
    return topics[key.topic].partitions.get(key.partition) if key.topic in topics else None


def _progress(key: TopicPartition, leader: int, lacking: list[int], count: int, sizes: Sizes) -> tuple[int | None, int | None]:
    """Returns the size of all ``count`` added replicas, and what those that are ``lacking`` lack; None where a broker did not say."""
    if leader not in sizes or key not in sizes[leader]:
        return None, None
    of_one = sizes[leader][key]
    if any(node not in sizes for node in lacking):
        return of_one * count, None
    return of_one * count, sum(max(0, of_one - sizes[node].get(key, 0)) for node in lacking)


def _throttles(
    admin: Admin, found: Mapping[TopicPartition, Reassignment], leaders: Mapping[TopicPartition, int], unanswered: Unanswered
) -> dict[TopicPartition, int]:
    """Returns the lowest rate that holds for each move; nothing where none does, or it may not be seen."""
    from ottla.sync import Broker

    throttled: dict[TopicPartition, int] = {}
    names = sorted({key.topic for key in found})
    rates: dict[tuple[str, int], int] = {}
    try:
        for side in ("leader", "follower"):
            listed = admin.describe_config_of_topics(names, f"{side}.replication.throttled.replicas")
            for key, move in found.items():
                for node in [leaders.get(key, -1)] if side == "leader" else move.adding:
                    if node < 0 or not _lists(listed.get(key.topic) or "", key.partition, node):
                        continue
                    if (side, node) not in rates:
                        rates[side, node] = UNLIMITED
                        with unanswered.of(node, f"the throttles of broker {node}"):
                            entry = admin.describe_configs(Broker(node)).get(f"{side}.replication.throttled.rate")
                            rates[side, node] = int((entry and entry.value) or UNLIMITED)
                    throttled[key] = min(throttled.get(key, UNLIMITED), rates[side, node])
    except KafkaError as error:
        if error.code not in _REFUSED:
            raise
        complain(f"warning: throttles are not shown: {error}")
    return {key: rate for key, rate in throttled.items() if rate < UNLIMITED}


def _lists(text: str, index: int, node: int) -> bool:
    items = [item.strip() for item in text.split(",")]
    return "*" in items or f"{index}:{node}" in items

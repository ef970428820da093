"""The replicas that partitions had before ``ottla partition reassign``, of what it has printed as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ottla.cli.output import complain
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Reassignment
    from ottla.client.cluster_metadata import TopicMetadata


def undone(
    path: Path, there: Mapping[str, TopicMetadata], moving: Mapping[TopicPartition, Reassignment]
) -> dict[TopicPartition, Sequence[int]]:
    """Returns the replicas of before, of partitions that have others now or are being moved; says which are left out.

    A partition that has neither its replicas of before nor those that it was given was moved again since: it is left as it is.
    """
    replicas: dict[TopicPartition, Sequence[int]] = {}
    for item in _items(path):
        key = TopicPartition(item["topic"], item["partition"])
        if item.get("result") == "failed" or item["replicas"] is None:
            continue
        found = there[key.topic].partitions.get(key.partition) if key.topic in there else None
        if found is None:
            complain(f"{key.topic}:{key.partition} is left out: it is no longer there")
        elif key in moving or list(found.replicas) == item["replicas_afterwards"]:
            replicas[key] = item["replicas"]
        elif list(found.replicas) != item["replicas"]:
            ids = ",".join(map(str, found.replicas))
            complain(f"{key.topic}:{key.partition} is left out: it has replicas {ids}, so that it was moved again since")
    return replicas


def _items(path: Path) -> Sequence[dict[str, Any]]:
    try:
        items: Sequence[dict[str, Any]] = msgspec.json.decode(path.read_bytes())["items"]
        if all({"topic", "partition", "replicas", "replicas_afterwards"} <= set(item) for item in items):
            return items
    except (msgspec.DecodeError, KeyError, TypeError):
        pass
    raise click.UsageError(f"{path} is not what `ottla partition reassign ... --yes --json` prints")

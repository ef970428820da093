"""What each page shows, as values: a template makes HTML of them, and their JSON twin is they themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.aio import Admin
from ottla.client.admin import PartitionDescription
from ottla.console import reading
from ottla.console.probe import Dot, Probe
from ottla.console.watching import Event, Watcher
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

PARTITIONS_SHOWN_MAX: Final = 200
COUNT_MAX: Final = 500
Values = dict[str, Any]


class Pages:
    """The pages over one cluster."""

    def __init__(
        self, bootstrap: str, settings: Mapping[str, Any], admin: Admin, watcher: Watcher, probe: Probe, *, can_kill: bool
    ) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._admin = admin
        self._watcher = watcher
        self._probe = probe
        self._can_kill = can_kill

    def cluster(self) -> Values:
        """Returns the cluster as it was last seen."""
        seen = self._watcher.seen
        nodes = [
            {
                "node_id": node.node_id,
                "address": node.address,
                "rack": node.rack,
                "broker": node.broker,
                "process": node.process,
                "leads": node.leads,
                "is_controller": node.is_controller,
            }
            for node in seen.nodes.values()
        ]
        partitions = [partition_values(key, found) for key, found in list(seen.partitions.items())[:PARTITIONS_SHOWN_MAX]]
        return {
            "cluster_id": seen.cluster_id,
            "controller": seen.controller,
            "problem": seen.problem,
            "can_kill": self._can_kill,
            "nodes": nodes,
            "partitions": partitions,
            "partition_count": len(seen.partitions),
        }

    def news(self, event_count: int, dot_count: int) -> tuple[Values, int, int]:
        """Returns the cluster, the events and the probe's dots after those counts, and both counts as they are now."""
        watcher, probe = self._watcher, self._probe
        events = list(watcher.events)[-(watcher.event_count - event_count) :] if watcher.event_count > event_count else []
        dots = list(probe.dots)[-(probe.dot_count - dot_count) :] if probe.dot_count > dot_count else []
        values = self.cluster() | {"events": list(map(event_values, events)), "dots": list(map(dot_values, dots))}
        return values, watcher.event_count, probe.dot_count

    async def topics(self) -> Values:
        topics = await self._admin.list_topics()
        worst = reading.worst_lags(await reading.all_lags(self._admin))
        rows = []
        for name, topic in sorted(topics.items()):
            lag = worst.get(name)
            replicas = max((len(found.replicas) for found in topic.partitions.values()), default=0)
            rows.append(
                {
                    "name": name,
                    "partitions": len(topic.partitions),
                    "replicas": replicas,
                    "is_internal": topic.is_internal,
                    "worst_lag": None if lag is None else lag[0],
                    "worst_group": None if lag is None else lag[1],
                }
            )
        return {"topics": rows}

    async def topic(self, name: str) -> Values:
        """Describes the topic. KafkaError when it does not exist."""
        topic = await self._admin.describe_topic(name)
        keys = [TopicPartition(name, index) for index in sorted(topic.partitions)]
        starts = await self._admin.offsets_for_times(dict.fromkeys(keys, EARLIEST_TIMESTAMP))
        ends = await self._admin.offsets_for_times(dict.fromkeys(keys, LATEST_TIMESTAMP))
        known = {key: found for key, found in (await self._admin.describe_partitions()).items() if key.topic == name}
        rows = [partition_values(key, known[key]) | {"start": starts[key].offset, "end": ends[key].offset} for key in keys if key in known]
        return {"name": name, "partitions": rows}

    async def messages(self, name: str, *, partition: int | None, count: int, search: str, form: str) -> Values:
        """Returns the newest records of the topic that contain the text. KafkaError when the topic does not exist."""
        count = max(1, min(count, COUNT_MAX))
        found = await reading.messages(self._bootstrap, self._settings, name, partition=partition, count=count, search=search, form=form)
        rows = [
            {
                "partition": one.partition,
                "offset": one.offset,
                "time": one.time,
                "key": one.key,
                "value": one.value,
                "headers": [list(pair) for pair in one.headers],
                "is_cut": one.is_cut,
            }
            for one in found.messages
        ]
        asked = {"name": name, "partition": partition, "count": count, "search": search, "form": form}
        return asked | {"messages": rows, "looked_at": found.looked_at, "is_complete": found.is_complete}

    async def groups(self) -> Values:
        listed = await self._admin.list_groups()
        found = await reading.all_lags(self._admin)
        rows = [
            {
                "group_id": one.group_id,
                "state": one.state,
                "type": one.type,
                "lag": sum(part.lag for part in found.get(one.group_id, [])),
            }
            for one in sorted(listed, key=lambda one: one.group_id)
        ]
        return {"groups": rows}

    async def group(self, group_id: str) -> Values:
        """Describes the group. KafkaError when it does not exist."""
        described = await self._admin.describe_group(group_id)
        rows = [
            {"topic": one.partition.topic, "partition": one.partition.partition, "committed": one.committed, "end": one.end, "lag": one.lag}
            for one in await reading.lags(self._admin, group_id)
        ]
        members = [{"member_id": member.member_id, "client_id": member.client_id, "host": member.host} for member in described.members]
        return {"group_id": group_id, "state": described.state, "members": members, "partitions": rows}

    async def brokers(self) -> Values:
        directories = await self._admin.describe_log_dirs()
        rows = []
        for node_id, found in sorted(directories.items()):
            for one in found:
                size = sum(replica.size_bytes for replica in one.replicas)
                error = str(one.error) if one.error is not None else "full" if one.is_full else None
                rows.append(
                    {
                        "node_id": node_id,
                        "path": one.path,
                        "replicas": len(one.replicas),
                        "bytes": size,
                        "usable_bytes": one.usable_bytes,
                        "total_bytes": one.total_bytes,
                        "error": error,
                    }
                )
        return {"directories": rows}


def partition_values(key: TopicPartition, found: PartitionDescription) -> Values:
    return {
        "topic": key.topic,
        "partition": key.partition,
        "leader": found.leader,
        "epoch": found.leader_epoch,
        "replicas": list(found.replicas),
        "in_sync": list(found.in_sync),
    }


def event_values(event: Event) -> Values:
    return {"at": event.at, "kind": event.kind, "text": event.text}


def dot_values(dot: Dot) -> Values:
    return {"at": dot.at, "ms": round(dot.ms, 2), "partition": dot.partition, "error": dot.error}

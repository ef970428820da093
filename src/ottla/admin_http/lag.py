"""Offsets of topics and groups under the names of kafka_exporter, which the common lag dashboards and alerts read."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from ottla.admin_http.exposition import Family, Labels, Sample
from ottla.broker.coordinators.runtime import Patience
from ottla.broker.status import Status
from ottla.broker.tasks.slices import Slices
from ottla.groups.commands import DescribeGroup, FetchOffsets, ListGroups
from ottla.groups.consumer.commands import DescribeConsumerGroup

_HELP: Final = {
    "kafka_brokers": "Brokers that serve.",
    "kafka_topic_partitions": "Partitions of the topic.",
    "kafka_topic_partition_current_offset": "The offset that the next record gets.",
    "kafka_topic_partition_oldest_offset": "The first offset that can be read.",
    "kafka_topic_partition_leader": "The broker that leads the partition.",
    "kafka_topic_partition_replicas": "Replicas of the partition.",
    "kafka_topic_partition_in_sync_replica": "Replicas of the partition that are in sync.",
    "kafka_topic_partition_leader_is_preferred": "Whether the first replica leads.",
    "kafka_topic_partition_under_replicated_partition": "Whether replicas are missing among those in sync.",
    "kafka_consumergroup_current_offset": "What the group has committed.",
    "kafka_consumergroup_lag": "Records that the group has not committed yet.",
    "kafka_consumergroup_current_offset_sum": "What the group has committed, over the partitions of the topic.",
    "kafka_consumergroup_lag_sum": "Records that the group has not committed yet, over the partitions of the topic.",
    "kafka_consumergroup_members": "Members of the group.",
}


async def lag_families(status: Status, slices: Slices) -> list[Family]:
    """Returns the metrics of this broker's topics and partitions, and of the groups that it coordinates."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    samples["kafka_brokers"].append(Sample(len(status.image.live_brokers)))
    ends = await _add_partitions(status, samples, slices)
    listed, patience = await status.groups.list_all(ListGroups), Patience(status.parts.world.clock)
    async for group_id in slices.over(sorted(group.group_id for result in listed for group in result.groups)):
        await _add_group(status, group_id, ends, samples, slices, patience)
    return [Family(name, "gauge", text, samples[name], _labels_of(name)) for name, text in _HELP.items()]


def _labels_of(name: str) -> tuple[str, ...]:
    if name.startswith("kafka_consumergroup"):
        return ("consumergroup",) + (() if name.endswith("members") else ("topic",) if name.endswith("_sum") else ("topic", "partition"))
    return () if name == "kafka_brokers" else ("topic",) if name == "kafka_topic_partitions" else ("topic", "partition")


async def _add_partitions(status: Status, samples: dict[str, list[Sample]], slices: Slices) -> dict[tuple[str, int], int]:
    ends: dict[tuple[str, int], int] = {}
    topics, last = status.image.topics, None  # of one moment: a topic may be deleted before its turn comes
    async for partition in slices.over(sorted(status.partitions.all(), key=lambda partition: (partition.topic, partition.index))):
        topic, index = partition.topic, partition.index
        if topic != last:
            samples["kafka_topic_partitions"].append(Sample(len(topics[topic].partitions), (("topic", topic),)))
            last = topic
        image = topics[topic].partitions[index]
        ends[topic, index] = partition.high_watermark
        values = {
            "current_offset": partition.high_watermark,
            "oldest_offset": partition.log.log_start_offset,
            "leader": image.leader,
            "replicas": len(image.replicas),
            "in_sync_replica": len(image.isr),
            "leader_is_preferred": int(image.leader == image.replicas[0]),
            "under_replicated_partition": int(len(image.isr) < len(image.replicas)),
        }
        labels: Labels = (("topic", topic), ("partition", str(index)))
        for name, value in values.items():
            samples[f"kafka_topic_partition_{name}"].append(Sample(value, labels))
    return ends


async def _add_group(
    status: Status,
    group_id: str,
    ends: dict[tuple[str, int], int],
    samples: dict[str, list[Sample]],
    slices: Slices,
    patience: Patience,
) -> None:
    group = ("consumergroup", group_id)
    described = await status.groups.look_up(group_id, lambda token: DescribeGroup(token, group_id), patience)
    member_count = len(described.members)
    if described.is_other:
        member_count = len((await status.groups.look_up(group_id, lambda token: DescribeConsumerGroup(token, group_id), patience)).members)
    samples["kafka_consumergroup_members"].append(Sample(member_count, (group,)))
    fetched = await status.groups.look_up(group_id, lambda token: FetchOffsets(token, group_id, None, False), patience)
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    async for found in slices.over(sorted(fetched.offsets, key=lambda offset: (offset.topic, offset.partition))):
        labels: Labels = (group, ("topic", found.topic), ("partition", str(found.partition)))
        samples["kafka_consumergroup_current_offset"].append(Sample(found.offset, labels))
        sums[found.topic][0] += found.offset
        end = ends.get((found.topic, found.partition))
        if end is not None:
            lag = max(0, end - found.offset)
            samples["kafka_consumergroup_lag"].append(Sample(lag, labels))
            sums[found.topic][1] += lag
    for topic, (offset_sum, lag_sum) in sums.items():
        samples["kafka_consumergroup_current_offset_sum"].append(Sample(offset_sum, (group, ("topic", topic))))
        samples["kafka_consumergroup_lag_sum"].append(Sample(lag_sum, (group, ("topic", topic))))

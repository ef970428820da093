"""What a test asks of replicated partitions: who leads, who is in sync, what lies in each replica's files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.processes import ClusterProcesses
from tests.foreign_clients.stored import HEADER, stored_batches
from tests.foreign_clients.wire import RawClient, batch_of, end_offsets, produce_request
from tests.waiting import eventually

from ottla.client.cluster_metadata import PartitionMetadata
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.messages.produce import PartitionProduceResponse
from ottla.sync import Admin, NewTopic

PRODUCE_VERSION, FETCH_VERSION = 10, 12
LAST_OFFSET_DELTA = 6  # its place among the fields of a batch's header


def create(cluster: ClusterProcesses, admin: Admin, topic: str, replicas: Sequence[Sequence[int]], **configs: str) -> None:
    """A topic with these replicas of each partition, in order of preference, which is served; dots of a configuration are underscores."""
    given = {key.replace("_", "."): value for key, value in configs.items()}
    named = {node for row in replicas for node in row}
    eventually(lambda: {node.node_id for node in admin.describe_cluster(include_fenced=True).nodes}, named.issubset)
    [outcome] = admin.create_topics([NewTopic(topic, assignments=dict(enumerate(replicas)), configs=given)]).values()
    assert outcome is None, outcome
    wanted = [row[0] for row in replicas]
    eventually(lambda: leaders(admin, topic), lambda found: found == wanted)
    for index, leader in enumerate(wanted):
        eventually(lambda n=leader, i=index: fetch(cluster, n, topic, 0, i).error_code, lambda code: code == ErrorCode.NONE)  # type: ignore[misc]


def partitions(admin: Admin, topic: str) -> Mapping[int, PartitionMetadata]:
    """As the broker has it that is asked; none while it does not know the topic."""
    try:
        return admin.describe_topic(topic).partitions
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return {}


def leaders(admin: Admin, topic: str) -> list[int]:
    """Of each partition; -1 for none."""
    found = partitions(admin, topic)
    return [found[index].leader for index in sorted(found)]


def in_sync(admin: Admin, topic: str, index: int = 0) -> set[int]:
    return set(partitions(admin, topic)[index].in_sync)


def wait_for_leader(admin: Admin, topic: str, leader: int, index: int = 0, *, of: ClusterProcesses | None = None) -> None:
    """With the nodes of the cluster, the leader itself knows, too: others may hear of its election before it does."""
    eventually(lambda: leaders(admin, topic)[index], lambda found: found == leader)
    if of is not None:
        eventually(lambda: fetch(of, leader, topic, 0, index).error_code, lambda code: code != ErrorCode.NOT_LEADER_OR_FOLLOWER)


def wait_for_in_sync(admin: Admin, topic: str, nodes: set[int], index: int = 0) -> None:
    eventually(lambda: in_sync(admin, topic, index), lambda found: found == nodes)


def produce(cluster: ClusterProcesses, node: int, topic: str, *values: bytes, acks: int = -1, index: int = 0) -> PartitionProduceResponse:
    """One batch, sent once, by a client that neither retries nor looks for the leader."""
    with RawClient(cluster.nodes[node].port, cluster.nodes[node].host) as client:
        answer = client.ask(produce_request(topic, batch_of(*values), acks=acks, partition=index), PRODUCE_VERSION)
    result: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return result


def visible_end(cluster: ClusterProcesses, node: int, topic: str, index: int = 0) -> int:
    """The end of the partition, as its leader reports it to consumers; others may know of its election before it does."""
    with RawClient(cluster.nodes[node].port, cluster.nodes[node].host) as client:
        return eventually(lambda: end_offsets(client, topic, index + 1)[index], lambda end: end >= 0)


def fetch(cluster: ClusterProcesses, node: int, topic: str, offset: int, index: int = 0) -> Any:
    """What a consumer is answered at once."""
    wanted = FetchPartition(index, fetch_offset=offset, partition_max_bytes=1_000_000)
    with RawClient(cluster.nodes[node].port, cluster.nodes[node].host) as client:
        answer = client.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic, partitions=[wanted])]), FETCH_VERSION)
    return answer.responses[0].partitions[0]


def stored(directory: Path, end_offset: int) -> bytes:
    """The batches of a partition directory up to that offset, as they lie there, whatever segments they are in."""
    return b"".join(batch.data for batch in stored_batches(directory) if batch.base_offset < end_offset)


def stored_end(directory: Path) -> int:
    """The offset after the last batch that lies in the partition directory."""
    last = max((batch for batch in stored_batches(directory)), key=lambda batch: batch.base_offset, default=None)
    return 0 if last is None else last.base_offset + int(HEADER.unpack_from(last.data)[LAST_OFFSET_DELTA]) + 1


def logged(cluster: ClusterProcesses, event: str) -> list[dict[str, Any]]:
    """What all nodes have logged under that name, in the order of time."""
    lines = [json.loads(line) for node in cluster.nodes.values() for line in node.log().splitlines() if line.startswith("{")]
    return sorted((line for line in lines if line["event"] == event), key=lambda line: line["timestamp"])


def assert_replicas_are_equal(cluster: ClusterProcesses, admin: Admin, topic: str) -> None:
    """Mechanism 22: every replica is in sync again, and all logs of a partition are equal byte for byte up to the high watermark."""
    for index, partition in sorted(eventually(lambda: partitions(admin, topic), bool).items()):
        wait_for_in_sync(admin, topic, set(partition.replicas), index)
        leader = leaders(admin, topic)[index]
        end_offset = visible_end(cluster, leader, topic, index)
        directories = {node: cluster.nodes[node].data / f"{topic}-{index}" for node in partition.replicas}
        eventually(lambda f=directories: min(map(stored_end, f.values())), lambda found, end=end_offset: found >= end)  # type: ignore[misc]
        logs = {node: stored(directory, end_offset) for node, directory in directories.items()}
        assert len(set(logs.values())) == 1, f"the logs of {topic}-{index} differ below {end_offset}"
        assert end_offset == 0 or logs[leader], "what is compared is not nothing"

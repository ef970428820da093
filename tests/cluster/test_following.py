"""Brokers follow: whoever is asked says the same, and serves what it leads. Three processes, default timeouts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tests.cluster.processes import ClusterProcesses
from tests.foreign_clients.wire import RawClient, batch_of
from tests.waiting import eventually

from ottla.errors import ErrorCode
from ottla.messages.describe_cluster import DescribeClusterRequest
from ottla.messages.describe_groups import DescribeGroupsRequest
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.list_groups import ListGroupsRequest
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.sync import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.wire.schema import Request

GROUPS = 12


def ask(cluster: ClusterProcesses, node: int, request: Request, version: int) -> Any:
    with RawClient(cluster.nodes[node].port) as client:
        return client.ask(request, version)


def commit(cluster: ClusterProcesses, node: int, group: str, offset: int) -> set[int]:
    """The codes of a commit for partitions that three brokers lead."""
    partitions = [OffsetCommitRequestPartition(index, offset, -1, "") for index in range(3)]
    answer = ask(cluster, node, OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic("t", partitions=partitions)]), 8)
    return {result.error_code for topic in answer.topics for result in topic.partitions}


def coordinators(cluster: ClusterProcesses, asked: int) -> dict[str, int]:
    """Of each group; -1 where there is none, which must then be said."""
    answer = ask(cluster, asked, FindCoordinatorRequest("", 0, [f"g{number}" for number in range(GROUPS)]), 4)
    for found in answer.coordinators:
        assert (found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE) == (found.node_id == -1)
    return {found.key: found.node_id for found in answer.coordinators}


def leaders(cluster: ClusterProcesses, asked: int) -> dict[int, tuple[int, int, list[int]]]:
    """Leader, error and offline replicas of each partition."""
    answer = ask(cluster, asked, MetadataRequest([MetadataRequestTopic(name="t")], False), 9)
    assert {broker.node_id for broker in answer.brokers} <= {1, 2, 3}
    return {found.partition_index: (found.leader_id, found.error_code, found.offline_replicas) for found in answer.topics[0].partitions}


def alive(cluster: ClusterProcesses, asked: int) -> tuple[set[int], set[int]]:
    metadata = ask(cluster, asked, MetadataRequest([], False), 9)
    described = ask(cluster, asked, DescribeClusterRequest(), 1)
    return {broker.node_id for broker in metadata.brokers}, {broker.broker_id for broker in described.brokers}


def code_of(answer: ProduceResponse) -> int:
    return answer.responses[0].partition_responses[0].error_code


def test_mechanism_14_a_broker_that_does_not_lead_refuses_and_says_who_does(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 3, 1)]) == {"t": None}
        topic = admin.describe_topic("t")
        for index, partition in topic.partitions.items():
            for node in cluster.nodes:
                is_leader = node == partition.leader
                code = ErrorCode.NONE if is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
                data = TopicProduceData("t", topic.topic_id, [PartitionProduceData(index, batch_of(b"x"))])
                request = ProduceRequest(None, 1, 1000, [data])
                produced = eventually(partial(ask, cluster, node, request, 10), lambda answer, code=code: code_of(answer) == code)  # type: ignore[misc]
                [result] = produced.responses[0].partition_responses
                wanted = FetchPartition(index, fetch_offset=0, partition_max_bytes=1000)
                fetched = ask(cluster, node, FetchRequest(topics=[FetchTopic("t", topic.topic_id, [wanted])]), 16)
                [found] = fetched.responses[0].partitions
                assert found.error_code == code
                listed = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(index, timestamp=-1)])])
                assert ask(cluster, node, listed, 7).topics[0].partitions[0].error_code == code
                ends = [(end.node_id, end.port) for end in produced.node_endpoints]
                if is_leader:
                    assert ends == []
                    continue
                assert ends == [(end.node_id, end.port) for end in fetched.node_endpoints]
                assert ends == [(partition.leader, cluster.nodes[partition.leader].port)]
                for hint in (result.current_leader, found.current_leader):
                    assert (hint.leader_id, hint.leader_epoch) == (partition.leader, partition.leader_epoch)


def test_groups_are_coordinated_by_one_broker_each_and_go_on_after_it_was_killed(tmp_path: Path) -> None:
    """Their offsets have one replica here: a group has no coordinator while its broker is down."""
    made = ClusterProcesses(tmp_path, offsets_topic_num_partitions="6", offsets_topic_replication_factor="1")
    with made as cluster, Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 3, 1)]) == {"t": None}
        found = eventually(lambda: coordinators(cluster, 1), lambda found: -1 not in found.values())
        assert set(found.values()) == {1, 2, 3}
        for node in (2, 3):
            assert eventually(lambda asked=node: coordinators(cluster, asked), lambda other: other == found) == found  # type: ignore[misc]
        for group, coordinator in found.items():
            for node in cluster.nodes:
                if node == coordinator:
                    assert eventually(lambda g=group, n=node: commit(cluster, n, g, 7), lambda codes: codes == {0})  # type: ignore[misc]
                else:
                    assert commit(cluster, node, group, 8) == {ErrorCode.NOT_COORDINATOR}
                    described = ask(cluster, node, DescribeGroupsRequest([group]), 5)
                    assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR
                    offsets = ask(cluster, node, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group)]), 8)
                    assert offsets.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        listed = {node: {group.group_id for group in ask(cluster, node, ListGroupsRequest(), 4).groups} for node in cluster.nodes}
        assert listed == {node: {group for group, at in found.items() if at == node} for node in cluster.nodes}

        lost = {group for group, at in found.items() if at == 3}
        cluster.nodes[3].kill()
        for node in (1, 2):
            after = eventually(lambda asked=node: coordinators(cluster, asked), lambda now: -1 in now.values())  # type: ignore[misc]
            assert {group for group, at in after.items() if at == -1} == lost
            eventually(lambda asked=node: alive(cluster, asked), lambda found: found == ({1, 2}, {1, 2}))  # type: ignore[misc]
            for leader, code, offline in leaders(cluster, node).values():
                assert (leader == -1) == (code == ErrorCode.LEADER_NOT_AVAILABLE) == (offline == [3])
            assert -1 in {leader for leader, _, _ in leaders(cluster, node).values()}
        for group in set(found) - lost:
            assert commit(cluster, found[group], group, 9) == {0}, "of a partition that nobody leads, too"
        cluster.nodes[3].start()
        assert eventually(lambda: coordinators(cluster, 1), lambda now: -1 not in now.values()) == found
        for group in sorted(found):
            offsets = {committed.offset for committed in admin.committed_offsets(group).values()}
            assert offsets == ({7} if group in lost else {9})
        assert eventually(lambda: alive(cluster, 2), lambda now: now == ({1, 2, 3}, {1, 2, 3}))


def test_members_go_on_when_their_coordinator_and_leader_was_killed_and_is_back(tmp_path: Path) -> None:
    """A consumer in a group, and a producer, without a line of code for it."""
    with ClusterProcesses(tmp_path, offsets_topic_num_partitions="1") as cluster, Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 3, 1)]) == {"t": None}
        with (
            Producer(cluster.bootstrap, delivery_timeout_ms=60_000) as producer,
            Consumer(cluster.bootstrap, group_id="g0", auto_offset_reset="earliest") as consumer,
        ):
            consumer.subscribe(["t"])
            read: set[bytes | None] = set()

            def send_and_read(numbers: range) -> None:
                sent = [producer.send("t", b"%d" % number, partition=number % 3) for number in numbers]
                wanted = {b"%d" % number for number in numbers}
                eventually(lambda: read.update(record.value for record in consumer.poll(500)), lambda _: wanted <= read)
                assert {future.result(1).partition for future in sent} == {0, 1, 2}

            send_and_read(range(30))
            consumer.commit()
            coordinator = coordinators(cluster, 1)["g0"]
            cluster.nodes[coordinator].kill()
            cluster.nodes[coordinator].start()
            send_and_read(range(30, 60))
            consumer.commit()
        assert sum(found.offset for found in admin.committed_offsets("g0").values()) == 60
        assert {key.topic for key in admin.committed_offsets("g0", [TopicPartition("t", 0)])} == {"t"}

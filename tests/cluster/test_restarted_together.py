"""All nodes of a cluster are killed at once, and started again: nobody waits until sessions end of processes that have ended."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.cluster.processes import ClusterProcesses, quorum_only
from tests.waiting import eventually

from ottla.errors import KafkaError
from ottla.sync import Admin, Consumer, NewTopic, Producer, TopicPartition

FOREVER_MS = "600000"
"""A session that ends long after the test has given up."""
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
ENOUGH = 100
"""Records that are acknowledged before all nodes are killed."""


@quorum_only
@pytest.mark.slow
def test_nodes_that_were_killed_together_are_taken_back_by_proof(tmp_path: Path) -> None:
    """No controller has seen anything of the earlier processes: who listens at their addresses is the proof."""
    with ClusterProcesses(tmp_path, broker_session_timeout_ms=FOREVER_MS) as cluster:
        cluster.add(4)
        nodes = cluster.nodes.values()
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 6, 3), NewTopic("single", 4, 1)]) == {"t": None, "single": None}
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none of them notices that another one dies
            for node in nodes:
                node.send_signal(number)
        for node in nodes:
            node.kill()
        written = {node: len(node.log()) for node in nodes}
        for node in nodes:
            node.spawn()
        for node in nodes:
            node.wait_until_ready()
        with Admin(cluster.bootstrap) as admin:
            eventually(
                lambda: [part.leader for name in ("t", "single") for part in admin.describe_topic(name).partitions.values()],
                lambda leaders: len(leaders) == 10 and -1 not in leaders,
            )
        events = [json.loads(line) for node in nodes for line in node.log()[written[node] :].splitlines() if line.startswith("{")]
        assert {event["broker_id"] for event in events if event["event"] == "broker_registered"} == {1, 2, 3, 4}
        assert [event for event in events if event["event"] == "broker_fenced"] == []


@pytest.mark.slow
def test_what_acks_all_has_acknowledged_is_kept_when_all_nodes_are_killed_at_once_while_more_is_sent(tmp_path: Path) -> None:
    """A killed process has lost nothing, whoever of those in sync leads first; the commit of a group is a record, too."""
    with ClusterProcesses(tmp_path) as cluster:
        nodes = cluster.nodes.values()
        with Admin(cluster.bootstrap) as admin:
            new = NewTopic("t", 3, 3, configs={"min.insync.replicas": "2"})
            assert admin.create_topics([new]) == {"t": None}
        acknowledged: dict[tuple[int, int], bytes] = {}
        with Producer(cluster.bootstrap, acks="all", linger_ms=0, delivery_timeout_ms=20_000, request_timeout_ms=5000) as producer:
            for number in range(ENOUGH):
                found = producer.send("t", b"%d" % number, partition=number % 3).result(30)
                acknowledged[found.partition, found.offset] = b"%d" % number
            with Consumer(cluster.bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
                consumer.assign(PARTITIONS)
                eventually(lambda: consumer.poll(timeout_ms=1000), bool)
                consumer.commit()
                committed = consumer.committed(PARTITIONS)
            assert committed
            sending = [(b"%d" % number, producer.send("t", b"%d" % number, partition=number % 3)) for number in range(ENOUGH, 3 * ENOUGH)]
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for node in nodes:
                    node.send_signal(number)
            for node in nodes:
                node.kill()
            for node in nodes:
                node.spawn()
            for node in nodes:
                node.wait_until_ready()
            for value, future in sending:
                try:
                    found = future.result(60)
                except KafkaError:
                    continue
                acknowledged[found.partition, found.offset] = value
        assert len(acknowledged) >= ENOUGH
        stored: dict[tuple[int, int], bytes | None] = {}
        with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign(PARTITIONS)

            def read() -> bool:
                stored.update({(record.partition, record.offset): record.value for record in consumer.poll(timeout_ms=1000)})
                return acknowledged.keys() <= stored.keys()

            eventually(read, bool)
        assert {place: stored[place] for place in acknowledged} == acknowledged
        with Consumer(cluster.bootstrap, group_id="g") as consumer:
            assert consumer.committed(PARTITIONS) == committed

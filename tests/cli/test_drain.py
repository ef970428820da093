"""``ottla broker drain``: what it plans, and what becomes of a cluster of four nodes of which one is drained, stopped, and removed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_operators import ottla, shown
from tests.cluster.processes import ZookeeperProcesses
from tests.waiting import eventually

from ottla.cli.drain_plan import COLUMNS, MOVING, NO_BROKER, NO_LEADER, NONE_IN_SYNC, ONLY_REPLICA, DrainPlan, undone
from ottla.client.cluster_metadata import PartitionMetadata
from ottla.sync import Admin, NewTopic, Producer
from ottla.testing import ThreadNodes, thread_cluster
from ottla.types import TopicPartition

RACKS = {1: "a", 2: "b", 3: "c", 4: "a"}


def partitions(*found: tuple[int, list[int], list[int]]) -> dict[TopicPartition, PartitionMetadata]:
    """Of topic t, each with its leader, its replicas, and those in sync."""
    return {TopicPartition("t", index): PartitionMetadata(leader, 0, *replicas) for index, (leader, *replicas) in enumerate(found)}


def planned(plan: DrainPlan, *, moves_replicas: bool = False) -> list[tuple[Any, ...]]:
    """Of each step the partition, the leader afterwards, the replicas afterwards, and the problem."""
    steps = plan.replicas() if moves_replicas else plan.leaders()
    return [(step.key.partition, step.leader_afterwards, list(step.replicas_afterwards), step.problem) for step in steps]


def test_the_broker_is_put_last_where_it_is_first_and_a_replica_in_sync_is_elected() -> None:
    found = partitions(
        (1, [1, 2, 3], [1, 2, 3]),
        (1, [1, 2, 3], [1, 3]),  # 2 is not in sync
        (1, [2, 1, 3], [1, 2, 3]),  # the preferred one does not lead: an election will do
        (2, [2, 1, 3], [2, 1, 3]),  # it leads nothing here, and is not first
        (3, [1, 2, 3], [2, 3]),  # the broker is down: who leads goes on
        (1, [1], [1]),
        (1, [1, 2], [1]),
        (1, [1, 2], [1, 2]),
        (2, [4, 2, 3], [4, 2, 3]),
    )
    plan = DrainPlan(1, found, {2: None, 3: None}, {TopicPartition("t", 7)})
    assert planned(plan) == [
        (0, 3, [3, 2, 1], None),  # which leads fewer
        (1, 3, [3, 2, 1], None),
        (2, 2, [2, 1, 3], None),
        (4, 3, [3, 2, 1], None),
        (5, 1, [1], ONLY_REPLICA),
        (6, None, [1, 2], NONE_IN_SYNC),
        (7, 1, [1, 2], MOVING),
    ]


def test_leaders_are_spread_over_the_replicas_in_sync() -> None:
    plan = DrainPlan(1, partitions(*[(1, [1, 2, 3], [1, 2, 3])] * 6), {2: None, 3: None})
    assert sorted(row[1] for row in planned(plan)) == [2, 2, 2, 3, 3, 3]


def test_replicas_go_to_brokers_in_a_rack_of_their_own_that_have_the_fewest() -> None:
    found = partitions(
        (1, [1, 2], [1, 2]),
        (2, [2, 1], [1, 2]),
        (1, [1], [1]),
        (1, [1, 2, 3, 4], [1, 2, 3, 4]),
        (-1, [1], []),
        (3, [3, 4], [3, 4]),
    )
    serving = {node: rack for node, rack in RACKS.items() if node != 1}
    assert planned(DrainPlan(1, found, serving), moves_replicas=True) == [
        (0, 2, [2, 3], None),  # 4 has as many replicas, and so has 3
        (1, 2, [2, 4], None),
        (2, 2, [2], None),  # by now all have as many
        (3, 4, [4, 2, 3, 1], NO_BROKER),
        (4, None, [1], NO_LEADER),
    ]
    near = DrainPlan(1, partitions((2, [4, 1], [4, 1])), {2: "a", 3: "b", 4: "a"})
    assert planned(near, moves_replicas=True) == [(0, 2, [4, 3], None)], "2 has fewer replicas, in the rack of 4"


def test_the_way_back_is_that_of_partitions_that_are_as_they_were_left() -> None:
    steps = DrainPlan(1, partitions(*[(1, [1, 2, 3], [1, 2, 3])] * 3), {2: None, 3: None}).leaders()
    items = [dict(zip(COLUMNS, step.row, strict=True)) for step in steps]
    found = partitions((2, [2, 3, 1], [1, 2, 3]), (2, [2, 3, 4], [2, 3, 4]), (2, [2, 3, 1], [2, 3]))
    back = [(step.key.partition, step.leader_afterwards, list(step.replicas_afterwards), step.elects) for step in undone(items, found)]
    assert back == [(0, 1, [1, 2, 3], True), (2, 2, [1, 2, 3], False)], "1 is not in sync of the last one, and cannot lead it yet"


def test_a_broker_that_is_needed_in_sync_must_not_be_stopped() -> None:
    found = partitions(
        (2, [2, 1, 3], [1, 2]),  # led by it: another one leads all the same
        (1, [1, 2, 3], [1, 2]),
        (1, [1, 2, 3], [1, 2, 4]),  # 4 is in sync, and does not serve
        (1, [1, 2], [1, 2]),  # no more replicas than min.insync.replicas
        (1, [1, 2, 3], [1, 2, 3]),
        (1, [1, 2, 3], [1, 3]),  # it is not in sync: nothing is lost
        (-1, [2, 3], [2]),
    )
    plan = DrainPlan(2, found, {1: None, 3: None}, min_isrs={"t": 2})
    assert planned(plan) == [
        (0, 1, [1, 3, 2], "stopping it leaves 1 in sync, of min.insync.replicas=2"),
        (1, 1, [1, 2, 3], "stopping it leaves 1 in sync, of min.insync.replicas=2"),
        (2, 1, [1, 2, 3], "stopping it leaves 1 in sync, of min.insync.replicas=2"),
        (3, 1, [1, 2], "stopping it leaves 1 in sync, of min.insync.replicas=2"),
        (6, None, [2, 3], NONE_IN_SYNC),
    ]
    assert [step.is_needed for step in plan.leaders()] == [True] * 4 + [False]
    items = [dict(zip(COLUMNS, step.row, strict=True)) for step in plan.leaders()]
    after = partitions((1, [1, 3, 2], [1, 2]), (1, [1, 2, 3], [1, 2]))
    assert [(step.key.partition, list(step.replicas_afterwards)) for step in undone(items, after)] == [(0, [2, 1, 3])], "what was changed"
    unknown = DrainPlan(2, found, {1: None, 3: None})
    assert [step.key.partition for step in unknown.leaders()] == [0, 6], "min.insync.replicas may be hidden from the user"


@pytest.mark.slow
def test_a_broker_that_is_emptied_for_good_may_be_a_controller_still() -> None:
    with thread_cluster(3) as three:
        with Admin(three.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", assignments={0: [2]})]) == {"t": None}
        done = ottla(three.bootstrap, "broker", "drain", "2", "--replicas", "--yes")
    assert (done.returncode, "node 2 is a controller, too, and stays one of controller.quorum.voters" in done.stderr) == (0, True), (
        done.stderr
    )


@pytest.mark.slow
def test_a_broker_is_not_to_be_stopped_while_another_one_is_down() -> None:
    with thread_cluster(3) as three:
        with Admin(three.bootstrap) as admin:
            topic = NewTopic("t", assignments={0: [1, 2, 3]}, configs={"min.insync.replicas": "2"})
            assert admin.create_topics([topic]) == {"t": None}
        eventually(lambda: ottla(three.bootstrap, "broker", "drain", "2").returncode, lambda code: code == 0)
        three.stop(3)
        expected = ("stopping it leaves 1 in sync, of min.insync.replicas=2", "stopping it leaves 1 of 3, of which 2 must run")

        def seen() -> tuple[int, list[bool]]:
            plan = ottla(three.bootstrap, "broker", "drain", "2", "--yes")
            return plan.returncode, [text in plan.stdout + plan.stderr for text in (*expected, "can be stopped")]

        eventually(seen, lambda found: found == (1, [True, True, False]))  # a controller is silent after some seconds


@pytest.fixture(scope="module")
def nodes() -> Iterator[ThreadNodes]:
    """Four brokers; of t, three partitions, the first two led by 4."""
    with thread_cluster(4) as found:
        with Admin(found.bootstrap) as admin:
            assignments = {0: [4, 1, 2], 1: [4, 2, 3], 2: [1, 4, 2]}
            topics = [NewTopic("t", assignments=assignments), NewTopic("one", assignments={0: [4]})]
            assert set(admin.create_topics(topics).values()) == {None}
            eventually(lambda: [len(one.in_sync) for one in admin.describe_topic("t").partitions.values()], lambda sizes: sizes == [3] * 3)
        yield found


def replicas_of(bootstrap: str, topic: str) -> list[list[int]]:
    with Admin(bootstrap) as admin:
        return [list(found.replicas) for _, found in sorted(admin.describe_topic(topic).partitions.items())]


@pytest.mark.slow
def test_a_broker_is_drained_while_a_producer_writes_and_gets_back_what_it_led(nodes: ThreadNodes, tmp_path: Path) -> None:
    before = replicas_of(nodes.bootstrap, "t")
    plan = ottla(nodes.bootstrap, "broker", "drain", "4", "--format", "json")
    assert plan.returncode == 1
    assert {(item["topic"], item["partition"], item["problem"]) for item in json.loads(plan.stdout)["items"]} == {
        ("t", 0, None),
        ("t", 1, None),
        ("one", 0, "the only replica"),
    }
    assert replicas_of(nodes.bootstrap, "t") == before, "a plan changes nothing"

    acknowledged, ends = list[Any](), threading.Event()

    def write() -> None:
        with Producer(nodes.bootstrap) as producer:
            while not ends.is_set():
                acknowledged.append(producer.send("t", b"x", partition=len(acknowledged) % 3).result(30))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        eventually(lambda: len(acknowledged), lambda count: count > 3)
        drained = ottla(nodes.bootstrap, "broker", "drain", "4", "--yes", "--format", "json")
        assert (drained.returncode, "1 partition of broker 4 cannot go elsewhere" in drained.stderr) == (1, True), drained.stderr
        assert [leader for leader in leaders_of(nodes.bootstrap, "t") if leader == 4] == []
        assert all(replicas[-1] == 4 for replicas in replicas_of(nodes.bootstrap, "t")[:2])
        seen = len(acknowledged)
        eventually(lambda: len(acknowledged), lambda count: count > seen + 3)
    finally:
        ends.set()
        writer.join()
    (tmp_path / "drained.json").write_text(drained.stdout)
    [left] = json.loads(ottla(nodes.bootstrap, "broker", "drain", "4", "--format", "json").stdout)["items"]
    assert (left["topic"], left["problem"]) == ("one", "the only replica"), "the rest is done"
    back = ottla(nodes.bootstrap, "broker", "drain", "4", "--undo", str(tmp_path / "drained.json"), "--yes")
    assert back.returncode == 0, back.stderr
    assert replicas_of(nodes.bootstrap, "t") == before
    eventually(lambda: leaders_of(nodes.bootstrap, "t"), lambda found: found == [4, 4, 1])


@pytest.mark.slow
def test_a_broker_without_replicas_is_stopped_and_removed(nodes: ThreadNodes) -> None:
    assert "move them first with `ottla broker drain 4 --replicas --yes`" in ottla(nodes.bootstrap, "broker", "unregister", "4").stderr
    moved = ottla(nodes.bootstrap, "broker", "drain", "4", "--replicas", "--yes")
    assert (moved.returncode, "then stop broker 4 and `ottla broker unregister 4 --yes`" in moved.stderr) == (0, True), moved.stderr
    eventually(lambda: shown(nodes.bootstrap, "partition", "moves"), lambda moves: moves == [])
    assert not any(4 in replicas for name in ("t", "one") for replicas in replicas_of(nodes.bootstrap, name))
    again = ottla(nodes.bootstrap, "broker", "drain", "4", "--replicas")
    assert (again.returncode, "broker 4 has no replica" in again.stderr) == (0, True)
    nodes.stop(4)
    eventually(lambda: ottla(nodes.bootstrap, "broker", "unregister", "4", "--yes").returncode, lambda code: code == 0)
    gone = ottla(nodes.bootstrap, "broker", "drain", "4")
    assert (gone.returncode, "broker 4 is not registered; brokers 1, 2, 3 are" in gone.stderr) == (1, True)


@pytest.mark.slow
def test_in_zookeeper_mode_a_broker_is_removed_without_being_unregistered(tmp_path: Path) -> None:
    """The plans are the same there; a broker that is stopped is no longer registered."""
    with ZookeeperProcesses(tmp_path) as cluster:
        drain_and_give_back(cluster.bootstrap, tmp_path)
        moved = ottla(cluster.bootstrap, "broker", "drain", "3", "--replicas", "--yes")
        assert moved.returncode == 0, moved.stderr
        assert moved.stderr.endswith("`ottla partition moves` shows what is on its way; then stop broker 3\n")
        eventually(lambda: shown(cluster.bootstrap, "partition", "moves"), lambda moves: moves == [])
        eventually(lambda: replicas_of(cluster.bootstrap, "t"), lambda found: found == [[1, 2], [1, 2]])
        cluster.nodes[3].stop()
        eventually(lambda: ottla(cluster.bootstrap, "broker", "drain", "3").stderr, lambda text: "broker 3 is not registered" in text)
        unregistered = ottla(cluster.bootstrap, "broker", "unregister", "3", "--yes")
        assert unregistered.stderr.endswith("in ZooKeeper mode broker 3 leaves the cluster when it is stopped")


def drain_and_give_back(bootstrap: str, directory: Path) -> None:
    """Lets broker 3 of three lose the partition of t that it leads, and lead it again; it keeps the only replica of a topic."""
    with Admin(bootstrap) as admin:
        topics = [NewTopic("t", assignments={0: [3, 1], 1: [1, 3]}), NewTopic("one", assignments={0: [3]})]
        assert set(admin.create_topics(topics).values()) == {None}
        eventually(lambda: [len(one.in_sync) for one in admin.describe_topic("t").partitions.values()], lambda sizes: sizes == [2] * 2)
    drained = ottla(bootstrap, "broker", "drain", "3", "--yes", "--format", "json")
    assert (drained.returncode, leaders_of(bootstrap, "t")) == (1, [1, 1]), drained.stderr
    assert "1 partition of broker 3 cannot go elsewhere" in drained.stderr
    (directory / "drained.json").write_text(drained.stdout)
    back = ottla(bootstrap, "broker", "drain", "3", "--undo", str(directory / "drained.json"), "--yes")
    assert back.returncode == 0, back.stderr
    eventually(lambda: (replicas_of(bootstrap, "t"), leaders_of(bootstrap, "t")), lambda found: found == ([[3, 1], [1, 3]], [3, 1]))


def leaders_of(bootstrap: str, topic: str) -> list[int]:
    with Admin(bootstrap) as admin:
        return [found.leader for _, found in sorted(admin.describe_topic(topic).partitions.items())]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"items":[{"topic":"t"}]}')
    with thread_cluster(1) as alone:
        wrong = ottla(alone.bootstrap, "broker", "drain", "1", "--undo", str(tmp_path / "x.json"))
        assert (wrong.returncode, "is not what `ottla broker drain ID --yes --format json` prints" in wrong.stderr) == (2, True)
        both = ottla(alone.bootstrap, "broker", "drain", "1", "--undo", str(tmp_path / "x.json"), "--replicas")
        assert (both.returncode, "leave --replicas out" in both.stderr) == (2, True)

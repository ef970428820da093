"""Brokers and clusters as tests start them: in a thread, several in one thread, in processes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.supervision.node_process import NodeProcess
from ottla.sync import Consumer, Producer, TopicPartition
from ottla.testing import Served, broker, cluster, secure_cluster, thread_cluster, thread_nodes
from ottla.testing.layout import PROFILE, Layout, too_few


def send(served: Served, topic: str, *values: bytes) -> None:
    with Producer(served.bootstrap) as producer:
        for value in values:
            producer.send_and_wait(topic, value)


def values(served: Served, topic: str, count: int) -> list[bytes | None]:
    with Consumer(served.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes | None] = []
        while len(found) < count:
            found += [record.value for record in consumer.poll(10_000)]
    return found


def test_a_broker_in_a_thread_serves_its_block_and_leaves_nothing() -> None:
    with broker(log_retention_ms=60_000) as served:
        topic = served.topic("orders with spaces", max_message_bytes=1000)
        send(served, topic, b"one", b"two")
        assert values(served, topic, 2) == [b"one", b"two"]
        assert served.leader_of(served.topic(partitions=7), 6) == 1
        assert topic.startswith("orders-with-spaces-")
        assert topic != served.topic("orders with spaces")
        directory = served._layout.directory
        assert served.is_running(1)
        assert "broker_started" in served.log
    assert not directory.exists()
    assert not any(thread.name == "ottla-nodes" for thread in threading.enumerate())


def refuse_to_wait(seconds: float) -> None:
    raise AssertionError(f"it waits for {seconds} s")


def test_a_partition_that_its_topic_lacks_has_no_leader_and_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with broker() as served:
        topic = served.topic(partitions=4)
        monkeypatch.setattr("ottla.testing.served.time.sleep", refuse_to_wait)
        with pytest.raises(KafkaError, match=f"topic '{topic}' has no partition 9; it has 4") as refused:
            served.leader_of(topic, 9)
        monkeypatch.undo()
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_no_node_has_is_named_and_not_waited_for_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    with broker() as served:
        monkeypatch.setattr("ottla.testing.served.time.sleep", refuse_to_wait)
        with pytest.raises(KafkaError, match="topic 'nope' does not exist") as refused:
            served.leader_of("nope")
        monkeypatch.undo()
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_is_waited_for_as_long_as_is_said_and_the_nodes_that_do_not_run_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.testing.served.UNKNOWN_SECONDS_MAX", 0.1)
    with thread_cluster(3) as served:
        with pytest.raises(KafkaError, match="topic 'nope' does not exist"):
            served.leader_of("nope")
        topic = served.topic("t", replication_factor=1)
        alone = served.leader_of(topic)
        served.stop(alone)
        with pytest.raises(
            KafkaError, match=rf"{topic}-0 has no leader in 0.1 s; of its replicas' nodes these do not run: {alone}$"
        ) as refused:
            served.leader_of(topic, seconds=0.1)
        assert refused.value.code == ErrorCode.LEADER_NOT_AVAILABLE
        served.start(alone)
        assert served.leader_of(topic) == alone
    with broker() as one:
        topic = one.topic("t")
        one.stop(1)
        with pytest.raises(KafkaError, match=rf"LEADER_NOT_AVAILABLE: {topic}-0 has no leader in 0.1 s; .* these do not run: 1$"):
            one.leader_of(topic, seconds=0.1)


@pytest.mark.parametrize(
    ("keyword", "hint"),
    [("partition_count", "write partitions"), ("num_partitions", "write partitions"), ("replicas", "write replication_factor"),
     ("configs", "configurations are keyword arguments, as in retention_ms=1000")],
)  # fmt: skip
def test_a_keyword_with_which_topics_are_made_elsewhere_has_a_hint(keyword: str, hint: str) -> None:
    """It was taken for a configuration that no broker knows."""
    arguments: dict[str, Any] = {keyword: 3}
    with pytest.raises(TypeError, match=rf"^topic\(\) has no argument '{keyword}': {hint}$"):
        broker().topic("orders", **arguments)
    with pytest.raises(TypeError, match=r"^topic\(\) takes a name by position, and nothing else: write topic\('orders', partitions=3\)$"):
        broker().topic("orders", 3)  # type: ignore[arg-type]


def test_what_a_broker_in_a_thread_cannot_do_and_nodes_that_are_not_there_are_errors_with_a_way_out() -> None:
    with broker() as served:
        with pytest.raises(AttributeError, match=r"ThreadNodes has no 'kill': nodes in a thread are stopped and started; .*ottla_cluster"):
            served.kill(1)  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match="has no 'get_bootstrap_server': write bootstrap, which is no call"):
            served.get_bootstrap_server()  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match=r"ThreadNodes has no 'nosuch'$"):
            served.nosuch  # type: ignore[attr-defined]  # noqa: B018
        for call in (served.stop, served.start, served.restart, served.bootstrap_of, served.is_running):
            with pytest.raises(ValueError, match="there is no node 9; there is 1"):
                call(9)
        with pytest.raises(ValueError, match=r"node 1 runs; restart\(1\)"):
            served.start(1)
        served.stop(1)
        with pytest.raises(ValueError, match=r"node 1 does not run; start\(1\) starts it"):
            served.stop(1)
        assert not served.is_running(1)


def test_nodes_in_processes_that_are_not_there_are_errors_with_a_way_out() -> None:
    nodes = cluster(3)
    with pytest.raises(AttributeError, match="ProcessNodes has no 'faults': requests are disturbed at nodes in threads"):
        nodes.faults  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no 'start': restart\(node_id\)"):
        nodes.start(1)  # type: ignore[attr-defined]
    for call in (nodes.kill, nodes.pause, nodes.resume, nodes.stop, nodes.restart, nodes.is_running, nodes.bootstrap_of, nodes.log_file):
        with pytest.raises(ValueError, match="there is no node 9; there are 1, 2, 3"):
            call(9)


def test_a_key_that_is_not_one_is_refused_before_a_node_starts() -> None:
    with pytest.raises(ValueError, match=r"num.partition is not a broker key; did you mean num.partitions, as a keyword num_partitions\?"):
        broker(num_partition=3).__enter__()
    with pytest.raises(ValueError, match=r"zzz is not a broker key; `ottla config keys` lists the keys"):
        cluster(3, zzz=3).__enter__()


@pytest.mark.parametrize("keys", [{"num_partition": 3}, {"num_partitions": "many"}, {"node_id": 3}])
def test_each_key_that_is_refused_is_a_kafka_error_with_invalid_config(keys: dict[str, object]) -> None:
    """An unknown key was a ValueError alone, a wrong value a KafkaError."""
    with pytest.raises(KafkaError) as refused:
        broker(**keys).__enter__()
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with broker() as served:
        send(served, served.topic(), b"x")
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_three_nodes_in_one_thread_replicate_and_come_back_one_by_one() -> None:
    with thread_cluster(3) as served:
        topic = served.topic(partitions=1)
        send(served, topic, b"before")
        first = served.leader_of(topic)
        served.stop(first)
        assert served.leader_of(topic) != first
        assert not served.is_running(first)
        send(served, topic, b"meanwhile")
        served.start(first)
        served.restart(served.leader_of(topic))
        assert values(served, topic, 2) == [b"before", b"meanwhile"]
        assert served.bootstrap.split(",") == [served.bootstrap_of(node_id) for node_id in (1, 2, 3)]


@pytest.mark.slow
def test_a_node_in_a_process_is_killed_paused_and_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    released, release = list[int](), NodeProcess.release

    def note(node: NodeProcess) -> None:
        released.append(node.node_id)
        release(node)

    monkeypatch.setattr(NodeProcess, "release", note)
    with cluster(3, broker_session_timeout_ms=2000, broker_heartbeat_interval_ms=200) as served:
        topic = served.topic("t")
        send(served, topic, b"before")
        killed = served.leader_of(topic)
        served.kill(killed)
        led = served.leader_of(topic)
        assert led != killed
        send(served, topic, b"after a kill")
        served.restart(killed)
        paused = served.leader_of(topic)
        served.pause(paused)
        assert served.leader_of(topic) != paused
        send(served, topic, b"after a pause")
        served.resume(paused)
        served.restart(paused)
        assert set(released) == {paused}, "it waited for others, which run on, for 10 s"
        assert values(served, topic, 3) == [b"before", b"after a kill", b"after a pause"]
        assert served.log.count("broker_started") >= 3
        pids = [node.pid for node in served._nodes.values()]
    assert not any(pid is not None and Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.slow
def test_a_cluster_that_was_killed_as_a_whole_serves_again_when_its_nodes_start_together() -> None:
    with cluster(3) as served:
        topic = served.topic()
        send(served, topic, b"before")
        for node_id in served.node_ids:
            served.kill(node_id)
        served.restart(*served.node_ids)
        assert values(served, topic, 1) == [b"before"]
    with thread_cluster(3) as threads:
        topic = threads.topic()
        send(threads, topic, b"before")
        for node_id in threads.node_ids:
            threads.stop(node_id)
        threads.start(*threads.node_ids)
        assert values(threads, topic, 1) == [b"before"]


def test_a_node_that_has_no_majority_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    no_majority = r"1 of 2 nodes are no majority, without which none serves; start several together, as in restart\(1, 2\)"
    monkeypatch.setattr(thread_nodes, "START_SECONDS_MAX", 0.1)
    threads = thread_cluster(2)
    monkeypatch.setattr(threads, "_begin", threads._prepared)
    with threads, pytest.raises(TimeoutError, match=rf"node 1 did not serve within 0\.1 s: {no_majority}"):
        threads.start(1)
    assert too_few(1, 0, 1) == too_few(1, 1, 3) == too_few(3, 0, 3) == ""
    assert too_few(1, 0, 3).startswith(": 1 of 3 nodes are no majority")


def test_a_paused_node_is_killed_at_the_end_and_a_killed_one_is_not_paused() -> None:
    with cluster(1) as served:
        served.pause(1)
    with cluster(1) as served:
        served.kill(1)
        with pytest.raises(ValueError, match="node 1 does not run"):
            served.pause(1)


def test_what_keeps_a_node_from_starting_is_raised_and_nothing_is_left() -> None:
    with pytest.raises(Exception, match=r"num\.partitions=0"), broker(num_partitions=0):
        pass
    with pytest.raises(Exception, match=r"num\.partitions=0"), cluster(3, num_partitions=0):
        pass
    assert not any(thread.name == "ottla-nodes" for thread in threading.enumerate())


def test_keys_that_nodes_cannot_share_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"node\.id differs from node to node"):
        Layout.of(1, tmp_path, {"node.id": "7"})


def test_a_given_key_wins_over_the_profile(tmp_path: Path) -> None:
    given = dict.fromkeys(PROFILE, "7")
    assert given.items() <= Layout.of(3, tmp_path, given).properties_of(2).items()


def test_two_clusters_stand_beside_each_other() -> None:
    with thread_cluster(3) as one, broker() as other:
        assert not set(one.bootstrap.split(",")) & set(other.bootstrap.split(","))
        send(one, one.topic("a"), b"x")
        send(other, other.topic("a"), b"x")


def test_a_number_of_nodes_that_is_none_is_refused() -> None:
    """'3' asked for thirty-three ports."""
    wrong: Any = "3"
    for kind in (cluster, thread_cluster, secure_cluster):
        with pytest.raises(ValueError, match="the number of nodes is 0: at least 1 is needed"):
            kind(0)
        with pytest.raises(TypeError, match="the number of nodes is '3': a whole number is expected"):
            kind(wrong)


def test_nodes_before_their_block_say_how_they_are_begun() -> None:
    """Their address was an empty text, which clients refused."""
    for nodes in (broker(), cluster(3)):
        with pytest.raises(RuntimeError, match="the nodes start with a block: `with broker"):
            nodes.topic()
        assert "not begun" in repr(nodes)
    with broker() as served:
        assert repr(served) == f"<ThreadNodes of node 1 at {served.bootstrap}>"
    with pytest.raises(RuntimeError, match="the block of these nodes has ended"):
        served.topic()

"""Replicated partitions whose brokers die, stop, or stand still: who leads then, and with what."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest
from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicas import (
    assert_replicas_are_equal,
    create,
    fetch,
    leaders,
    logged,
    partitions,
    produce,
    stored,
    stored_end,
    visible_end,
    wait_for_in_sync,
    wait_for_leader,
)
from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.wire import RawClient
from tests.waiting import PAUSE_SECONDS, eventually

from ottla.errors import ErrorCode, KafkaError
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.sync import Admin, Consumer, Producer, TopicPartition
from ottla.types import NO_LEADER

ATTEMPTS_MAX = 50
WAIT_SECONDS_MAX = 30
ACKNOWLEDGEMENT_SECONDS = 0.3
"""Time enough for many acknowledgements that must not come."""


def another_leader(admin: Admin, died: int) -> int:
    """Who leads after that one."""
    return eventually(lambda: leaders(admin, "t")[0], lambda found: found not in (died, NO_LEADER))


class Stream(threading.Thread):
    """Records with acks=all, one after the other, by our own client; partition by turns. ``acknowledged`` by partition, in order.

    It ends with its ``with``, whatever happens there: the next test's cluster may have the same ports.
    """

    def __init__(self, bootstrap: str, topic: str, partition_count: int) -> None:
        super().__init__(daemon=True)
        self._servers, self._topic = bootstrap, topic
        self.acknowledged: dict[int, list[tuple[int, bytes]]] = {index: [] for index in range(partition_count)}
        self.failure: BaseException | None = None
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join()

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def run(self) -> None:
        try:
            with Producer(self._servers) as producer:
                number = 0
                while not self._stopping.is_set():
                    value = b"%d" % number
                    for index, future in [(index, producer.send(self._topic, value, partition=index)) for index in self.acknowledged]:
                        self.acknowledged[index].append((future.result(WAIT_SECONDS_MAX).offset, value))
                    number += 1
        except BaseException as error:  # noqa: BLE001 - raised again by stop
            self.failure = error

    def go_on(self, count: int = 60) -> None:
        """So many more are acknowledged."""
        wanted = self.count + count
        eventually(lambda: self.count, lambda found: found >= wanted or self.failure is not None)
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def check(self, cluster: ClusterProcesses) -> None:
        """All that was acknowledged is there, at its offset, and nothing else."""
        for index, acknowledged in self.acknowledged.items():
            assert acknowledged == [(offset, b"%d" % offset) for offset in range(len(acknowledged))], "none is doubled, and order is kept"
            with Consumer(cluster.bootstrap) as consumer:
                consumer.assign([TopicPartition(self._topic, index)])
                consumer.seek_to_beginning()
                read: list[tuple[int, bytes]] = []
                while len(read) < len(acknowledged):
                    records = consumer.poll(WAIT_SECONDS_MAX * 1000)
                    assert records, f"{len(acknowledged)} are acknowledged, {len(read)} are there"
                    read += [(record.offset, record.value or b"") for record in records]
            assert read == acknowledged


@pytest.mark.slow
def test_the_drill_three_brokers_three_partitions_two_replicas_and_broker_1_dies(tmp_path: Path) -> None:
    """Mechanisms 19, 31, 34, 37, 38, 39: under load, and with one broker left of two."""
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.bootstrap) as admin:
        create(cluster, admin, "t", [[1, 2], [2, 3], [3, 1]], min_insync_replicas="1")
        with Stream(cluster.bootstrap, "t", 3) as stream:
            stream.go_on()
            before = partitions(admin, "t")
            cluster.nodes[1].kill()
            stream.go_on()
            wait_for_in_sync(admin, "t", {3}, 2)
            after = partitions(admin, "t")
            assert leaders(admin, "t") == [2, 2, 3]
            assert [sorted(after[index].in_sync) for index in range(3)] == [[2], [2, 3], [3]]
            assert after[0].leader_epoch > before[0].leader_epoch
            assert after[1].leader_epoch == before[1].leader_epoch

            cluster.nodes[1].start()
            wait_for_in_sync(admin, "t", {1, 2}, 0)
            wait_for_in_sync(admin, "t", {1, 3}, 2)
            stream.go_on()
            assert admin.elect_leaders([TopicPartition("t", 0)]) == {TopicPartition("t", 0): None}
            wait_for_leader(admin, "t", 1, of=cluster)
            stream.go_on()
            stream.stop()
            stream.check(cluster)
            assert_replicas_are_equal(cluster, admin, "t")


def stand_still(stream: Stream, leader: BrokerProcess, followers: Sequence[BrokerProcess]) -> None:
    """The followers do, and lack a record that the leader has: not so where they stop before they have told it of the last one."""
    for _ in range(ATTEMPTS_MAX):
        for follower in followers:
            follower.send_signal(signal.SIGSTOP)
        had, deadline = max(stored_end(follower.data / "t-0") for follower in followers), time.monotonic() + 1
        while time.monotonic() < deadline:
            if stored_end(leader.data / "t-0") > had:
                return
            time.sleep(PAUSE_SECONDS)
        for follower in followers:
            follower.send_signal(signal.SIGCONT)
        stream.go_on(1)
    raise AssertionError("the followers never lack anything")


@pytest.mark.slow
def test_two_leaders_in_turn_die_under_load_and_none_acknowledged_is_lost_doubled_or_out_of_order(tmp_path: Path) -> None:
    """Mechanisms 19, 30, 35: RF 3, min ISR 2; the second leader dies when the first one is in sync again.

    Each dies with records that its followers, which stand still, do not have: none of those may have been acknowledged.
    """
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.bootstrap) as admin:
        create(cluster, admin, "t", [[1, 2, 3]], min_insync_replicas="2")
        with Stream(cluster.bootstrap, "t", 1) as stream:
            leader = 1
            for _ in range(2):
                stream.go_on()
                others = [cluster.nodes[node] for node in (1, 2, 3) if node != leader]
                stand_still(stream, cluster.nodes[leader], others)
                time.sleep(ACKNOWLEDGEMENT_SECONDS)
                cluster.nodes[leader].kill()
                for other in others:
                    other.send_signal(signal.SIGCONT)
                successor = another_leader(admin, leader)
                wait_for_leader(admin, "t", successor, of=cluster)
                stream.go_on()
                cluster.nodes[leader].start()
                leader = successor
                wait_for_in_sync(admin, "t", {1, 2, 3})
            stream.stop()
            stream.check(cluster)
            assert_replicas_are_equal(cluster, admin, "t")


@pytest.mark.slow
def test_a_consumer_never_sees_a_record_that_a_later_failover_removes(tmp_path: Path) -> None:
    """Mechanism 20: the leader has it, its follower stands still, the leader dies, and the follower leads without it."""
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.nodes[1].bootstrap) as admin:
        leader, follower = cluster.add(4), cluster.add(5)
        create(cluster, admin, "t", [[4, 5]], min_insync_replicas="1")
        assert produce(cluster, 4, "t", b"kept").error_code == ErrorCode.NONE
        follower.send_signal(signal.SIGSTOP)
        assert produce(cluster, 4, "t", b"on its way", acks=1).error_code == ErrorCode.NONE, "the answer to the follower's last fetch"
        lost = produce(cluster, 4, "t", b"removed later", acks=1)
        assert (lost.error_code, lost.base_offset) == (ErrorCode.NONE, 2)
        assert stored_end(leader.data / "t-0") == 3
        seen = fetch(cluster, 4, "t", 0)
        assert b"kept" in bytes(seen.records)
        assert b"on its way" not in bytes(seen.records)
        above = fetch(cluster, 4, "t", 1)
        assert (above.error_code, above.high_watermark, bytes(above.records or b"")) == (ErrorCode.NONE, 1, b"")
        assert visible_end(cluster, 4, "t") == 1

        leader.kill()
        follower.send_signal(signal.SIGCONT)
        wait_for_leader(admin, "t", 5, of=cluster)
        eventually(lambda: produce(cluster, 5, "t", b"in its place").error_code, lambda code: code == ErrorCode.NONE)
        leader.start()
        assert_replicas_are_equal(cluster, admin, "t")
        assert b"removed later" not in stored(leader.data / "t-0", visible_end(cluster, 5, "t"))
        [cut] = logged(cluster, "replica_truncated")
        assert (cut["was"], cut["end_offset"]) in ((3, 1), (3, 2))


@pytest.mark.slow
def test_only_a_replica_that_was_in_sync_leads_unless_an_unclean_election_is_asked_for(tmp_path: Path) -> None:
    """Mechanisms 29 and 32: all replicas die; the one that returns first lacks records."""
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.nodes[1].bootstrap) as admin:
        full, stale = cluster.add(4), cluster.add(5)
        create(cluster, admin, "t", [[4, 5]], min_insync_replicas="1")
        assert produce(cluster, 4, "t", b"both").error_code == ErrorCode.NONE

        def die() -> None:
            """The second dies, the first writes on, and dies; the second is back."""
            stale.kill()
            wait_for_in_sync(admin, "t", {4})
            assert produce(cluster, 4, "t", b"one").error_code == ErrorCode.NONE
            full.kill()
            stale.start()
            eventually(lambda: {node.node_id for node in admin.describe_cluster().nodes}, lambda found: found == {1, 2, 3, 5})
            assert leaders(admin, "t") == [-1]
            assert 5 not in partitions(admin, "t")[0].in_sync
            assert produce(cluster, 5, "t", b"refused").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        die()
        full.start()
        wait_for_leader(admin, "t", 4, of=cluster)
        assert_replicas_are_equal(cluster, admin, "t")
        assert stored_end(stale.data / "t-0") == 2

        die()
        [refused] = admin.elect_leaders([TopicPartition("t", 0)]).values()
        assert isinstance(refused, KafkaError)
        assert refused.code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert admin.elect_leaders([TopicPartition("t", 0)], unclean=True) == {TopicPartition("t", 0): None}
        wait_for_leader(admin, "t", 5, of=cluster)
        assert visible_end(cluster, 5, "t") == 2, "what only the other had is lost"
        full.start()
        assert_replicas_are_equal(cluster, admin, "t")
        assert stored_end(full.data / "t-0") == 2


@pytest.mark.slow
def test_a_leader_that_is_stopped_in_order_hands_over_first_and_no_producer_gets_an_error(tmp_path: Path) -> None:
    """Each of three in turn, by SIGTERM."""
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.bootstrap) as admin:
        create(cluster, admin, "t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]], min_insync_replicas="2")
        with Stream(cluster.bootstrap, "t", 3) as stream:
            for node in (1, 2, 3):
                stream.go_on()
                cluster.nodes[node].stop()
                for index in range(3):
                    wait_for_in_sync(admin, "t", {1, 2, 3} - {node}, index)
                assert node not in leaders(admin, "t")
                stream.go_on()
                cluster.nodes[node].start()
                for index in range(3):
                    wait_for_in_sync(admin, "t", {1, 2, 3}, index)
            stream.stop()
            stream.check(cluster)
            assert not [line for line in logged(cluster, "broker_fenced") if line.get("reason") == "its process has ended"]
            assert_replicas_are_equal(cluster, admin, "t")


@pytest.mark.slow
def test_committed_offsets_survive_the_death_of_their_coordinator(tmp_path: Path) -> None:
    """Mechanism 58 with ``offsets.topic.replication.factor=3``: another broker coordinates, and the consumer goes on by itself."""
    cluster = ClusterProcesses(tmp_path, offsets_topic_replication_factor="3", offsets_topic_num_partitions="1")
    with cluster, Admin(cluster.bootstrap) as admin:
        create(cluster, admin, "t", [[1, 2, 3]], min_insync_replicas="2")
        with Producer(cluster.bootstrap) as producer, Consumer(cluster.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            last = -1
            for end in (100, 200, 300):
                for future in [producer.send("t", b"%d" % number) for number in range(end - 100, end)]:
                    future.result(WAIT_SECONDS_MAX)
                while last < end - 1:
                    for record in consumer.poll(WAIT_SECONDS_MAX * 1000):
                        assert record.offset == last + 1, "no record comes twice"
                        last = record.offset
                consumer.commit()
                before = coordinator(cluster, next(node for node in cluster.nodes))
                cluster.nodes[before].kill()
                other = next(node for node in cluster.nodes if node != before)
                after = eventually(lambda asked=other: coordinator(cluster, asked), lambda found, b=before: found not in (-1, b))  # type: ignore[misc]
                assert after != before
                committed = eventually(lambda: committed_offset(admin), lambda found: found >= 0)
                assert committed == end
                cluster.nodes[before].start()
                wait_for_in_sync(admin, "__consumer_offsets", {1, 2, 3})
        assert_replicas_are_equal(cluster, admin, "__consumer_offsets")


def coordinator(cluster: ClusterProcesses, asked: int) -> int:
    """Of group g."""
    with RawClient(cluster.nodes[asked].port) as client:
        found: int = client.ask(FindCoordinatorRequest("", 0, ["g"]), 4).coordinators[0].node_id
    return found


def committed_offset(admin: Admin) -> int:
    """Of group g; -1 while no coordinator can say."""
    try:
        return admin.committed_offsets("g")[TopicPartition("t", 0)].offset
    except KafkaError:
        return -1

"""Everything at once, for ``OTTLA_SECONDS`` in each home: kills, pauses, cut links, slow and full disks, moves, changed values, elections.

Three real nodes under the load of four clients; one to three of them are in trouble at a time. In the end what was acknowledged is there,
once and in order, also as librdkafka reads it; the group's commits are kept, and the replicas are equal.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import confluent_kafka
import pytest
from tests.cluster.replicas import create, wait_for_in_sync
from tests.cluster.replicated_killing import ALL, HISTORY, PROPERTIES, REPLICAS, are_kept, by_producer, judge, read_to_the_end, working
from tests.cluster.troubled import TroubledCluster, TroubledZookeeperCluster
from tests.durability.killing import wait_for_group
from tests.durability.load import PARTITION_COUNT, TOPIC, History, HistoryThread, Place, begin_at_the_beginning
from tests.torture.test_cut_links import CUTS
from tests.waiting import eventually

from ottla.errors import KafkaError
from ottla.sync import Admin, Topic, TopicPartition

SECONDS: Final = float(os.environ.get("OTTLA_SECONDS", "300"))
SEED: Final = int(os.environ.get("OTTLA_SEED", "1"))
SENT_PER_TICK: Final = 8
TICK_SECONDS: Final = 0.05
ACKNOWLEDGED_AFTER: Final = 100
TIMEOUTS: Final = {"broker_session_timeout_ms": "2000", "broker_heartbeat_interval_ms": "500", "replica_lag_time_max_ms": "3000"}
Mend = Callable[[], None]


class Allowing(HistoryThread):
    """The producers send at a steady rate, so that a trouble of seconds meets records all the while."""

    def run(self) -> None:
        while not self.stopping.wait(TICK_SECONDS):
            self.history.allow(SENT_PER_TICK)


class Troubles:
    """``begin`` brings one over a node, and tells how it is mended; ``met`` counts them."""

    def __init__(self, cluster: TroubledCluster, admin: Admin, random: Random) -> None:
        self._cluster = cluster
        self._admin = admin
        self._random = random
        self.met = Counter[str]()
        self._kinds = [self._kill, self._pause, self._cut, self._slow_syncs, self._slow_appends, self._fill, self._fill, self._change]
        self._kinds += [self._move, self._move]
        if isinstance(cluster, TroubledZookeeperCluster):
            self._kinds.append(self._zookeeper)

    def begin(self, node: int) -> Mend:
        kind = self._random.choice(self._kinds)
        self.met[kind.__name__[1:]] += 1
        return kind(node)

    def _kill(self, node: int) -> Mend:
        self._cluster.nodes[node].kill()
        return self._cluster.nodes[node].spawn

    def _pause(self, node: int) -> Mend:
        paused = self._cluster.nodes[node]
        paused.send_signal(signal.SIGSTOP)
        return lambda: paused.send_signal(signal.SIGCONT)

    def _cut(self, node: int) -> Mend:
        self._random.choice(CUTS)(self._cluster.hosts, node, self._random.choice(sorted(ALL - {node})))
        return self._cluster.hosts.heal

    def _slow_syncs(self, node: int) -> Mend:
        self._cluster.troubled[node].take_long(sync_ms=self._random.choice([50, 300, 1500]))
        return self._cluster.troubled[node].take_long

    def _slow_appends(self, node: int) -> Mend:
        self._cluster.troubled[node].take_long(append_ms=self._random.choice([20, 100, 600]))
        return self._cluster.troubled[node].take_long

    def _fill(self, node: int) -> Mend:
        self._cluster.troubled[node].disk.fill(but_bytes=self._random.randrange(20_000))
        return self._cluster.troubled[node].disk.empty

    def _move(self, node: int) -> Mend:
        """The node loses its replicas, and gets them back; its disk may be slow to delete them."""
        self._cluster.troubled[node].take_long(sync_ms=self._random.choice([0, 300, 1500]))
        with suppress(KafkaError):
            self._place([[other for other in replicas if other != node] for replicas in REPLICAS])

        def mend() -> None:
            with suppress(KafkaError):  # whoever controls may be away: ``place_back`` follows
                self.place_back()
            self._cluster.troubled[node].take_long()

        return mend

    def place_back(self) -> None:
        """Every node has every partition again, or is about to."""
        self._place(REPLICAS)

    def _place(self, replicas: list[list[int]]) -> None:
        outcomes = self._admin.alter_partition_reassignments({TopicPartition(TOPIC, index): row for index, row in enumerate(replicas)})
        for error in outcomes.values():
            if error is not None:
                raise error

    def _change(self, node: int) -> Mend:
        """Whoever controls may be away: then nothing is changed."""
        with suppress(KafkaError):
            self.set_min_isr(self._random.choice(["1", "2", "3", None]))
        return lambda: None

    def set_min_isr(self, value: str | None) -> None:
        self._admin.alter_configs({Topic(TOPIC): {"min.insync.replicas": value}})

    def _zookeeper(self, node: int) -> Mend:
        assert isinstance(self._cluster, TroubledZookeeperCluster)
        self._cluster.restart_zookeeper()
        return lambda: None


def restarted(cluster: TroubledCluster) -> int:
    """All nodes run and serve; how many had ended by themselves."""
    ended = [node for node in cluster.nodes.values() if not node.is_running]
    for node in ended:
        node.spawn()
    for node in cluster.nodes.values():
        node.wait_until_ready()
    return len(ended)


def goes_on(history: History) -> None:
    """Records are acknowledged again."""
    count = len(history.acknowledged)
    history.wait_for("acknowledgements", lambda: len(history.acknowledged) >= count + ACKNOWLEDGED_AFTER)


def is_changed(change: Callable[[], None]) -> bool:
    try:
        change()
    except KafkaError:
        return False
    return True


def read_by_librdkafka(bootstrap: str, count: int) -> dict[Place, bytes | None]:
    """Every record from the beginning, as a consumer finds it that is none of ours."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "examiner", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(PARTITION_COUNT)])
    found: dict[Place, bytes | None] = {}
    deadline = time.monotonic() + 120
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records were read"
        for message in consumer.consume(1000, 1):
            assert message.error() is None, message.error()
            place = Place(message.partition() or 0, message.offset() or 0)
            assert place not in found, f"{place} comes twice"
            found[place] = message.value()
    consumer.close()
    return found


@pytest.mark.parametrize("kind", [TroubledCluster, TroubledZookeeperCluster], ids=["quorum", "zookeeper"])
def test_what_was_acknowledged_is_there_once_and_in_order_whatever_befalls_the_nodes(
    tmp_path: Path, java_client: list[str], kind: type[TroubledCluster]
) -> None:
    history, random, ended_count, rounds = History(), Random(SEED), 0, 0
    with kind(tmp_path, **PROPERTIES | TIMEOUTS) as cluster, Admin(cluster.bootstrap) as admin:
        create(cluster, admin, TOPIC, REPLICAS)
        begin_at_the_beginning(admin)
        troubles, allowing = Troubles(cluster, admin, random), Allowing(history)
        with working(history, cluster.access, java_client) as (producers, members, reader):
            allowing.start()
            goes_on(history)
            for member in members:
                wait_for_group(history, member)
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                confirmed = dict(history.confirmed)
                meet(troubles, random)
                ended_count += restarted(cluster)
                eventually(lambda: is_changed(troubles.place_back), bool)
                goes_on(history)
                eventually(partial(are_kept, cluster.bootstrap, confirmed), bool)
                if random.random() < 0.6:  # else the next trouble finds some that have not caught up
                    for index in range(PARTITION_COUNT):
                        wait_for_in_sync(admin, TOPIC, ALL, index)
                if random.random() < 0.3:
                    with suppress(KafkaError):
                        admin.elect_leaders()
                rounds += 1
            eventually(lambda: is_changed(lambda: troubles.set_min_isr(None)), bool)
            allowing.join()
            log = read_to_the_end(cluster, history, producers, reader)
        judge(cluster, admin, history, reader, log, tmp_path / HISTORY)
        assert read_by_librdkafka(cluster.bootstrap, len(log)) == {place: value for place, (_, value) in log.items()}
    assert len(history.sent_count) == len(producers), "every client has sent something"
    kinds = ", ".join(f"{count} {name}" for name, count in troubles.met.items())
    print(f"{rounds} rounds ({kinds}), {len(log)} records ({by_producer(history.sent_count)}), {ended_count} nodes ended by themselves")


def meet(troubles: Troubles, random: Random) -> None:
    """One to three troubles of as many nodes, each for some seconds; all of them are mended."""
    mends: list[Mend] = []
    for node in random.sample(sorted(ALL), random.choice([1, 1, 2, 2, 3])):
        mends.append(troubles.begin(node))
        time.sleep(random.choice([0, random.uniform(0, 1.5)]))
    time.sleep(random.choice([0.2, 1, 3, 6]) * random.random())
    random.shuffle(mends)
    for mend in mends:
        mend()

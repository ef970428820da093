"""Transactional producers of five makers on three brokers, at each level of transaction.version, over kill -9 of all that they talk to.

Each transaction writes one number into three topics, and the next number as the offset of a group. The coordinator, the leader of a
partition and the group's coordinator are killed in turn. What cannot end is left to a successor with the same transactional id, which goes
on from the offset: so each number is committed once.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicas import assert_replicas_are_equal, create, leaders
from tests.foreign_clients.test_transactions import CLIENTS, Librdkafka, Offsets, Records, Transactional, committed, read_committed
from tests.waiting import eventually

from ottla.controller.features import TRANSACTION_VERSION
from ottla.sync import Admin, KafkaError
from ottla.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

TOPICS: Final = ("one", "two", "three")
COUNT: Final = 24
KILLED: Final = {4: TRANSACTION_STATE_TOPIC, 10: TOPICS[1], 16: GROUP_METADATA_TOPIC}
"""At which number which topic's leader dies."""
NONE_UNDER: Final = "kafka-python"
"""Version 3.0 forgets a request to a coordinator that it cannot connect to, and waits for its answer for ever: nobody dies here."""


class Java:
    """Kafka's own client: at level 2 where the cluster has it."""

    def __init__(self, command: list[str], bootstrap: str, name: str) -> None:
        self._process = subprocess.Popen(
            [*command, "transactions", bootstrap, name, ",".join(TOPICS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._await()

    def _await(self) -> None:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        if answer != "ok":
            raise RuntimeError(answer)

    def transact(self, records: Records, offsets: Offsets, *, commits: bool) -> None:
        assert self._process.stdin is not None
        [value], [offset] = {value for _, value in records}, offsets.values()
        self._process.stdin.write(f"{'commit' if commits else 'abort'}\t{value.decode()}\t{offset}\n")
        self._process.stdin.flush()
        self._await()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def librdkafka(bootstrap: str, name: str) -> Transactional:
    """By its default strategy librdkafka 2.16 may wait for ever in send_offsets_to_transaction after it has lost all that it knew."""
    return Librdkafka(bootstrap, name, metadata_recovery_strategy="none")


class Cluster(ClusterProcesses):
    def __init__(self, directory: Path, level: int) -> None:
        self.features = {TRANSACTION_VERSION: level}
        super().__init__(
            directory, default_replication_factor="3", min_insync_replicas="2",
            transaction_state_log_num_partitions="1", offsets_topic_num_partitions="1",
        )  # fmt: skip


def kill_leader(cluster: Cluster, topic: str) -> int:
    with Admin(cluster.bootstrap) as admin:
        leader = leaders(admin, topic)[0]
    cluster.nodes[leader].kill()
    return leader


def next_number(cluster: Cluster) -> int:
    """What the group says, once its coordinator answers."""

    def ask() -> int:
        try:
            return committed(cluster, TOPICS[0]).get(0, 0)
        except KafkaError:
            return -1

    return eventually(ask, lambda number: number >= 0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("client", [*CLIENTS, "java"])
def test_each_number_is_committed_once_over_kills_of_three_brokers(tmp_path: Path, java_client: list[str], client: str, level: int) -> None:
    makers: dict[str, Callable[[str, str], Transactional]] = CLIENTS | {"java": partial(Java, java_client), "librdkafka": librdkafka}
    make = makers[client]
    producers: list[Transactional] = []
    with Cluster(tmp_path, level) as cluster:
        with Admin(cluster.bootstrap) as admin:
            for topic in TOPICS:
                create(cluster, admin, topic, [[1, 2, 3], [2, 3, 1]])
        kills, dead, number = {} if client == NONE_UNDER else dict(KILLED), 0, 0
        while number < COUNT:
            assert len(producers) <= len(KILLED) - len(kills), "a producer ends by a death alone"
            try:
                producers.append(make(cluster.bootstrap, client))
                while number < COUNT:
                    if number in kills:
                        if dead:
                            cluster.nodes[dead].start()
                        dead = kill_leader(cluster, kills.pop(number))
                    if number % 3 == 2:
                        producers[-1].transact([(topic, b"aborted %d" % number) for topic in TOPICS], {(TOPICS[0], 0): 99}, commits=False)
                    producers[-1].transact([(topic, b"%d" % number) for topic in TOPICS], {(TOPICS[0], 0): number + 1}, commits=True)
                    number += 1
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - of whatever maker: a successor goes on
                number = next_number(cluster)
        if dead:
            cluster.nodes[dead].start()
        with Admin(cluster.bootstrap) as admin:
            for topic in (*TOPICS, GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC):
                assert_replicas_are_equal(cluster, admin, topic)
        for topic in TOPICS:
            assert sorted(read_committed(cluster, topic), key=int) == [b"%d" % number for number in range(COUNT)]
        assert next_number(cluster) == COUNT
        for producer in producers:
            producer.close()

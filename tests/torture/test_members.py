"""Groups of every client, whose members come and go, while brokers are killed, paused and restarted: they pass over no record."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicas import create, wait_for_in_sync
from tests.foreign_clients.group_members import CLIENTS, SESSION_MS, Member, Readings
from tests.waiting import eventually
from tests.worker_thread import WorkerThread

from ottla.sync import Admin, Producer, TopicPartition

TOPIC: Final = "events"
PARTITIONS: Final = 6
ALL: Final = frozenset({1, 2, 3})
REPLICAS: Final = [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2
PER_ROUND: Final = 600
ROUNDS: Final = 60
"""A third of them take 35 s: the writer waits for the leader that is paused, as long as its request.timeout.ms says."""
PROPERTIES: Final = {
    "min_insync_replicas": "2",
    "offsets_topic_replication_factor": "3",
    "group_min_session_timeout_ms": str(SESSION_MS),
    "broker_session_timeout_ms": "2000",
    "broker_heartbeat_interval_ms": "250",
}


class Writer(WorkerThread):
    """Writes all the while; ``count`` records are acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.problems: list[str] = []
        super().__init__(self.problems.append)
        self._bootstrap = bootstrap
        self.ends = [0] * PARTITIONS

    @property
    def count(self) -> int:
        return sum(self.ends)

    def run(self) -> None:
        with Producer(self._bootstrap) as producer:
            while not self.stopping.is_set():
                for partition in range(PARTITIONS):
                    self.ends[partition] = producer.send_and_wait(TOPIC, b"x" * 100, partition=partition).offset + 1

    def wait_for_more(self) -> None:
        wanted = self.count + PER_ROUND
        eventually(lambda: self.count, lambda found: found >= wanted or bool(self.problems))
        assert not self.problems, self.problems


@contextmanager
def trouble(cluster: ClusterProcesses, kind: str, victim: int) -> Iterator[None]:
    """The broker dies, stands still, or stops as it should; it is back afterwards."""
    node = cluster.nodes[victim]
    match kind:
        case "kill":
            node.kill()
            yield
            node.start()
        case "stop":
            node.stop()
            yield
            node.start()
        case _:
            node.send_signal(signal.SIGSTOP)
            yield
            node.send_signal(signal.SIGCONT)


def test_no_member_of_any_client_passes_over_a_record(tmp_path: Path) -> None:
    print(run(tmp_path, rounds=ROUNDS))


def run(directory: Path, *, rounds: int) -> str:
    with ClusterProcesses(directory, 3, **PROPERTIES) as cluster, Admin(cluster.bootstrap) as admin:
        create(cluster, admin, TOPIC, REPLICAS)
        groups: dict[type[Member], tuple[Readings, list[Member]]] = {}
        for client in CLIENTS:
            readings = Readings()
            members = [client(cluster.bootstrap, TOPIC, readings) for _ in range(2)]
            admin.set_offsets(members[0].group, {TopicPartition(TOPIC, index): 0 for index in range(PARTITIONS)})
            groups[client] = (readings, members)
        writer = Writer(cluster.bootstrap)
        writer.start()
        for _, members in groups.values():
            for member in members:
                member.start()
        kinds = islice(cycle(("kill", "pause", "stop")), rounds)
        for number, kind in enumerate(kinds):
            writer.wait_for_more()
            if number % 2:
                for client, (readings, members) in groups.items():
                    members.append(client(cluster.bootstrap, TOPIC, readings))
                    members[-1].start()
            leaving = [members.pop(0) for _, members in groups.values()] if number % 2 else []
            with trouble(cluster, kind, 1 + number * 2 % 3):
                writer.wait_for_more()
                for member in leaving:
                    member.stopping.set()
            for member in leaving:  # one whose coordinator stood still has waited for it
                member.join()
            for index in range(PARTITIONS):
                wait_for_in_sync(admin, TOPIC, set(ALL), index)
            admin.elect_leaders()
        writer.join()
        report = [judge(client, readings, members, writer.ends) for client, (readings, members) in groups.items()]
    return f"{rounds} rounds, {writer.count} records; read more than once: {', '.join(report)}"


def judge(client: type[Member], readings: Readings, members: list[Member], ends: list[int]) -> str:
    wanted = {(partition, offset) for partition, end in enumerate(ends) for offset in range(end)}
    eventually(lambda: wanted - readings.places, lambda missing: not missing or bool(readings.problems))
    for member in members:
        member.join()
    assert not readings.problems, readings.problems
    assert readings.places == wanted, "nothing was read that was not written"
    return f"{client.__name__} {readings.doubled}"

"""The classic drill: three brokers, three partitions with two replicas each; a broker dies, and comes back. Its clients go on.

    python examples/failover.py [--zookeeper own|HOST:PORT/chroot]

It starts a cluster of its own in a temporary directory, kills Broker 1 with SIGKILL while records are produced (acks=all) and consumed
(in a group), starts it again, and elects the preferred leaders. docs/failover.md explains what is to be seen.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

from ottla.errors import OttlaError
from ottla.sync import Admin, Consumer, NewTopic, Producer, RecordMetadata

TOPIC = "drill"
ASSIGNMENT = {0: [1, 2], 1: [2, 3], 2: [3, 1]}  # the first one is the preferred leader
BEFORE = {0: (1, [1, 2]), 1: (2, [2, 3]), 2: (3, [1, 3])}  # leader, in-sync replicas
WITHOUT_BROKER_1 = {0: (2, [2]), 1: (2, [2, 3]), 2: (3, [3])}
RECORDS_PER_STAGE = 300
PAUSE_S = 0.002
WAIT_S_MAX = 60.0

State = dict[int, tuple[int, list[int]]]


def ottla(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla", *arguments]


@contextlib.contextmanager
def cluster(directory: str, port: int, zookeeper: str | None) -> Iterator[str]:
    """Three brokers serve at the addresses. Their home is a quorum, or the ZooKeeper."""
    command = ottla("cluster", "start", "--nodes", "3", "--json", "--log-level", "warning", "--data", directory, "--port", str(port))
    command += ["--zookeeper", zookeeper] if zookeeper else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["bootstrap"]
        finally:
            process.terminate()


class Clients:
    """A producer that sends numbers to all partitions in turn, and a group of one that reads them. ``problems`` stays empty."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]
        self.sent_count = 0
        self.acknowledged: dict[int, list[tuple[float, float, int, int]]] = {
            index: [] for index in ASSIGNMENT
        }  # sent, when, offset, number
        self.received: dict[int, list[tuple[int, int]]] = {index: [] for index in ASSIGNMENT}  # offset, number
        self.problems: list[str] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Everything that was sent is acknowledged, and read."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def go_on(self) -> None:
        """Many more records have been acknowledged in each partition."""
        wanted = {index: len(found) + RECORDS_PER_STAGE // 3 for index, found in self.acknowledged.items()}
        wait_for(lambda: all(len(found) >= wanted[index] for index, found in self.acknowledged.items()), "the clients to go on")

    def slowest_ms(self, partition: int, since: float) -> float:
        """How long the acknowledgement took that took longest, of the records that were sent since then."""
        return max(when - sent for sent, when, *_ in self.acknowledged[partition] if sent >= since) * 1000

    def _produce(self) -> None:
        with Producer(self._bootstrap, linger_ms=0) as producer:
            while not self._stopping.is_set():
                number, partition, sent = self.sent_count, self.sent_count % len(ASSIGNMENT), time.monotonic()

                def note(metadata: RecordMetadata | None, error: Exception | None, number: int = number, sent: float = sent) -> None:
                    if metadata is None:
                        self.problems.append(f"record {number} was not delivered: {error}")
                    else:
                        self.acknowledged[metadata.partition].append((sent, time.monotonic(), metadata.offset, number))

                producer.send(TOPIC, b"%d" % number, partition=partition, on_delivery=note)
                self.sent_count += 1
                time.sleep(PAUSE_S)

    def _consume(self) -> None:
        with Consumer(self._bootstrap, group_id="drill", auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            while not (self._stopping.is_set() and not self._threads[0].is_alive() and self._has_read_all()):
                try:
                    records = consumer.poll(200)
                except OttlaError as error:  # an application would have to handle it: the drill says that none has to
                    self.problems.append(f"the consumer raised {error!r}")
                    return
                for record in records:
                    self.received[record.partition].append((record.offset, int(record.value or b"")))

    def _has_read_all(self) -> bool:
        return all(len(self.received[index]) >= len(found) for index, found in self.acknowledged.items())

    def verdict(self) -> str:
        """AssertionError when a record is missing, doubled or out of order."""
        assert not self.problems, self.problems
        for index, acknowledged in self.acknowledged.items():
            numbers = list(range(index, self.sent_count, len(ASSIGNMENT)))
            assert sorted(entry[2:] for entry in acknowledged) == list(enumerate(numbers)), f"partition {index} was acknowledged otherwise"
            assert self.received[index] == list(enumerate(numbers)), f"partition {index} was read otherwise"
        return f"{self.sent_count:,} records were sent, acknowledged, and read once and in order; no client reported an error"


def state(admin: Admin) -> State:
    found = admin.describe_topic(TOPIC).partitions
    return {index: (found[index].leader, sorted(found[index].in_sync)) for index in sorted(found)}


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {WAIT_S_MAX:.0f} s for {what}")
        time.sleep(0.01)


def show(admin: Admin, title: str) -> None:
    print(f"{title}\n  partition  replicas  leader  epoch  in sync")
    for index, partition in sorted(admin.describe_topic(TOPIC).partitions.items()):
        replicas, in_sync = (",".join(map(str, found)) for found in (partition.replicas, partition.in_sync))
        print(f"  {index:<9}  {replicas:<8}  {partition.leader:<6}  {partition.leader_epoch:<5}  {in_sync}", flush=True)


def drill(bootstrap: str, directory: str) -> None:
    with Admin(bootstrap) as admin:
        created = admin.create_topics([NewTopic(TOPIC, assignments=ASSIGNMENT, configs={"min.insync.replicas": "1"})])
        assert created == {TOPIC: None}, created
        wait_for(lambda: state(admin) == BEFORE, "the topic")
        clients = Clients(bootstrap)
        clients.start()
        try:
            clients.go_on()
            show(admin, "Three brokers, a producer and a consumer:")

            killed_at = time.monotonic()
            subprocess.run(ottla("cluster", "kill", "1", "--data", directory), check=True, capture_output=True)
            wait_for(lambda: state(admin) == WITHOUT_BROKER_1, "the leadership of partition 0 to move")
            clients.go_on()
            show(admin, "\nBroker 1 was killed (SIGKILL):")
            for index in ASSIGNMENT:
                print(f"  the slowest record of partition {index} was acknowledged after {clients.slowest_ms(index, killed_at):,.0f} ms")

            subprocess.run(ottla("cluster", "restart", "1", "--data", directory), check=True, capture_output=True)
            in_sync = {index: isr for index, (_, isr) in BEFORE.items()}
            wait_for(lambda: {index: isr for index, (_, isr) in state(admin).items()} == in_sync, "Broker 1 to be in sync")
            show(admin, "\nBroker 1 was started again, has caught up, and is in sync:")

            admin.elect_leaders()  # as auto.leader.rebalance.enable does by itself, every five minutes
            wait_for(lambda: state(admin) == BEFORE, "the preferred leaders")
            clients.go_on()
            show(admin, "\nThe preferred leaders were elected:")
        finally:
            clients.stop()
    print(f"\n{clients.verdict()}")


def main() -> None:
    parser = argparse.ArgumentParser(description="The classic drill: a broker dies, and comes back.")
    parser.add_argument("--port", type=int, default=0, help="the first of six free ports on end; they are looked for by default")
    parser.add_argument("--zookeeper", help="the controller's home: 'own' starts an Apache ZooKeeper; a quorum by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-drill-") as directory, cluster(directory, given.port, given.zookeeper) as bootstrap:
        drill(bootstrap, directory)


if __name__ == "__main__":
    main()

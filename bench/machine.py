"""Machine with machine: a broker for each core beside one Apache Kafka broker on the same cores, and a cluster at rest.

The load comes from several processes, or the generator would be what is measured; each connection goes to the leader of its partition, as
a client's does. With N brokers, their generators and whatever else the machine does share the cores: a ratio of one run says more
than the figures. ``python -m bench.machine`` runs it alone.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Final

from bench.generator import Target, pipelined_to, produce_frame
from bench.measures import BATCH_BYTES, RECORD_BYTES, Figures, until_served
from bench.peers import Kafka, Ottla, Peer, children_of, cpu_seconds_of
from bench.report import Rounds, note
from ottla.sync import Admin, NewTopic

GENERATORS: Final = 2
SECONDS: Final = 4.0
ROUNDS: Final = 3
CONNECTIONS: Final = 64
PARTITIONS: Final = 16
ONE_RECORD_WINDOW, BATCH_WINDOW = 8, 16
IDLE_PARTITIONS: Final = 600
SETTLE_SECONDS, REST_SECONDS = 10.0, 30.0


class Machine(Ottla):
    """As many brokers as there are cores to use, under one supervisor."""

    def __init__(self) -> None:
        super().__init__(listeners=f"PLAINTEXT://127.0.0.1:{_first_free(4 * len(os.sched_getaffinity(0)))}")

    def command(self) -> list[str]:
        return [*super().command(), "--cores", "auto"]

    def wait_until_ready(self) -> None:
        self._wait(self._ready_file.exists)
        self._addresses = self._ready_file.read_text().strip()
        host, port = self._addresses.split(",")[0].rsplit(":", 1)
        self.address = (host, int(port))

    @property
    def bootstrap(self) -> str:
        return self._addresses

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds_of, children_of(self.pid)))


def compared(kinds: Sequence[type[Peer]]) -> Rounds:
    """Rounds of both, in turn; the one that is not measured runs and is idle."""
    found: Rounds = {kind.name: [] for kind in kinds}
    peers = [kind() for kind in kinds]
    for peer in peers:
        peer.prepare()
        peer.start()
    try:
        for peer in peers:
            prepare(peer)
        for number in range(ROUNDS + 1):
            for peer in peers:
                figures = one_round(peer)
                if number:  # the first round warms
                    found[peer.name].append(figures)
            note(f"machine: round {number} of {ROUNDS}, load average {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores")
    finally:
        for peer in peers:
            peer.stop()
    return found


def prepare(peer: Peer) -> None:
    def create() -> None:
        with Admin(peer.bootstrap, request_timeout_ms=5000) as admin:
            results = admin.create_topics([NewTopic("one", CONNECTIONS, 1), NewTopic("batches", PARTITIONS, 1)])
        assert not any(results.values()), results

    until_served(create)


def one_round(peer: Peer) -> Figures:
    records = [produce_frame("one", index, batch_bytes=0, record_bytes=RECORD_BYTES) for index in range(CONNECTIONS)]
    batches = [produce_frame("batches", index, batch_bytes=BATCH_BYTES, record_bytes=1024) for index in range(PARTITIONS)]
    figures: Figures = {}
    cpu = peer.cpu_seconds()
    rate, count = load(targets(peer, "one", records), ONE_RECORD_WINDOW)
    figures["machine: one-record requests/s, 64 connections"] = rate
    figures["machine: CPU us per one-record request"] = (peer.cpu_seconds() - cpu) / count * 1e6
    cpu = peer.cpu_seconds()
    rate, count = load(targets(peer, "batches", batches), BATCH_WINDOW)
    figures["machine: 16 KiB batches MB/s, 16 partitions"] = rate * len(batches[0]) / 1e6
    figures["machine: CPU s/GB, 16 KiB batches, 16 partitions"] = (peer.cpu_seconds() - cpu) / (count * len(batches[0]) / 1e9)
    return figures


def targets(peer: Peer, topic: str, frames: list[bytes]) -> list[Target]:
    """Each partition's request, and its leader's address."""
    with Admin(peer.bootstrap) as admin:
        nodes = {node.node_id: (node.host, node.port) for node in admin.describe_cluster().nodes}
        leaders = admin.describe_topic(topic).partitions
    return [(nodes[leaders[index].leader], frame) for index, frame in enumerate(frames)]


def load(wanted: list[Target], window: int) -> tuple[float, int]:
    """Answers a second, and answers, of all generators together."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(GENERATORS), context.Queue()
    shares = [wanted[number::GENERATORS] for number in range(GENERATORS)]
    generators = [context.Process(target=_generate, args=(share, window, barrier, results)) for share in shares]
    for generator in generators:
        generator.start()
    found = [results.get(timeout=120) for _ in generators]
    for generator in generators:
        generator.join()
    return sum(responses / seconds for responses, seconds in found), sum(responses for responses, _ in found)


def _generate(share: list[Target], window: int, barrier: Barrier, results: multiprocessing.Queue[tuple[int, float]]) -> None:
    barrier.wait()
    done = pipelined_to(share, window=window, seconds=SECONDS)
    results.put((done.responses, done.seconds))


def at_rest(directory: Path) -> Figures:
    """Three nodes with 600 partitions and nothing to do: processor time of the busiest one, over half a minute."""
    command = [
        sys.executable,
        "-m",
        "ottla",
        "cluster",
        "start",
        "-n",
        "3",
        "--json",
        "--data",
        str(directory),
        "--port",
        str(_first_free(8)),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None, "it is a pipe"
        serving = json.loads(process.stdout.readline())
        with Admin(serving["bootstrap"], request_timeout_ms=60_000) as admin:
            assert admin.create_topics([NewTopic("idle", IDLE_PARTITIONS, 3)]) == {"idle": None}
        time.sleep(SETTLE_SECONDS)
        nodes = children_of(process.pid)
        before, begin = list(map(cpu_seconds_of, nodes)), time.monotonic()
        time.sleep(REST_SECONDS)
        used, seconds = list(map(cpu_seconds_of, nodes)), time.monotonic() - begin
        process.terminate()
    shares = [(after - earlier) / seconds * 100 for earlier, after in zip(before, used, strict=True)]
    return {"a node of three at rest, 600 partitions, % of a core": max(shares)}


def _first_free(count: int) -> int:
    from ottla.cli.nodes.plan import choose_ports

    return choose_ports(count, 20_000 + os.getpid() % 1000 * 10)


def run(kinds: Sequence[type[Peer]], directory: Path) -> Rounds:
    """The rows of both; the second side has none of a cluster at rest."""
    found = compared([Machine, *kinds[1:]])
    rest = at_rest(directory)
    note(f"at rest: {rest}")
    for figures in found[Machine.name]:
        figures |= rest
    return found


def main() -> None:
    import tempfile

    from bench.goals import MACHINE_GOALS
    from bench.report import report

    why_not = Kafka.why_not()
    kinds: list[type[Peer]] = [Ottla] if why_not is not None else [Ottla, Kafka]
    with tempfile.TemporaryDirectory() as directory:
        figures = run(kinds, Path(directory) / "cluster")
    beside = "Apache Kafka 4.3.0, one node, 1 GiB heap, G1" if why_not is None else f"none: {why_not}"
    report("machine", figures, beside=f"{beside}, on the same cores", goals=MACHINE_GOALS)


if __name__ == "__main__":
    main()

"""How long three controllers take to fence a broker with many replicas, and what they do meanwhile.

``python -m bench.fencing [PARTITIONS [CONTROLLERS]]``. All controllers share the machine, so that each has a part of its processors only.
The brokers are pretended: three connections that register, send heartbeats and host every partition, of three replicas each, in topics of
1,000. One of them falls silent. The controllers go by its session alone (``ottla.failure.detection=timeouts``). Told are the time from
the session's end to the record that fences it, the elections of the quorum, the longest heartbeat of the others, and the longest turn of
the active controller's loop in processor time.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.cluster.processes import CLUSTER_ID, format_
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.foreign_clients.wire import RawClient
from tests.hostile.judge import longest_turn_seconds

from ottla.controller.features import FEATURES
from ottla.errors import ErrorCode
from ottla.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

SESSION_MS: Final = 9_000
PERIOD_SECONDS: Final = 0.5
TOPIC_PARTITIONS: Final = 1_000
CAUGHT_UP: Final = 2**62


class Controllers:
    """Three of them, in processes of their own."""

    def __init__(self, directory: Path, count: int) -> None:
        ports = lasting_ports(2 * count)
        self.ports = ports[:count]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(self.ports, 1))
        self.nodes = []
        for node, port in enumerate(self.ports, 1):
            own = directory / str(node)
            own.mkdir()
            made = BrokerProcess(
                own, port=port, node_id=str(node), process_roles="controller", controller_quorum_voters=voters,
                controller_listener_names="C",
                listeners=f"C://127.0.0.1:{port}", ottla_admin_listener=str(ports[count + node - 1]), ottla_failure_detection="timeouts",
            )  # fmt: skip
            format_(made, CLUSTER_ID)
            self.nodes.append(made)

    def leader(self) -> tuple[int, int]:
        """The active controller, from 0 on, and its epoch."""
        while True:
            for port in self.ports:
                with contextlib.suppress(OSError), RawClient(port) as client:
                    found = client.ask(DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])]), 2)
                    [state] = found.topics[0].partitions
                    if found.error_code == 0 and state.error_code == 0 and state.leader_id > 0:
                        return state.leader_id - 1, state.leader_epoch
            time.sleep(0.05)

    def turn_seconds(self, index: int) -> float:
        return longest_turn_seconds(int(self.nodes[index].properties["ottla.admin.listener"]))

    def said(self, what: str) -> bool:
        return any(what in node.log() for node in self.nodes)


class Pretended:
    """A broker that says what one says, and hosts nothing."""

    def __init__(self, controllers: Controllers, broker_id: int) -> None:
        self._controllers = controllers
        self._id = broker_id
        self._epoch = -1
        self.is_silent = False
        self.is_ended = False
        self.is_served = threading.Event()
        self.longest_seconds = 0.0
        self.heard_at = 0.0
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        while not self.is_ended:
            with (
                contextlib.suppress(OSError, AssertionError, ValueError),
                RawClient(self._controllers.ports[self._controllers.leader()[0]]) as client,
            ):
                if self._epoch < 0:
                    self._epoch = client.ask(self._registration(), 4).broker_epoch
                while not self.is_ended and self._epoch >= 0 and self._beat(client):
                    time.sleep(PERIOD_SECONDS)
            time.sleep(0.02)

    def _registration(self) -> BrokerRegistrationRequest:
        features = [Feature(name, *levels) for name, levels in FEATURES.items()]
        own = bytes([self._id]) * 16
        return BrokerRegistrationRequest(self._id, CLUSTER_ID, own, [Listener("PLAINTEXT", "127.0.0.1", 9, 0)], features, log_dirs=[own])

    def _beat(self, client: RawClient) -> bool:
        if self.is_silent:
            return True
        began = time.monotonic()
        answer = client.ask(BrokerHeartbeatRequest(self._id, self._epoch, CAUGHT_UP), 2)
        self.heard_at = began
        self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
        if not answer.is_fenced:
            self.is_served.set()
        return bool(answer.error_code == ErrorCode.NONE)


@contextlib.contextmanager
def running(controllers: Controllers) -> Iterator[None]:
    for node in controllers.nodes:
        node.spawn()
    try:
        for node in controllers.nodes:
            node.wait_until_ready()
        yield
    finally:
        for node in controllers.nodes:
            if node.is_running:
                node.kill()


def main(count: int, controller_count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="ottla-fencing-") as directory:
        controllers = Controllers(Path(directory), controller_count)
        with running(controllers):
            brokers = [Pretended(controllers, broker_id) for broker_id in (11, 12, 13)]
            assert all(broker.is_served.wait(60) for broker in brokers)
            create(controllers, count)
            time.sleep(5)
            leader, epoch = controllers.leader()
            controllers.turn_seconds(leader)
            for broker in brokers:
                broker.longest_seconds = 0.0
            brokers[0].is_silent = True
            while not controllers.said("broker_left_partitions"):
                time.sleep(0.02)
            took = time.monotonic() - brokers[0].heard_at - SESSION_MS / 1000
            turn = controllers.turn_seconds(leader)
            longest = max(broker.longest_seconds for broker in brokers[1:])
            print(f"{count} replicas: fenced {took:.2f} s after its session's end, elections {controllers.leader()[1] - epoch},")
            print(f"longest heartbeat {longest * 1000:.0f} ms, longest turn of the controller {turn * 1000:.1f} ms of processor time")
            for broker in brokers:
                broker.is_ended = True


def create(controllers: Controllers, count: int) -> None:
    began = time.monotonic()
    with RawClient(controllers.ports[controllers.leader()[0]]) as client:
        for number in range(count // TOPIC_PARTITIONS):
            answer = client.ask(CreateTopicsRequest([CreatableTopic(f"topic-{number}", TOPIC_PARTITIONS, 3)], 60_000), 7)
            assert answer.topics[0].error_code == 0, answer
    print(f"{count} partitions made in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*given, *(200_000, 3)[len(given) :])

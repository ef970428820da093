"""Nodes that are stopped by SIGSTOP under load and go on later, as after a long pause of a virtual machine: they wake up as who they were.

Some pauses end before the session does, some after it: then others lead by now, and what the node still wants to say is refused.
"""

from __future__ import annotations

import itertools
import signal
import time
from pathlib import Path
from typing import Any, Final, Self

from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicated_killing import run
from tests.foreign_clients.broker_process import BrokerProcess

PAUSE_COUNT = 20
SESSION_MS = 2_000
PAUSES_S: Final = (0.3, 3.5, 1.9, 6.0)


class PausingNode(BrokerProcess):
    """``kill`` stops it for a while, ``start`` lets it go on."""

    def __init__(self, directory: Path, **properties: Any) -> None:
        super().__init__(directory, **properties)
        self._pauses_s = itertools.cycle(PAUSES_S)
        self._is_paused = False

    def kill(self) -> None:
        self.send_signal(signal.SIGSTOP)
        self._is_paused = True
        time.sleep(next(self._pauses_s))
        self.send_signal(signal.SIGCONT)

    def start(self) -> Self:
        if self._is_paused:  # it goes on already
            self._is_paused = False
            return self
        return super().start()


class PausingCluster(ClusterProcesses):
    node_type = PausingNode


def test_nodes_that_pause_and_go_on_lose_and_double_nothing_and_the_replicas_are_equal(tmp_path: Path, java_client: list[str]) -> None:
    session = {"broker_session_timeout_ms": str(SESSION_MS), "broker_heartbeat_interval_ms": str(SESSION_MS // 4)}
    print(run(tmp_path, kill_count=PAUSE_COUNT, make=PausingCluster, java=java_client, **session))
    fenced = sum(log.read_text().count("broker_fenced") for log in tmp_path.glob("node-*/broker.log"))
    assert fenced >= PAUSE_COUNT // len(PAUSES_S), "some pauses were longer than the session"

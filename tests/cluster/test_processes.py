"""What starts processes for the tests leaves none that it could not hand over, and they can be interrupted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.processes import ClusterProcesses
from tests.foreign_clients import broker_process
from tests.foreign_clients.broker_process import BrokerProcess

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_time_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_process, "START_SECONDS_MAX", 0.0)


def test_a_cluster_that_does_not_start_leaves_no_process(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path)
    with pytest.raises(RuntimeError, match="did not start"), cluster:
        pass
    assert [node.pid > 0 and node.is_running for node in cluster.nodes.values()] == [False] * 3


def test_a_broker_that_does_not_start_leaves_no_process(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    with pytest.raises(RuntimeError, match="did not start"), broker:
        pass
    assert broker.pid > 0
    assert not broker.is_running


def test_an_interrupt_is_one_where_the_tests_were_started_with_sigint_ignored() -> None:
    """As by a script's ``make test &``; what is ignored would be inherited by every process that the tests start."""
    code = "import signal, tests.conftest; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    command = ["sh", "-c", 'trap "" INT; exec "$0" -c "$1"', sys.executable, code]
    assert subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout == "True\n"

"""Which brokers a command asks that names none: the nodes of the cluster of this machine that run, else who listens at the usual port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.cli.cluster_command import ClusterCommand, consecutive_ports, ottla
from tests.foreign_clients.broker_process import lasting_ports

from ottla.cli import local_brokers
from ottla.cli.main import cli
from ottla.cli.nodes.place import ClusterFile, NodeStatus, Place, PlaceState
from ottla.runtime.serve import BrokerThread
from ottla.runtime.supervision.control import Answer, Order, serve_control
from ottla.sync import Admin, NewTopic


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """Has the topic ``here``."""
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path_factory.mktemp("data"))}) as thread:
        with Admin(thread.bootstrap) as admin:
            admin.create_topics([NewTopic("here", 1)])
        yield thread


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The usual place of this machine's cluster, with a cluster that does not run; where commands look, nothing listens."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)
    monkeypatch.setattr(local_brokers, "LOCAL", f"127.0.0.1:{lasting_ports(1)[0]}")
    directory = tmp_path / "ottla" / "cluster"
    directory.mkdir(parents=True)
    found = Place(str(directory))
    found.write(ClusterFile("cluster", "id", [1, 2], [1, 2]))
    return found


@contextlib.contextmanager
def supervised(place: Place, bootstrap: str) -> Iterator[None]:
    """A supervisor answers for nodes at these addresses."""
    nodes = [NodeStatus(1, ["broker"], "serving", os.getpid(), bootstrap.split(",", maxsplit=1)[0], None, None)]
    state = PlaceState("id", os.getpid(), bootstrap, nodes, "zookeeper z")
    place.write_state(state)
    loop, ready = asyncio.new_event_loop(), threading.Event()

    async def carry_out(order: Order) -> Answer:
        return Answer(state=msgspec.Raw(msgspec.json.encode(state)))

    def run() -> None:
        server = loop.run_until_complete(serve_control(place.path, carry_out))
        loop.call_soon(ready.set)
        loop.run_forever()
        server.close()
        loop.run_until_complete(server.wait_closed())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(60)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_a_command_asks_the_nodes_of_the_cluster_that_runs_whichever_of_them_serves(place: Place, broker: BrokerThread) -> None:
    dead = f"127.0.0.1:{lasting_ports(1)[0]}"
    with supervised(place, f"{dead},{broker.bootstrap}"):
        done = call("topic", "list")
        assert (done.exit_code, "here" in done.stdout, done.stderr) == (0, True, ""), done.output
    assert place.state() is not None, "as a supervisor leaves it that was killed"
    gone = call("topic", "list")
    assert local_brokers.LOCAL in str(gone.exception), gone.output


def test_a_stopped_cluster_gives_way_to_the_broker_that_serves(place: Place, broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (("cluster", "status"), ("cluster", "health")):
        assert "does not run" in (done := call(*command)).stderr or "no cluster runs" in str(done.exception)
    monkeypatch.setattr(local_brokers, "LOCAL", broker.bootstrap)
    for command in (("cluster", "status"), ("cluster", "health")):
        done = call(*command)
        assert (done.exit_code, "does not run; asking the broker at" in done.stderr) == (0, True)
    assert "here" in call("topic", "list").stdout


def test_where_a_cluster_and_a_broker_serve_the_line_says_which_is_asked(
    place: Place, broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "other")}) as other:
        monkeypatch.setattr(local_brokers, "LOCAL", other.bootstrap)
        with supervised(place, broker.bootstrap):
            for command in (("topic", "list"), ("cluster", "health")):
                done = call(*command)
                line = f"asking the cluster of `ottla cluster start` at {broker.bootstrap}; -B {other.bootstrap} asks the broker there"
                assert (done.exit_code, done.stderr) == (0, f"ottla: {line}\n"), done.output
            assert call("topic", "list", "-B", other.bootstrap).stderr == ""


@pytest.mark.slow
def test_after_the_first_node_was_killed_commands_find_the_others(tmp_path: Path) -> None:
    directory = tmp_path / "ottla" / "cluster"
    directory.parent.mkdir()
    port = consecutive_ports(10)
    with ClusterCommand(directory, "--port", str(port), port=port).started("-n", "3") as cluster:
        cluster.call("kill", "1")
        created = ottla("topic", "create", "late", XDG_DATA_HOME=str(tmp_path), OTTLA_BOOTSTRAP="")
        assert created.returncode == 0, created.stderr
        cluster.call("stop")


@pytest.mark.parametrize("way", ["option", "variable", "override"])
def test_servers_of_the_properties_are_asked_where_no_others_are_named(
    broker: BrokerThread, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Whatever the order of the options; a server that is named takes precedence, and so does one of the environment."""
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker.bootstrap if way != 'override' else '127.0.0.1:1'}\n")
    options = ["-X", f"bootstrap.servers={broker.bootstrap}"] if way == "override" else []
    if way == "variable":
        monkeypatch.setenv("OTTLA_COMMAND_CONFIG", str(file))
    else:
        options += ["--command-config", str(file)]
    assert "here" in call("topic", "list", *options).stdout
    assert call("cluster", "health", *options).exit_code == 0
    assert "127.0.0.1:1" in str(call("topic", "list", "-B", "127.0.0.1:1", *options).exception)
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "127.0.0.1:1")
    assert "127.0.0.1:1" in str(call("topic", "list", *options).exception)

"""What commands say of a cluster that answers nowhere: which of its addresses refuse, and which take connections and do nothing."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port

from ottla.cli import cluster_health_command
from ottla.cli.main import cli
from ottla.cli.output import way_out
from ottla.cli.tried_addresses import try_addresses
from ottla.errors import KafkaError


def test_a_node_that_waits_for_its_quorum_is_not_said_to_be_stopped_or_behind_a_firewall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its port listens before it serves. Health had SIGSTOP and a firewall, and not the two nodes that were down."""
    monkeypatch.setattr(cluster_health_command, "TIMEOUT_MS", 300)
    refusing = f"127.0.0.1:{lasting_port()}"
    with socket.create_server(("127.0.0.1", 0)) as waiting:
        taking = f"127.0.0.1:{waiting.getsockname()[1]}"
        problem = CliRunner().invoke(cli, ["cluster", "health", "-B", f"{taking},{refusing}"]).exception
        assert isinstance(problem, KafkaError)
        assert f"{taking} takes connections, and no client gets an answer: the node there starts, or waits for" in problem.message
        assert f"{refusing} refuses connections: start the node there (`ottla broker start FILE`" in problem.message
        assert "firewall" not in problem.message
        assert way_out(problem) == ""
        alone = CliRunner().invoke(cli, ["cluster", "health", "-B", taking]).exception
        assert isinstance(alone, KafkaError)
        assert alone.message.endswith("-B with the addresses of all brokers says which of them refuse")


def test_addresses_are_sorted_by_what_they_do() -> None:
    free = lasting_port()
    with socket.create_server(("127.0.0.1", 0)) as waiting:
        port = waiting.getsockname()[1]
        tried = try_addresses([("127.0.0.1", port), ("127.0.0.1", free), ("no-such-host.invalid", 1)])
    assert (tried.taking, tried.refusing, tried.silent) == ([f"127.0.0.1:{port}"], [f"127.0.0.1:{free}"], ["no-such-host.invalid:1"])
    assert tried.said(asked=3).endswith("no-such-host.invalid:1 does not answer: a firewall or a wrong address is in the way")


def test_the_port_of_pages_is_said_to_be_one(tmp_path: Path) -> None:
    """It was "no answer", after some seconds."""
    pages = f"127.0.0.1:{lasting_port()}"
    with BrokerProcess(tmp_path, ottla_admin_listener=pages):
        for command in (("cluster", "health"), ("topic", "list")):
            problem = CliRunner().invoke(cli, [*command, "-B", pages]).exception
            assert isinstance(problem, KafkaError)
            assert f"{pages} answers in HTTP: it has pages, as ottla.admin.listener does, and is no listener" in problem.message

"""``ottla user``, ``--command-config`` and ``-X``, against a broker that asks who connects."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.broker.sasl import GUARDED, LISTENER
from tests.broker.test_node import properties
from tests.cli.test_commands import items, ottla

from ottla.cli.main import cli
from ottla.client.admin import Broker
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(properties(tmp_path_factory.mktemp("guarded"), **GUARDED)) as thread:
        yield thread


def test_users_are_added_used_listed_and_deleted(broker: BrokerThread, tmp_path: Path) -> None:
    address = f"127.0.0.1:{broker.addresses[LISTENER][1]}"
    admin = tmp_path / "admin.properties"
    admin.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nbootstrap.servers=elsewhere:9092\nacks=1\nsasl.jaas.config="
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice-secret";\n'
    )
    (tmp_path / "password").write_text("dave's secret\n")
    as_admin = ["--command-config", str(admin)]
    assert ottla(address, "user", "add", "dave", *as_admin, "--password-file", str(tmp_path / "password")).returncode == 0
    assert ottla(address, "user", "add", "erin", *as_admin, "-m", "SCRAM-SHA-512", "--password-file", "-", stdin="e\n").returncode == 0
    assert ottla(address, "user", "add", "frank", *as_admin, "--password-file", "-", stdin="\n").returncode == 2
    unasked = ottla(address, "user", "add", "frank", *as_admin, stdin="")
    assert (unasked.returncode, "no terminal to ask for the password" in unasked.stderr, "Warning" in unasked.stderr) == (2, True, False)
    rows = items(ottla(address, "user", "list", *as_admin, "--format", "json"))
    assert [(row["user"], row["mechanism"]) for row in rows] == [
        ("dave", "SCRAM-SHA-256"), ("dave", "SCRAM-SHA-512"), ("erin", "SCRAM-SHA-512"),
    ]  # fmt: skip

    def as_dave(password: str) -> list[str]:
        given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.plain.username": "dave"}
        return [part for key, value in (given | {"sasl.plain.password": password}).items() for part in ("-X", f"{key}={value}")]

    assert ottla(address, "topic", "create", "orders", *as_dave("dave's secret")).returncode == 0
    assert ottla(address, "produce", "orders", *as_dave("dave's secret"), stdin="hello\n").returncode == 0
    assert ottla(address, "consume", "orders", "-n", "1", *as_dave("dave's secret")).stdout == "hello\n"
    refused = ottla(address, "topic", "list", *as_dave("guess"))
    assert (refused.returncode, refused.stderr.startswith("ottla: SASL_AUTHENTICATION_FAILED")) == (1, True)
    assert "guess" not in refused.stdout + refused.stderr
    planned = ottla(address, "user", "delete", "dave", *as_admin)
    assert (planned.returncode, "would delete the credentials of dave for" in planned.stderr) == (1, True)
    assert ottla(address, "topic", "list", *as_dave("dave's secret")).returncode == 0
    assert ottla(address, "user", "delete", "dave", "--yes", *as_admin).returncode == 0
    assert ottla(address, "topic", "list", *as_dave("dave's secret")).returncode == 1
    assert ottla(address, "user", "delete", "dave", *as_admin).returncode == 1


def test_what_the_metadata_log_keeps_of_users_is_not_shown(tmp_path: Path) -> None:
    secret = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_zoe="zoe-secret";'
    with BrokerThread(properties(tmp_path / "data", **GUARDED)) as broker:
        assert ottla(broker.bootstrap, "user", "add", "dave", "--password-file", "-", stdin="d\n").returncode == 0
        with Admin(broker.bootstrap) as admin:
            key = f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config"
            admin.alter_configs({Broker(1): {key: secret, "log.retention.ms": 7654321}})
        assert broker._broker is not None
        [record] = [found for found in broker._broker.image.scram_credentials.values() if found.mechanism == 1]
    [segment] = (tmp_path / "data" / "__cluster_metadata-0").glob("*.log")
    for options, is_shown in (((), False), (("--show-secrets",), True)):
        [dumped] = items(ottla("", "dump-log", "--records", "--format", "json", *options, str(segment)))
        values = [found["value"] for batch in dumped["entries"] for found in batch["records"]]
        assert any(isinstance(value, dict) and value.get("value") == "7654321" for value in values), "what is not secret is shown"
        assert (base64.b64encode(record.stored_key).decode() in json.dumps(values)) is is_shown
        assert ("zoe-secret" in json.dumps(values)) is is_shown


@pytest.mark.parametrize("option", [("-X", "sasl.mechanisms=PLAIN"), ("-X", "colour"), ("--command-config", "/nowhere")])
def test_a_property_that_no_client_has_is_refused(broker: BrokerThread, option: tuple[str, str]) -> None:
    result = ottla(broker.bootstrap, "topic", "list", *option)
    assert result.returncode == 2


def test_the_limit_of_a_call_is_a_property_of_commands(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections, and answers nothing
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        file = tmp_path / "client.properties"
        file.write_text("default.api.timeout.ms=60000\n")
        for command in (("topic", "list"), ("broker", "list")):
            limited = ("-B", address, "-X", "default.api.timeout.ms=100", "--command-config", str(file))
            error = CliRunner().invoke(cli, [*command, *limited]).exception
            assert isinstance(error, KafkaError), error
            assert (error.code, "default_api_timeout_ms=100" in error.message) == (ErrorCode.REQUEST_TIMED_OUT, True)

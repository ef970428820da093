"""Secrets with a mark, in every place that takes one, and a search of everything that a broker writes, shows or answers.

The metadata log alone may have them: it keeps what was configured while the broker ran, and can be read by the broker's user alone.
"""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.certificates import Authority
from tests.broker.sasl import MECHANISMS, authenticate_by_scram, handshake, token
from tests.broker.test_tls_listeners import encrypted
from tests.cli.test_commands import ottla
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.foreign_clients.wire import RawClient

from ottla.client.admin import Broker as BrokerResource
from ottla.errors import KafkaError
from ottla.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.security.plain import plain_token
from ottla.security.scram import ScramMechanism
from ottla.sync import Admin
from ottla.types import Secret

MARK = "m4rk"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = f'{MODULE} username="admin" password="{MARK}-own" user_admin="{MARK}-own" user_alice="{MARK}-alice";'


class Marked:
    def __init__(self, broker: BrokerProcess, guarded: int, admin: int, authority: Authority) -> None:
        self.broker = broker
        self.guarded = guarded
        self.admin = admin
        self.authority = authority


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    authority = Authority(tmp_path / "certificates")
    server = authority.issue("broker")
    port, guarded, tls, admin = lasting_ports(4)
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},GUARDED://127.0.0.1:{guarded},BOTH://127.0.0.1:{tls}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT,BOTH:SASL_SSL",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.guarded.plain.sasl.jaas.config": JAAS,
        "listener.name.both.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.key": encrypted(server.key, f"{MARK}-key"),
        "ssl.keystore.certificate.chain": server.chain,
        "ssl.key.password": f"{MARK}-key",
        "ottla.admin.listener": str(admin),
        "connection.failed.authentication.delay.ms": "1",
    }
    (tmp_path / "broker").mkdir()
    with BrokerProcess(tmp_path / "broker", port=port, **properties) as broker:
        yield Marked(broker, guarded, admin, authority)


def page(port: int, path: str) -> str:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


@pytest.mark.slow
def test_a_secret_is_found_nowhere(marked: Marked) -> None:
    broker, shown = marked.broker, []
    with Admin(broker.bootstrap) as admin:
        key = "listener.name.guarded.plain.sasl.jaas.config"
        changed = JAAS.replace(";", f' user_zoe="{MARK}-zoe";')
        admin.alter_configs({BrokerResource(1): {key: changed}})
        for wrong in (f"{MODULE} user_zoe={MARK}!", f'com.example.Module required password="{MARK}";', f"{MARK};"):
            with pytest.raises(KafkaError) as caught:
                admin.alter_configs({BrokerResource(1): {key: wrong}})
            shown.append(str(caught.value))
        for name in ("ssl.keystore.key", "listener.name.both.ssl.key.password"):
            with pytest.raises(KafkaError) as caught:
                admin.alter_configs({BrokerResource(1): {name: f"{MARK}-other"}})
            shown.append(str(caught.value))
        shown.append(repr(admin.describe_configs(BrokerResource(1))))
    with RawClient(broker.port) as client:
        described = client.ask(DescribeConfigsRequest([DescribeConfigsResource(4, "1")], True, True), 4)
        shown.append(repr(described))
    with RawClient(marked.guarded) as client:
        handshake(client)
        assert token(client, plain_token("zoe", Secret(f"{MARK}-zoe"))).error_code == 0, "the change is in force"
    for mechanism in MECHANISMS:
        for sent in (plain_token("alice", Secret(f"{MARK}-guess")), f"n,,n={MARK},r=nonce".encode(), f"{MARK}".encode() * 100):
            with RawClient(marked.guarded) as client:
                handshake(client, mechanism)
                shown.append(repr(token(client, sent)))
    with RawClient(marked.guarded) as client:
        shown.append(repr(authenticate_by_scram(client, f"{MARK}-user", f"{MARK}-guess", ScramMechanism.SHA_256)))
    shown += [page(marked.admin, path) for path in ("/metrics", "/metrics/partitions", "/healthz", "/readyz")]
    for command in (("config", "get", "--broker", "1"), ("config", "get", "--broker", "1", "--all"), ("config", "diff", "--broker", "1")):
        result = ottla(broker.bootstrap, *command)
        shown.append(result.stdout + result.stderr)
    file = broker.directory / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in broker.properties.items() if "\n" not in value))
    result = ottla("", "config", "lint", str(file))
    shown.append(result.stdout + result.stderr)
    broker.stop()
    shown.append(broker.log())
    assert "authentication_failed" in shown[-1]
    for path in broker.data.rglob("*"):
        if path.is_file() and "__cluster_metadata" not in path.parent.name:
            shown.append(path.read_bytes().decode("latin-1"))
    assert not [text for text in shown if MARK in text]
    for path in broker.data.rglob("*"):
        if path.is_file() and "__cluster_metadata" in path.parent.name:
            assert path.stat().st_mode & 0o077 == 0, path

"""A certificate between nodes that is not valid any more, and the one that replaces it while the node runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.certificates import Authority, Certificate

from ottla.broker.requests.stores import TlsStores
from ottla.config import BrokerConfig
from ottla.errors import KafkaError
from ottla.runtime.world import real_world
from ottla.tls import ClientAuth, TlsClient, TlsKeys, TlsServer
from ottla.types import Secret


def keys_of(issued: Certificate) -> TlsKeys:
    return TlsKeys(issued.chain, Secret(issued.key))


class Replacing:
    """The stores of a node whose certificate for the others has expired; each side asks the other for its certificate."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "first")
        self._directory = directory
        old = keys_of(self.issue("old", not_after=datetime.now(UTC) - timedelta(minutes=1)))
        config = BrokerConfig(
            {
                "process.roles": "controller",
                "node.id": "1",
                "controller.listener.names": "CTL",
                "controller.quorum.voters": "1@127.0.0.1:1",
                "listeners": "CTL://127.0.0.1:1",
                "listener.security.protocol.map": "CTL:SSL",
            }
        )
        gate: Any = SimpleNamespace(servers={"CTL": self.server(old, self.authority)})
        between = SimpleNamespace(listener="CTL", tls=self.client(old, self.authority))
        introductions: Any = SimpleNamespace(brokers=SimpleNamespace(listener=None, tls=None), controllers=between)
        self._stores = TlsStores(real_world(io_threads=1), config, gate, introductions)

    def issue(self, place: str, authority: Authority | None = None, **more: Any) -> Certificate:
        return (authority or self.authority).issue("node", directory=self._directory / place, **more)

    def server(self, keys: TlsKeys, trusted: Authority) -> TlsServer:
        return TlsServer(keys, trusted.pem, ClientAuth.REQUIRED)

    def client(self, keys: TlsKeys, trusted: Authority) -> TlsClient:
        return TlsClient(trusted.pem, keys)

    def judge(self, issued: Certificate, trusted: Authority) -> None:
        keys = keys_of(issued)
        self._stores._judge("CTL", self.server(keys, trusted), self.client(keys, trusted))


def test_a_controller_whose_certificate_has_expired_takes_the_next_one(tmp_path: Path) -> None:
    """Neither side would take the old one, so it was held against each new one until the node was started again."""
    replacing = Replacing(tmp_path)
    replacing.judge(replacing.issue("new"), replacing.authority)


def test_nodes_that_trust_another_authority_still_count(tmp_path: Path) -> None:
    replacing = Replacing(tmp_path)
    other = Authority(tmp_path / "second", "second")
    with pytest.raises(KafkaError, match="nodes' that have the old stores connections to it would fail"):
        replacing.judge(replacing.issue("new", other), other)
    with pytest.raises(KafkaError, match="this node's connections to it would fail"):
        replacing.judge(replacing.issue("again", other), replacing.authority)

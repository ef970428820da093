"""The admin pages over TLS: who sees what, and who sees nothing."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.broker.certificates import Authority
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.waiting import eventually

from ottla.broker.node import Broker
from ottla.client.admin.resources import Broker as OneBroker
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.runtime.world import real_world
from ottla.sync import Acl, Admin, UserChange
from ottla.types import Secret

STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
USERS: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_monitor="monitor-secret" user_guest="guest-secret";'
WAIT_SECONDS_MAX: Final = 30


class Pages:
    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "certificates")
        port, self.port = lasting_ports(2)
        properties = {
            "ottla.admin.listener": f"https://127.0.0.1:{self.port}",
            "listener.name.admin.ssl.keystore.location": str(self.authority.issue("broker").store),
            "listener.name.admin.ssl.truststore.location": str(self.authority.trust),
            "listener.name.admin.ssl.client.auth": "requested",
            "listener.name.admin.ssl.principal.mapping.rules": "RULE:.*CN=([^,]*).*/$1/",
            "listener.name.admin.plain.sasl.jaas.config": USERS,
            "authorizer.class.name": STANDARD,
            "super.users": "User:ANONYMOUS;User:monitor",
        }
        self.broker = BrokerProcess(directory, port=port, **properties)

    def get(self, path: str, user: str = "", *, certificate: str | None = None, header: str | None = None) -> tuple[int, bytes, str | None]:
        """Status, body and the challenge."""
        context = ssl.create_default_context(cafile=str(self.authority.trust))
        if certificate is not None:
            context.load_cert_chain(self.authority.issue(certificate).store)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS_MAX, context=context)
        given = header or ("Basic " + base64.b64encode(user.encode()).decode() if user else None)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={} if given is None else {"Authorization": given})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.getheader("WWW-Authenticate")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    made = Pages(tmp_path_factory.mktemp("guarded"))
    with made.broker:
        yield made
    assert "secret" not in made.broker.log().replace("client.credentials.client.secret", "").replace("delegation.token.secret.key", "")


def test_only_health_and_readiness_are_served_without_credentials(pages: Pages) -> None:
    for path in ("/metrics", "/metrics/partitions", "/version", "/no-page"):
        status, body, challenge = pages.get(path)
        assert (status, challenge) == (401, 'Basic realm="ottla", charset="UTF-8"')
        assert json.loads(body) == {"error": "a name and a password are needed"}
    assert pages.get("/healthz")[0] == 200
    assert json.loads(pages.get("/readyz")[1]) == {"status": "ready"}


def test_a_user_of_the_file_sees_all_and_a_wrong_password_is_an_unknown_user(pages: Pages) -> None:
    status, body, _ = pages.get("/metrics", "monitor:monitor-secret")
    assert status == 200
    assert b"kafka_server" in body
    assert b'ottla_certificate_expiry_seconds{listener="ADMIN"}' in body
    assert "reasons" in json.loads(pages.get("/readyz", "monitor:monitor-secret")[1])
    refused = [pages.get("/metrics", user) for user in ("monitor:guessed", "nobody:guessed", "monitor:", ":", "monitor:guest-secret")]
    others = [pages.get("/metrics", header=text) for text in ("Basic ???", "Bearer abc", "Basic", "Basic " + "x" * 3000)]
    assert {(status, body) for status, body, _ in refused + others} == {(401, refused[0][1])}


def test_a_user_without_the_right_is_refused_until_it_has_it_and_a_changed_password_counts_at_once(pages: Pages) -> None:
    with Admin(pages.broker.bootstrap) as admin:
        assert pages.get("/metrics", "bob:bob-secret")[0] == 401
        admin.alter_users([UserChange("bob", "SCRAM-SHA-512", Secret("bob-secret"))])
        eventually(lambda: pages.get("/metrics", "bob:bob-secret")[0], lambda status: status == 403)
        assert "reasons" not in json.loads(pages.get("/readyz", "bob:bob-secret")[1])
        admin.create_acls([Acl(ResourceType.CLUSTER, "kafka-cluster", "User:bob", Operation.DESCRIBE)])
        assert pages.get("/metrics", "bob:bob-secret")[0] == 200
        assert pages.get("/metrics", "bob:bob-secret")[0] == 200  # remembered
        admin.alter_users([UserChange("bob", "SCRAM-SHA-512", Secret("new-secret"))])
        assert pages.get("/metrics", "bob:bob-secret")[0] == 401
        assert pages.get("/metrics", "bob:new-secret")[0] == 200
        admin.alter_users([UserChange("bob", "SCRAM-SHA-512")])
        assert pages.get("/metrics", "bob:new-secret")[0] == 401


def test_a_password_of_the_key_that_was_changed_counts_at_once(pages: Pages) -> None:
    key, broker = "listener.name.admin.plain.sasl.jaas.config", OneBroker(1)
    with Admin(pages.broker.bootstrap) as admin:
        admin.alter_configs({broker: {key: USERS.replace("monitor-secret", "next-secret")}})
        eventually(lambda: pages.get("/metrics", "monitor:next-secret")[0], lambda status: status == 200)
        assert pages.get("/metrics", "monitor:monitor-secret")[0] == 401
        admin.alter_configs({broker: {key: None}})
        eventually(lambda: pages.get("/metrics", "monitor:monitor-secret")[0], lambda status: status == 200)
        assert pages.get("/metrics", "monitor:next-secret")[0] == 401


def test_a_certificate_is_a_name_too(pages: Pages) -> None:
    assert pages.get("/metrics", certificate="monitor")[0] == 200
    assert pages.get("/metrics", certificate="guest")[0] == 403
    assert pages.get("/metrics", "guest:guest-secret", certificate="monitor")[0] == 403  # a password counts before it


def test_silent_and_plain_connections_keep_no_client_out(pages: Pages) -> None:
    silent = [socket.create_connection(("127.0.0.1", pages.port)) for _ in range(70)]
    with contextlib.ExitStack() as stack:
        for sock in silent:
            stack.enter_context(sock)
        with socket.create_connection(("127.0.0.1", pages.port), WAIT_SECONDS_MAX) as plain, contextlib.suppress(ConnectionResetError):
            plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert b"kafka" not in plain.recv(1 << 16)
        assert pages.get("/metrics", "monitor:monitor-secret")[0] == 200


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "listener ADMIN: ssl.keystore.location is not set"),
        ({"listener.name.admin.ssl.keystore.location": "/nowhere.pem"}, "the store /nowhere.pem cannot be read"),
        ({"listeners": "ADMIN://127.0.0.1:0", "listener.security.protocol.map": "ADMIN:PLAINTEXT"}, "listeners has ADMIN"),
    ],
)
def test_pages_that_could_not_be_guarded_are_refused_before_a_port_is_bound(tmp_path: Path, given: dict[str, str], says: str) -> None:
    own = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0", "ottla.admin.listener": "https://127.0.0.1:0"}

    async def start() -> None:
        with pytest.raises(KafkaError) as caught:
            await Broker(real_world(), BrokerConfig(own | given)).start()
        assert caught.value.code == ErrorCode.INVALID_CONFIG
        assert says in caught.value.message

    asyncio.run(start())
    assert not (tmp_path / "data").exists()

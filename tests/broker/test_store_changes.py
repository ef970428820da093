"""Keys and certificates of listeners change while a broker runs: connections from then on have them, and a bad one is refused (KIP-978)."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from tests.broker.certificates import Authority, Certificate
from tests.broker.test_node import properties
from tests.foreign_clients.wire import RawClient
from tests.waiting import eventually

from ottla.broker.upkeep import expired_stores
from ottla.cli.main import cli
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.alter_configs import AlterConfigsRequest
from ottla.messages.alter_configs import AlterConfigsResource as Replacement
from ottla.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, Broker

KEYS: Final = "listener.name.tls.ssl.keystore.location"
FOR_ONE: Final = "is set for one broker, by its id, and not for all of them"
TRUST: Final = "listener.name.mutual.ssl.truststore.location"
LISTENERS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0,MUTUAL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,MUTUAL:SSL",
    "listener.name.mutual.ssl.client.auth": "required",
}


class Changing:
    """A broker whose stores may change."""

    def __init__(self, directory: Path, **more: str) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.authority = Authority(directory / "certificates")
        self.first = self.authority.issue("broker")
        self.store = directory / "store.pem"
        self.store.write_bytes(self.first.store.read_bytes())
        stores = {"ssl.keystore.location": str(self.store), "listener.name.mutual.ssl.truststore.location": str(self.authority.trust)}
        self.properties = properties(directory / "data", **LISTENERS, **stores, **more)

    @contextlib.contextmanager
    def running(self) -> Iterator[Changing]:
        with BrokerThread(self.properties) as self.broker, Admin(self.broker.bootstrap) as self.admin:
            yield self

    def set(self, values: dict[str, str | None], name: str = "1") -> None:
        self.admin.alter_configs({Broker(int(name) if name else None): values})

    def port(self, listener: str) -> int:
        return self.broker.addresses[listener][1]

    def connect(self, listener: str = "TLS", shows: Certificate | None = None) -> ssl.SSLSocket:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if shows is not None:
            context.load_cert_chain(shows.store)
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.port(listener)), 30))

    def presented(self) -> bytes:
        """The certificate that a new connection meets."""
        with self.connect() as client:
            return client.getpeercert(binary_form=True) or b""

    def again(self, name: str = "broker", **more: Any) -> Certificate:
        """Another key and certificate of the same subject."""
        directory = self.directory / f"again-{len(list(self.directory.iterdir()))}"
        return self.authority.issue(name, directory=directory, **more)


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changing]:
    with Changing(tmp_path_factory.mktemp("changing")).running() as made:
        yield made


ASKED: Final = b"\0\0\0\x0e\0\x12\0\0\0\0\0\1\0\4test"
"""ApiVersions."""


def is_served(client: ssl.SSLSocket) -> bool:
    client.sendall(ASKED)
    return len(client.recv(1 << 16)) > 4


def test_connections_from_then_on_have_the_new_store_and_open_ones_stay(changing: Changing) -> None:
    before = changing.presented()
    with changing.connect() as client:
        assert is_served(client)
        changing.set({KEYS: str(changing.again().store)})
        after = changing.presented()
        assert after != before
        assert is_served(client)
    changing.store.write_bytes(changing.again().store.read_bytes())
    changing.set({KEYS: str(changing.store)})
    third = changing.presented()
    changing.store.write_bytes(changing.again().store.read_bytes())
    assert changing.presented() == third, "nobody has said that the file is another one"
    changing.set({KEYS: str(changing.store)})  # which it was before
    fourth = changing.presented()
    assert len({before, after, third, fourth}) == 4
    changing.store.write_bytes(changing.first.store.read_bytes())
    changing.set({KEYS: None})
    assert changing.presented() == before, "the file that the broker was started with"


def test_a_changed_trust_store_changes_the_trusted_clients(changing: Changing, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    stranger, known = other.issue("stranger"), changing.authority.issue("known")

    def is_let_in(shows: Certificate) -> bool:
        with changing.connect("MUTUAL", shows) as client, contextlib.suppress(OSError):
            return is_served(client)
        return False

    assert (is_let_in(known), is_let_in(stranger)) == (True, False)
    changing.set({TRUST: str(other.trust)})
    assert (is_let_in(known), is_let_in(stranger)) == (False, True)
    changing.set({TRUST: None})
    assert (is_let_in(known), is_let_in(stranger)) == (True, False)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({KEYS: "/nowhere.pem"}, "the store /nowhere.pem cannot be read"),
        ({KEYS: "{fifo}"}, "it is not a regular file"),
        ({KEYS: "/dev/zero"}, "it is not a regular file"),
        ({KEYS: "{directory}"}, "cannot be read"),
        ({KEYS: "{large}"}, "it has more than"),
        ({KEYS: "nul\0l"}, "cannot be read"),
        ({KEYS: "{trust}"}, "has 0 private keys and 1 certificates"),
        ({KEYS: "{crossed}"}, "the private key is not that of the certificate"),
        ({KEYS: "{other}"}, "ssl.allow.dn.changes=true in the node's file would allow it"),
        ({KEYS: "{fewer}"}, "ssl.allow.san.changes=true in the node's file would allow it"),
        ({KEYS: "{expired}"}, "the new certificate expired at 20"),
        ({KEYS: "{early}"}, "the new certificate is not valid before 20"),
        ({KEYS: "{good}", "listener.name.tls.ssl.keystore.key": "hush"}, "exclude each other"),
        ({"listener.name.tls.ssl.keystore.key": "hush"}, "exclude each other"),
        ({TRUST: "{crossed_trust}"}, "what is trusted is not a list of certificates"),
        ({"listener.name.mutual.ssl.truststore.certificates": "hush"}, "exclude each other"),
        ({"listener.name.plaintext.ssl.keystore.location": "{good}"}, "no listener of that name that speaks TLS"),
        ({"listener.name.nobody.ssl.keystore.location": "{good}"}, "no listener of that name that speaks TLS"),
        ({"ssl.keystore.location": "{good}"}, "set for one listener, as listener.name.<listener>.ssl.keystore.location"),
        ({"listener.name.mutual.ssl.client.auth": "none"}, "change this in its file"),
        ({"listener.name.tls.ssl.protocol": "TLSv1.2"}, "change this in its file"),
    ],
)
def test_what_cannot_be_used_is_refused_and_changes_nothing(changing: Changing, tmp_path: Path, values: dict[str, str], says: str) -> None:
    before = changing.presented()
    other = changing.authority.issue("other")
    places = {name: tmp_path / name for name in ("fifo", "directory", "large", "crossed", "crossed_trust")}
    os.mkfifo(places["fifo"])
    places["directory"].mkdir()
    with places["large"].open("wb") as file:
        file.truncate(5 << 20)
    places["crossed"].write_text(other.key + changing.first.chain)
    places["crossed_trust"].write_text(changing.first.chain.replace("M", "!"))
    named = {name: str(path) for name, path in places.items()} | {"trust": str(changing.authority.trust), "other": str(other.store)}
    named |= {"good": str(changing.again().store), "fewer": str(changing.again(hosts=["127.0.0.1"]).store)}
    named["expired"] = str(changing.again(not_after=datetime.now(UTC) - timedelta(minutes=1)).store)
    named["early"] = str(changing.again(not_before=datetime.now(UTC) + timedelta(hours=1)).store)
    filled: dict[str, str | None] = {key: value.format(**named) for key, value in values.items()}
    with pytest.raises(KafkaError) as caught:
        changing.set(filled)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert says in caught.value.message
    assert "hush" not in caught.value.message
    assert "PRIVATE" not in caught.value.message
    assert changing.presented() == before
    assert changing.broker._broker is not None
    assert not changing.broker._broker.image.broker_configs("1").keys() & filled.keys()


@pytest.mark.parametrize(
    ("validity", "says", "client_says"),
    [
        ({"not_after": -1}, "expired at 20", "certificate has expired; an ottla broker takes a new one within a minute"),
        ({"not_before": 60}, "is not valid before 20", "certificate is not yet valid; compare the clock of this machine"),
    ],
)
def test_a_listener_whose_certificate_is_not_valid_takes_the_new_one_by_itself(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    validity: dict[str, int],
    says: str,
    client_says: str,
) -> None:
    """No client that checks certificates could set its key again."""
    monkeypatch.setattr(expired_stores, "LOOK_MS", 20)
    changing = Changing(tmp_path)
    times: dict[str, Any] = {name: datetime.now(UTC) + timedelta(minutes=minutes) for name, minutes in validity.items()}
    changing.store.write_bytes(changing.again(**times).store.read_bytes())
    with changing.running():
        assert " certificate_not_valid " in capfd.readouterr().out.partition("tls_stores_not_loaded")[0], "it came after a minute"
        before = changing.presented()
        secured: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": str(changing.authority.trust)}
        with Admin(f"127.0.0.1:{changing.port('TLS')}", **secured) as admin, pytest.raises(KafkaError, match=client_says):
            admin.describe_cluster()
        eventually(lambda: capfd.readouterr().out, lambda logged: "tls_stores_not_loaded" in logged and says in logged)
        changing.store.write_bytes(changing.again(name="other").store.read_bytes())
        eventually(lambda: capfd.readouterr().out, lambda logged: "ssl.allow.dn.changes" in logged)
        assert changing.presented() == before, "it may have no more than what is set"
        changing.store.write_bytes(changing.again().store.read_bytes())
        eventually(changing.presented, lambda shown: shown != before)


def test_a_file_whose_certificate_is_not_valid_has_a_warning(tmp_path: Path) -> None:
    authority, file = Authority(tmp_path), tmp_path / "server.properties"
    old = authority.issue("broker", not_after=datetime.now(UTC) - timedelta(minutes=1))
    early = authority.issue("early", not_before=datetime.now(UTC) + timedelta(hours=1))
    lines = ["listeners=TLS://:9092,IN://:9093", "listener.security.protocol.map=TLS:SSL,IN:PLAINTEXT", "inter.broker.listener.name=IN"]
    for key, store, says in (
        ("listener.name.tls.ssl.keystore.location", old.store, "expired at 20"),
        ("ssl.keystore.location", old.store, "expired at 20"),
        ("ssl.keystore.location", early.store, "is not valid before 20"),
        ("ssl.keystore.location", tmp_path / "elsewhere.pem", ""),
        ("ssl.keystore.location", authority.issue("valid").store, ""),
    ):
        file.write_text("\n".join([*lines, f"{key}={store}"]))
        done = CliRunner().invoke(cli, ["config", "lint", str(file), "--json"])
        found = [row for row in json.loads(done.stdout)["items"] if "the certificate" in row["text"]]
        assert [(row["line"], row["name"], row["severity"]) for row in found] == [(4, key, "warning")] * bool(says), done.output
        assert all(row["text"].startswith(f"the certificate {says}") for row in found)


def test_nothing_of_a_request_is_done_when_a_store_in_it_is_refused(changing: Changing) -> None:
    bad = AlterConfigsResource(RESOURCE_BROKER, "1", [AlterableConfig(KEYS, 0, "/nowhere.pem")])
    topic = AlterConfigsResource(RESOURCE_TOPIC, "t", [AlterableConfig("retention.ms", 0, "1")])
    stray = AlterConfigsResource(RESOURCE_BROKER, "2", [AlterableConfig(KEYS, 0, str(changing.first.store))])
    with RawClient(changing.port("PLAINTEXT")) as client:
        answer = client.ask(IncrementalAlterConfigsRequest([bad, topic, stray]), 1)
        assert [found.error_code for found in answer.responses] == [ErrorCode.INVALID_REQUEST] * 3
        assert "looked at by broker 2 itself" in answer.responses[2].error_message
        every = AlterConfigsResource(RESOURCE_BROKER, "", [AlterableConfig(KEYS, 0, str(changing.first.store))])
        [of_all] = client.ask(IncrementalAlterConfigsRequest([every]), 1).responses
        assert (of_all.error_code, of_all.error_message) == (ErrorCode.INVALID_REQUEST, f"{KEYS} {FOR_ONE}")
        replaced = client.ask(AlterConfigsRequest([Replacement(RESOURCE_BROKER, "1", [])]), 2)
        assert [found.error_code for found in replaced.responses] == [0], "what it was started with is good"


def test_a_password_that_was_set_is_shown_nowhere(changing: Changing, capfd: pytest.CaptureFixture[str]) -> None:
    key = "listener.name.tls.ssl.key.password"
    changing.set({key: "hush-hush"})
    entries = changing.admin.describe_configs(Broker(1))
    assert entries[key].is_sensitive
    assert "hush" not in repr(entries)
    captured = capfd.readouterr()
    assert "tls_stores_loaded" in captured.out
    assert "hush" not in captured.out + captured.err
    changing.set({key: None})


def test_a_key_of_one_listener_is_among_the_differences(changing: Changing) -> None:
    """It has no default of its own, and `config diff` ended in an IndexError."""
    key = "listener.name.mutual.ssl.client.auth"
    done = CliRunner().invoke(cli, ["config", "diff", "--broker", "1", "-B", changing.broker.bootstrap])
    assert (done.exit_code, [line.split()[:2] for line in done.stdout.splitlines() if key in line]) == (0, [[key, "required"]])


def test_a_broker_starts_with_what_was_set_or_does_not_start(tmp_path: Path) -> None:
    changing = Changing(tmp_path)
    new = changing.again()
    with changing.running():
        changing.set({KEYS: str(new.store)})
        after = changing.presented()
    with changing.running():
        assert changing.presented() == after
    new.store.unlink()
    with pytest.raises(KafkaError, match="cannot be read"), changing.running():
        raise AssertionError("it has started with the store of before")


def test_a_user_without_permission_learns_nothing_of_a_file(tmp_path: Path) -> None:
    more = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:admin"}
    with BrokerThread(Changing(tmp_path, **more).properties) as broker, RawClient(broker.addresses["PLAINTEXT"][1]) as client:
        for path in ("/nowhere.pem", "/etc/passwd"):
            change = AlterConfigsResource(RESOURCE_BROKER, "1", [AlterableConfig(KEYS, 0, path)])
            answer = client.ask(IncrementalAlterConfigsRequest([change]), 1)
            assert [(found.error_code, found.error_message) for found in answer.responses] == [
                (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, answer.responses[0].error_message)
            ]
            assert path not in (answer.responses[0].error_message or "")

"""``ottla certs``: what it makes serves a listener and its client, and is nobody else's to read."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.broker.test_node import properties
from tests.cli.test_commands import items, ottla

from ottla.cli.certs import certs
from ottla.errors import KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, Broker


def test_an_authority_and_what_it_issues_serve_a_listener(tmp_path: Path) -> None:
    place = tmp_path / "certificates"
    assert ottla("", "certs", "authority", str(place)).returncode == 0
    made = items(ottla("", "certs", "issue", str(place), "node-1", "alice", "--host", "127.0.0.1", "--format", "json"))
    assert [(row["subject"], row["hosts"]) for row in made] == [("CN=node-1", "127.0.0.1"), ("CN=alice", "127.0.0.1")]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
    assert modes == {"authority.pem": 0o644, "authority.key": 0o600, "node-1.pem": 0o600, "alice.pem": 0o600}
    given = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.location": str(place / "node-1.pem"),
        "ssl.client.auth": "required",
        "ssl.truststore.location": str(place / "authority.pem"),
    }
    with BrokerThread(properties(tmp_path / "data", **given)) as broker:
        host, port = broker.addresses["SSL"]
        assert broker._broker is not None
        with Admin(
            f"{host}:{port}",
            security_protocol="ssl",
            ssl_truststore_location=str(place / "authority.pem"),
            ssl_keystore_location=str(place / "alice.pem"),
        ) as admin:
            admin.list_topics()
            names = {str(one.principal) for one in list(broker._broker.router.connections) if one.listener == "SSL"}
            assert names == {"User:CN=alice"}
        before = (place / "node-1.pem").read_bytes()
        key = "listener.name.ssl.ssl.keystore.location"
        assert ottla("", "certs", "issue", str(place), "node-1", "--host", "127.0.0.1", "--replace").returncode == 0
        assert (place / "node-1.pem").read_bytes() != before
        with Admin(f"127.0.0.1:{broker.addresses['PLAINTEXT'][1]}") as admin:
            admin.alter_configs({Broker(1): {key: str(place / "node-1.pem")}})
            assert ottla("", "certs", "issue", str(place), "node-1", "--host", "other", "--replace").returncode == 0
            with pytest.raises(KafkaError, match=r"ssl\.allow\.san\.changes"):
                admin.alter_configs({Broker(1): {key: str(place / "node-1.pem")}})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["authority", "{place}"], "is there already"),
        (["issue", "{place}", "node-1"], "give --replace"),
        (["issue", "{place}", "../node-2"], "is not the name of a file"),
        (["issue", "{place}", "authority"], "is not the name of a file"),
        (["issue", "{place}", "x" * 65], "1 to 64 characters"),
        (["issue", "{place}", "node-2", "--host", "a..b"], "is neither the name of a host nor an address"),
        (["issue", "{place}", "node-2", "--host", "10.0.0.1:9092"], "an address, without a port"),
        (["issue", "{place}", "node-2", "--host", "a.example,b.example"], "is neither the name of a host"),
        (["issue", "{empty}", "node-2"], "there is no authority in"),
        (["issue", "{place}", "node-2", "--days", "0"], "--days"),
    ],
)
def test_a_wrong_call_says_why_and_changes_nothing(tmp_path: Path, arguments: list[str], says: str) -> None:
    place, empty = tmp_path / "place", tmp_path / "empty"
    empty.mkdir()
    for first in (["authority", str(place)], ["issue", str(place), "node-1"]):
        assert CliRunner().invoke(certs, first).exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = CliRunner().invoke(certs, [part.format(place=place, empty=empty) for part in arguments])
    assert (done.exit_code, says in " ".join(done.output.split())) == (2, True), done.output
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before

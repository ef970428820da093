"""``ottla cluster start --secure``: TLS, a user and ACLs on every node, and commands that find their properties by themselves."""

from __future__ import annotations

import stat
from pathlib import Path

import click
import pytest
from tests.cli.cluster_command import ClusterCommand, consecutive_ports, ottla

from ottla.cli.chosen_cluster import described
from ottla.cli.nodes.place import Place, PlaceError


@pytest.mark.slow
def test_a_secured_cluster_is_one_command_and_the_others_log_in_by_themselves(tmp_path: Path) -> None:
    port = consecutive_ports(10)
    directory = tmp_path / "ottla" / "cluster"
    directory.parent.mkdir()
    here = {"XDG_DATA_HOME": str(tmp_path), "OTTLA_BOOTSTRAP": "", "OTTLA_COMMAND_CONFIG": ""}
    with ClusterCommand(directory, port=port).started("--secure", "-n", "3", "--port", str(port)) as cluster:
        assert cluster.line["command_config"] == str(directory / "security" / "client.properties")
        created = ottla("topic", "create", "t", **here)
        assert created.returncode == 0, created.stderr
        for command in (("health",), ("status",), ("status", "-B", f"127.0.0.1:{port + 1}"), ("health", "-B", f"127.0.0.1:{port + 2}")):
            seen = ottla("cluster", *command, **here)
            assert seen.returncode == 0, seen.stdout + seen.stderr
        as_stranger = tmp_path / "stranger.properties"
        login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="mallory" password="guessed";'
        trust = directory / "security" / "authority.pem"
        as_stranger.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={trust}\nsasl.jaas.config={login}\n"
        )
        refused = ottla("topic", "list", "--command-config", str(as_stranger), **here)
        assert (refused.returncode, "SASL_AUTHENTICATION_FAILED" in refused.stderr) == (1, True), refused.stderr
        (tmp_path / "open.properties").write_text("security.protocol=PLAINTEXT\n")
        assert ottla("topic", "list", "--command-config", str(tmp_path / "open.properties"), **here).returncode == 1
        assert cluster.call("add").startswith("node 4 has joined")
        cluster.call("kill", "1")
        assert "t" in ottla("topic", "list", **here).stdout
        cluster.call("stop")
        assert cluster.wait() == 0
    secrets = [directory / "security" / name for name in ("client.properties", "nodes.properties", "broker.pem", "authority.key")]
    secrets += directory.glob("node-*/server.properties")
    assert {stat.S_IMODE(file.stat().st_mode) for file in secrets} == {0o600}
    with ClusterCommand(directory, port=port).started() as cluster:
        assert "t" in ottla("topic", "list", **here).stdout, "it is secured still, and the user is the same"
        cluster.call("stop")


def test_a_cluster_that_was_made_open_stays_open_and_zookeeper_is_refused(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    made, _ = described(place, 2, 15_000, ())
    assert made.is_secured is False
    place.write(made)
    with pytest.raises(PlaceError, match="was made without --secure"):
        described(place, None, None, (), is_secured=True)
    with pytest.raises(click.UsageError, match="--secure is for a quorum"):
        described(Place(str(tmp_path / "other")), None, None, (), "own", is_secured=True)

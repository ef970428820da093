"""A bundle for a bug report has what one needs, and no secret that anybody has marked."""

from __future__ import annotations

import json
import socket
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.foreign_clients.broker_process import BrokerProcess
from tests.waiting import eventually

from ottla.cli.bundle import LOG_BYTES_MAX, gather
from ottla.cli.main import cli
from ottla.sync import Admin, Broker, Consumer, NewTopic, Topic

MARK = "marked-secret"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_zoe="{MARK}-zoe";'


def write_secrets(tmp_path: Path) -> tuple[Path, Path]:
    """A broker's file with a secret of each kind, and a log that repeats them."""
    file, log = tmp_path / "server.properties", tmp_path / "node.log"
    secrets = {
        "ssl.keystore.password": f"{MARK}-1",
        "listener.name.x.ssl.key.password": f"{MARK}-2",
        "listener.name.x.plain.sasl.jaas.config": JAAS,
        "my.plugin.token": f"{MARK}-3",
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in secrets.items()) + "num.partitions=7\n")
    log.write_text(f"event one {MARK}-1\npassword {MARK}-zoe token={MARK}-3 {JAAS}\nlast line\n")
    return file, log


def test_a_bundle_of_a_broker_has_all_parts_and_no_secret(tmp_path: Path) -> None:
    file, log = write_secrets(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with BrokerProcess(tmp_path, ottla_admin_listener=str(port)) as broker:
        with Admin(broker.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 1)]) == {"t": None}
            admin.alter_configs({Broker(1): {"message.max.bytes": 2_000_000, "my.plugin.token": f"{MARK}-4"}, Topic("t"): {"flush.ms": 5}})
        target = tmp_path / "bundle.tar.gz"
        options = ["--config", str(file), "--log", str(log), "-o", str(target), "-B", broker.bootstrap]
        done = CliRunner().invoke(cli, ["debug", "bundle", *options])
        again = CliRunner().invoke(cli, ["debug", "bundle", *options])
    assert done.exit_code == 0, done.output
    assert (again.exit_code, "the file is there already" in " ".join(again.stderr.split())) == (2, True), "it is not overwritten"
    with tarfile.open(target) as archive:
        found = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        texts = {name.removeprefix("ottla-debug/"): content.read().decode() for name, content in found.items() if content is not None}
    assert not [name for name, text in texts.items() if MARK in text]
    assert not [name for name in texts if name.endswith(".error.txt")]
    assert {"versions.json", "cluster.json", "health.txt", "topics.json", "groups.json", "directories.json", "quorum.json"} <= texts.keys()
    assert "num.partitions=7" in texts["configuration/0-server.properties"]
    assert "ssl.keystore.password=[hidden]" in texts["configuration/0-server.properties"]
    assert texts["logs/0-node.log"].splitlines()[-1] == "last line"
    assert json.loads(texts["brokers/1/configuration.json"])["message.max.bytes"] == {"value": "2000000", "source": "BROKER"}
    assert "kafka_server_replicamanager_partitioncount" in texts["brokers/1/metrics.txt"]
    assert "healthy" in texts["health.txt"]


def test_a_cluster_that_does_not_answer_leaves_the_rest(tmp_path: Path) -> None:
    file, log = write_secrets(tmp_path)
    log.write_bytes(b"x" * LOG_BYTES_MAX + b"the end")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        found = gather(nobody, None, (str(file), str(tmp_path / "absent.properties")), (str(log),))
    assert "no broker at" in found["cluster.json.error.txt"].decode()
    assert "FileNotFoundError" in found["configuration/1-absent.properties.error.txt"].decode()
    assert found["logs/0-node.log"].endswith(b"the end")
    assert len(found["logs/0-node.log"]) == LOG_BYTES_MAX


def test_a_stable_group_is_a_line_of_the_log(tmp_path: Path) -> None:
    """So is one that is empty again."""
    with BrokerProcess(tmp_path) as broker:
        with Admin(broker.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 1)]) == {"t": None}
        with Consumer(broker.bootstrap, group_id="readers") as consumer:
            consumer.subscribe(["t"])
            while not consumer.assignment():
                consumer.poll(100)
        log = eventually(broker.log_file.read_text, lambda log: "group_empty" in log)  # the line comes after the answer
    assert "topic_created" in log
    stable = next(line for line in log.splitlines() if "group_stable" in line)
    assert all(part in stable for part in ("readers", "generation_id", "members"))


@pytest.mark.parametrize("text", ["ab", ""])
def test_a_short_value_is_hidden_where_it_is_set_and_replaced_nowhere(tmp_path: Path, text: str) -> None:
    file, log = tmp_path / "server.properties", tmp_path / "node.log"
    file.write_text(f"ssl.keystore.password={text}\n")
    log.write_text("about a cab\n")
    found = gather("127.0.0.1:1", None, (str(file),), (str(log),))
    assert found["configuration/0-server.properties"] == b"ssl.keystore.password=[hidden]\n"
    assert found["logs/0-node.log"] == b"about a cab\n"

"""The image's files, read, and its entry point, run: no daemon of containers is needed."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from tests.foreign_clients.broker_process import lasting_port
from tests.waiting import eventually

from ottla.cli.main import cli
from ottla.config import BrokerConfig, from_environment
from ottla.sync import Admin, KafkaError

ROOT: Final = Path(__file__).parent.parent.parent
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
SECONDS_MAX: Final = 60


def test_the_image_runs_as_nobody_special_keeps_its_data_and_says_whether_it_is_well() -> None:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = {line.split()[0]: line for line in text.splitlines() if line and not line.startswith(("#", " "))}
    assert lines["USER"] == "USER ottla"
    assert lines["VOLUME"] == "VOLUME /var/lib/ottla"
    assert "/readyz" in text
    [entry] = re.findall(r'ENTRYPOINT \["/usr/local/bin/([\w-]+)"\]', text)
    assert f"COPY packaging/{entry} /usr/local/bin/{entry}" in text
    assert (ROOT / "packaging" / entry).stat().st_mode & stat.S_IXUSR
    variables = dict(re.findall(r"(\w+)=(\S+)", lines["ENV"]))
    config = BrokerConfig(from_environment(variables))
    assert not config.unknown
    assert config["log.dirs"] == ["/var/lib/ottla/data"]
    assert config["ottla.admin.listener"] == "127.0.0.1:8080"


def test_the_compose_file_is_the_one_that_is_generated_and_its_nodes_are_configured() -> None:
    done = CliRunner().invoke(cli, ["generate", "compose", "--cluster-id", CLUSTER_ID])
    assert done.exit_code == 0, done.output
    assert (ROOT / "compose.yaml").read_text() == done.output
    services = json.loads(done.output)["services"]
    assert list(services) == ["ottla-1", "ottla-2", "ottla-3"]
    for node, service in enumerate(services.values(), 1):
        config = BrokerConfig(from_environment(service["environment"]))
        assert not config.unknown
        assert (config.node_id, config["default.replication.factor"], config["min.insync.replicas"]) == (node, 3, 2)
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    other = CliRunner().invoke(cli, ["generate", "compose", "--nodes", "1"])
    assert json.loads(other.output)["services"]["ottla-1"]["environment"]["CLUSTER_ID"] != CLUSTER_ID


@pytest.mark.slow
def test_the_entry_point_formats_serves_and_stops(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "ottla").write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla "$@"\n')
    (tools / "ottla").chmod(0o755)
    port, data = lasting_port(), tmp_path / "data"
    environment = os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}", "CLUSTER_ID": CLUSTER_ID, "KAFKA_LOG_DIRS": str(data),
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
    }  # fmt: skip
    for _ in range(2):  # the second start finds its directory formatted
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen([ROOT / "packaging" / "container-start"], env=environment, stdout=log, stderr=log)
        try:
            eventually(lambda: served_cluster(f"127.0.0.1:{port}"), lambda found: found == CLUSTER_ID)
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0, (tmp_path / "log").read_text()
        finally:
            process.kill()
            process.wait()
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    assert events.count("broker_started") == 2


def served_cluster(bootstrap: str) -> str | None:
    """The id of the cluster that is served; None while none is."""
    try:
        with Admin(bootstrap, request_timeout_ms=1000) as admin:
            return admin.describe_cluster().cluster_id
    except KafkaError:
        return None

"""Dashboards, rules and units: they ask only for what a broker reports."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from tests.admin_http.test_pages import get
from tests.cli.named_commands import fault_of
from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.wire import RawClient

from ottla import sync
from ottla.cli.exit_codes import CANNOT_CONTINUE, INTERRUPTED, WRONG_CONFIG
from ottla.cli.main import cli
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.runtime.supervision.supervisor import STOP_SECONDS_MAX

REPOSITORY = Path(__file__).parents[2]
OF_PROMETHEUS_ITSELF = {"up"}
OF_CERTIFICATES = {"ottla_certificate_expiry_seconds"}
"""What only a broker with TLS reports: ``tests/admin_http/test_guarded.py``."""


def generate(*arguments: str) -> Any:
    result = CliRunner().invoke(cli, ["generate", *arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Every metric that a broker in use reports, with the names of its labels."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    found: dict[str, set[str]] = {}
    with BrokerProcess(tmp_path_factory.mktemp("generate"), ottla_admin_listener=str(port)) as broker:
        with sync.Producer(broker.bootstrap) as producer:
            producer.send("t", b"x").result(20)
        with sync.Consumer(broker.bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            consumer.subscribe(["t"])
            assert consumer.poll(20_000)
            consumer.commit()
            with RawClient(broker.port) as client:
                client.ask(FindCoordinatorRequest("t", 1), 2)  # an error of a whole request
            for page in ("/metrics", "/metrics/partitions", "/metrics/lag"):
                for family in text_string_to_metric_families(get(broker, page)[2].decode()):
                    for sample in family.samples:
                        found.setdefault(sample.name, {"instance", "job"}).update(sample.labels)
    return found


def names_in(query: str) -> set[str]:
    without_labels = re.sub(r"\{[^}]*\}|(by|on|group_right) \([^)]*\)", "", query)
    found = set(re.findall(r"[a-z_]{2,}(?![a-z_(])(?=[^(a-z_]|$)", without_labels))
    return found - {"sum", "rate", "max", "or", "and", "on", "group_right", "offset", "delta", "increase", "min_over_time", "unless"}


def labels_in(query: str, legend: str = "") -> set[str]:
    asked = {name.strip() for names in re.findall(r"by \(([^)]*)\)", query) for name in names.split(",")}
    return asked | set(re.findall(r"(\w+)(?=!?=~?\")", query)) | set(re.findall(r"\{\{(\w+)\}\}", legend))


def listed() -> dict[str, set[str]]:
    """Every metric that ``docs/reference/metrics.md`` lists, with the names of its labels."""
    found: dict[str, set[str]] = {}
    for line in (REPOSITORY / "docs/reference/metrics.md").read_text().splitlines():
        if line.startswith("| `"):
            name, kind, _, labels, _ = (cell.strip() for cell in line.strip("|").split(" | "))
            for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
                found[name.strip("` ") + suffix] = set(re.findall(r"`(\w+)`", labels)) | {"instance", "job"}
    return found


def test_the_reference_lists_each_metric_that_brokers_show_or_that_a_page_an_alert_or_a_dashboard_names(
    served: dict[str, set[str]],
) -> None:
    """It lacked those that a broker at rest does not show: errors, lag, throttles, the ends of certificates."""
    known = listed()
    for name, labels in served.items():
        name = name.removesuffix("_total" * (name not in known))  # the parser appends it to the names of counters
        assert name in known, name
        assert labels <= known[name], (name, labels)
    texts = {str(path): path.read_text() for path in (REPOSITORY / "docs").glob("*.md")}
    texts |= {name: json.dumps(generate("grafana-dashboard", name)) for name in ("brokers", "lag")}
    texts["alerts"] = json.dumps(generate("alert-rules"))
    metric = r"\b(?:kafka_(?:server|controller|network|log|cluster|consumergroup|topic|coordinator)|ottla|process)_[a-z0-9_]+"
    for place, text in texts.items():
        for name in re.findall(metric, text):
            is_metric = not name.startswith("ottla_") or name.endswith(("_total", "_bytes", "_seconds", "_lag"))
            assert not is_metric or name in known or f"{name}_count" in known, (place, name)


def test_what_each_node_reports_of_the_whole_cluster_is_not_added_up() -> None:
    """With four partitions offline and two nodes the panel showed eight."""
    for panel in generate("grafana-dashboard", "brokers")["panels"]:
        for target in panel.get("targets", []):
            if "offlinepartitions" in target["expr"] or "fencedbroker" in target["expr"]:
                assert target["expr"].startswith("max(")


def test_a_dashboard_has_variables_for_the_job_and_the_instance_and_each_panel_follows_them() -> None:
    for name in ("brokers", "lag"):
        dashboard = generate("grafana-dashboard", name)
        assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["datasource", "job", "instance"]
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                assert re.search(r'job=~"\$job(-lag)?",instance=~"\$instance"', target["expr"]), target
    titles = {panel["title"] for panel in generate("grafana-dashboard", "brokers")["panels"]}
    assert titles >= {"Errors", "Changes of replicas in sync", "Replication bytes", "Leaders", "Usable bytes", "Metadata log end"}
    assert titles >= {"Client throttle time", "Partitions with late transactions", "Consumer lag"}


@pytest.mark.parametrize("name", ["brokers", "lag"])
def test_a_dashboard_asks_for_what_brokers_tell(served: dict[str, set[str]], name: str) -> None:
    dashboard = generate("grafana-dashboard", name)
    known = listed() | served
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len(panels) >= 4
    for target in [target for panel in panels for target in panel["targets"]]:
        [metric] = names_in(target["expr"])
        assert metric in known, target
        assert labels_in(target["expr"], target["legendFormat"]) <= known[metric], target
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


def test_alert_rules_ask_for_what_brokers_tell(served: dict[str, set[str]]) -> None:
    [group] = generate("alert-rules")["groups"]
    names = {rule["alert"] for rule in group["rules"]}
    assert names >= {"CertificateExpires", "CertificateExpiresSoon"}
    [lagging] = [rule for rule in group["rules"] if rule["alert"] == "UnderReplicatedPartitions"]
    assert lagging["for"] == "3m", "each rolling restart would have fired it"
    assert names >= {"ConsumerLag", "GroupStalled"}, "named on docs/production.md"
    assert names >= {"UnderReplicatedPartitions", "NotOneActiveController", "OfflinePartitions", "OfflineDataDirectories"}
    assert names >= {"DiskFull", "UncleanLeaderElection", "LogCut", "DamagedSegment", "MissingReplica"}, "lost records raised no alarm"
    assert names >= {"ReplicaDoesNotCatchUp", "AtMinIsrPartitions", "SlowRequests", "FailedRequests", "OpenDescriptors", "ClockSkew"}
    assert names >= {"FencedBroker", "VoterLags", "FailedIsrUpdates", "LateTransactions", "FailedLogins"}
    for name in ("UncleanLeaderElection", "DamagedSegment", "MissingReplica", "LogCut"):
        [lossy] = [rule for rule in group["rules"] if rule["alert"] == name]
        assert "_total > 0 and time() - process_start_time_seconds < 3600" in lossy["expr"], "what is counted before the first scrape"
    for rule in group["rules"]:
        assert names_in(rule["expr"])
        assert rule["annotations"]["description"], "an alert had no next step"
        assert names_in(rule["expr"]) <= served.keys() | listed().keys() | OF_PROMETHEUS_ITSELF | OF_CERTIFICATES, rule


def test_scrape_jobs_name_the_brokers() -> None:
    config = generate("prometheus-config", "a:9644", "b:9644")
    assert [job["static_configs"][0]["targets"] for job in config["scrape_configs"]] == [["a:9644", "b:9644"]] * 3


def test_pages_over_tls_are_scraped_with_a_user_and_an_authority() -> None:
    """Off loopback an authorizer demands them, and the configuration had to be written by hand."""
    access = ("--ca", "ca.pem", "--username", "metrics", "--password-file", "metrics.password")
    jobs = generate("prometheus-config", "https://a:9644", "https://b:9644", "--job", "bus", *access)["scrape_configs"]
    assert [job["job_name"] for job in jobs] == ["bus", "bus-partitions", "bus-lag"]
    for job in jobs:
        assert (job["scheme"], job["static_configs"]) == ("https", [{"targets": ["a:9644", "b:9644"]}])
        assert job["tls_config"] == {"ca_file": "ca.pem"}
        assert job["basic_auth"] == {"username": "metrics", "password_file": "metrics.password"}
    for wrong in (("a:1", "https://b:1"), ("a:1", "--ca", "ca.pem"), ("https://a:1", "--username", "metrics")):
        assert CliRunner().invoke(cli, ["generate", "prometheus-config", *wrong]).exit_code == 2


def test_rules_are_for_the_job_and_the_lag_that_are_asked_for() -> None:
    rules = {rule["alert"]: rule["expr"] for rule in generate("alert-rules", "--job", "bus", "--lag", "50000")["groups"][0]["rules"]}
    assert (rules["BrokerDown"], rules["ConsumerLag"].endswith("> 50000")) == ('up{job="bus"} == 0', True)
    usual = {rule["alert"]: rule["expr"] for rule in generate("alert-rules")["groups"][0]["rules"]}
    assert (usual["BrokerDown"], usual["ConsumerLag"].endswith("> 1000")) == ('up{job="ottla"} == 0', True)


def test_the_unit_starts_a_broker_and_waits_for_its_word() -> None:
    result = CliRunner().invoke(cli, ["generate", "systemd", "--properties", "/etc/x.properties", "--user", "streams"])
    lines = result.stdout.splitlines()
    assert "Type=notify" in lines
    assert "User=streams" in lines
    [command] = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
    assert "broker start /etc/x.properties" in command
    assert os.path.isabs(command.split()[0])


def test_a_broken_configuration_is_not_started_again_and_again(tmp_path: Path) -> None:
    """The unit restarted it every two seconds, for ever: five starts in ten seconds were never reached."""
    lines = CliRunner().invoke(cli, ["generate", "systemd"]).stdout.splitlines()
    [codes] = [line.partition("=")[2].split() for line in lines if line.startswith("RestartPreventExitStatus=")]
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path / 'data'}\nnum.partitions=0\n")
    done = subprocess.run([sys.executable, "-m", "ottla", "broker", "start", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, str(done.returncode) in codes) == (WRONG_CONFIG, True), done.stderr
    absent = subprocess.run([sys.executable, "-m", "ottla", "broker", "start", str(tmp_path / "no")], capture_output=True, check=False)
    assert str(absent.returncode) in codes
    assert "1" not in codes, "what passes is tried again"


def test_the_unit_keeps_data_to_its_user() -> None:
    lines = CliRunner().invoke(cli, ["generate", "systemd", "--user", "root"]).stdout.splitlines()
    assert {"UMask=0077", "CapabilityBoundingSet=", "SystemCallFilter=@system-service", "ProtectHome=true"} <= set(lines)


@pytest.mark.parametrize("place", ["tmp/x", "home/ada/x", "opt/ottla"])
def test_a_unit_that_would_not_find_its_command_is_warned_of(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: f"/{place}/bin/ottla")
    for arguments in (["systemd"], ["pipeline-unit", "orders.py"]):
        result = CliRunner().invoke(cli, ["generate", *arguments])
        assert f"ExecStart=/{place}/bin/ottla " in result.stdout
        assert ("PrivateTmp, ProtectHome" in result.stderr) is (place != "opt/ottla")


def test_the_unit_of_several_brokers_leaves_their_stop_to_their_supervisor() -> None:
    lines = CliRunner().invoke(cli, ["generate", "systemd", "--cores", "auto"]).stdout.splitlines()
    [command] = [line for line in lines if line.startswith("ExecStart=")]
    assert command.endswith("broker start /etc/ottla/server.properties --cores auto --log-format json")
    assert "KillMode=mixed" in lines
    [seconds] = [int(line.partition("=")[2]) for line in lines if line.startswith("TimeoutStopSec=")]
    assert seconds > STOP_SECONDS_MAX, "the supervisor kills what does not stop before systemd kills the supervisor"
    assert "TimeoutStartSec=infinity" in lines, "a recovery that takes longer than 90 s was ended, and begun again"
    assert "KillMode=mixed" not in CliRunner().invoke(cli, ["generate", "systemd"]).output
    assert CliRunner().invoke(cli, ["generate", "systemd", "--cores", "many"]).exit_code == 2


def test_the_unit_of_pipelines_runs_a_command_that_there_is_and_starts_it_again_where_that_may_help(tmp_path: Path) -> None:
    given = [
        "/etc/ottla/orders.py",
        "--app",
        "sales",
        "-B",
        "b1:9092,b2:9092",
        "--command-config",
        "/etc/ottla/c.properties",
        "--memory",
        "2G",
    ]
    result = CliRunner().invoke(cli, ["generate", "pipeline-unit", *given])
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(result.stdout)
    service = dict(unit["Service"])
    program, _, command = service["ExecStart"].partition(" pipeline run ")
    assert os.path.isabs(program.split()[0])
    assert command == (
        "/etc/ottla/orders.py --app sales --data %S/ottla-pipelines/sales/data -B b1:9092,b2:9092 --command-config /etc/ottla/c.properties"
    )
    assert fault_of(f"ottla pipeline run {command}") is None
    assert (service["StateDirectory"], service["WorkingDirectory"]) == ("ottla-pipelines/sales", "%S/ottla-pipelines/sales")
    assert (service["Restart"], service["RestartPreventExitStatus"].split()) == ("on-failure", ["2", str(CANNOT_CONTINUE)])
    assert (service["KillMode"], service["KillSignal"], service["SuccessExitStatus"]) == ("mixed", "SIGTERM", str(INTERRUPTED))
    assert service["MemoryMax"] == "2G"
    assert "MemoryMax" not in CliRunner().invoke(cli, ["generate", "pipeline-unit", "orders.py"]).output
    if shutil.which("systemd-analyze"):
        (tmp_path / "ottla-pipeline-sales.service").write_text(result.stdout)
        subprocess.run(["systemd-analyze", "verify", str(tmp_path / "ottla-pipeline-sales.service")], check=True, capture_output=True)


def test_a_service_manager_is_notified_when_clients_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with BrokerProcess(tmp_path / "."):
            assert manager.recv(100) == b"READY=1"

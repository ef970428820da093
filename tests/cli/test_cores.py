"""``ottla broker start --cores``: what is derived for each broker, and how they run as one service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.cluster_command import consecutive_ports, is_running, ottla
from tests.config.test_sources import COMBINED_NODE
from tests.waiting import WAIT_SECONDS_MAX, eventually

from ottla.cli.nodes.cores import core_count, cores_plans, described
from ottla.cli.nodes.place import ClusterFile, Place, PlaceError
from ottla.config import BrokerConfig, parse_properties
from ottla.errors import KafkaError
from ottla.sync import Admin, NewTopic


def cluster_of(count: int, first: int = 1) -> ClusterFile:
    nodes = list(range(first, first + count))
    return ClusterFile("cores", "MkU3OEVBNTcwNTJENDM2Qg", nodes, nodes[:3])


def plans(count: int, given: dict[str, str], first: int = 1) -> list[dict[str, str]]:
    return [plan.properties for plan in cores_plans(cluster_of(count, first), {"log.dirs": "/a,/b"} | given)]


def column(found: list[dict[str, str]], key: str) -> list[str | None]:
    return [properties.get(key) for properties in found]


def test_unshareable_settings_of_several_brokers_count_up_and_all_others_are_equal() -> None:
    given = {"node.id": "7", "listeners": "PLAINTEXT://h:9092", "num.partitions": "5", "ottla.admin.listener": "0.0.0.0:9644"}
    found = plans(4, given, 7)
    assert column(found, "node.id") == ["7", "8", "9", "10"]
    assert column(found, "log.dirs") == [f"/a/node-{node},/b/node-{node}" for node in (7, 8, 9, 10)]
    assert column(found, "listeners") == [
        "PLAINTEXT://h:9092,CONTROLLER://127.0.0.1:9648", "PLAINTEXT://h:9093,CONTROLLER://127.0.0.1:9649",
        "PLAINTEXT://h:9094,CONTROLLER://127.0.0.1:9650", "PLAINTEXT://h:9095",
    ]  # fmt: skip
    assert column(found, "process.roles") == ["broker,controller"] * 3 + ["broker"]
    assert set(column(found, "controller.quorum.voters")) == {"7@127.0.0.1:9648,8@127.0.0.1:9649,9@127.0.0.1:9650"}
    assert column(found, "ottla.admin.listener") == [f"0.0.0.0:{port}" for port in (9644, 9645, 9646, 9647)]
    assert set(column(found, "num.partitions")) == {"5"}
    [rack] = set(column(found, "broker.rack"))
    assert rack == os.uname().nodename
    assert set(column(plans(2, {"broker.rack": "r"}), "broker.rack")) == {"r"}


def test_a_combined_nodes_file_as_kafka_has_it_serves_all_brokers() -> None:
    """Its controllers' port is among the brokers', and makes room for them."""
    found = plans(3, parse_properties(COMBINED_NODE) | {"log.dirs": "/a"})
    assert column(found, "listeners") == [f"PLAINTEXT://:{9092 + index},CONTROLLER://:{9095 + index}" for index in range(3)]
    assert set(column(found, "controller.quorum.voters")) == {"1@127.0.0.1:9095,2@127.0.0.1:9096,3@127.0.0.1:9097"}
    for properties in found:
        assert "controller.quorum.bootstrap.servers" not in properties


def test_advertised_ports_count_up_too() -> None:
    found = plans(2, {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://outside:19092"})
    assert column(found, "advertised.listeners") == ["PLAINTEXT://outside:19092", "PLAINTEXT://outside:19093"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"listeners": "PLAINTEXT://:9092,INSIDE://:9094", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"},
            "INSIDE has port 9094, and 4 brokers have PLAINTEXT at the ports 9092 to 9095; move INSIDE to 9096 or above",
        ),
        ({"ottla.admin.listener": "9093"}, "move ottla.admin.listener to 9096 or above"),
        ({"process.roles": "controller"}, "start it without --cores"),
        ({"controller.quorum.voters": "1@a:1,2@b:1"}, "controller.quorum.voters names other nodes"),
    ],
)
def test_what_several_brokers_cannot_have_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(KafkaError, match=why):
        plans(4, given)


def test_cores_are_counted_or_said() -> None:
    assert core_count("3") == 3
    if sys.platform == "linux":
        assert core_count("auto") == len(os.sched_getaffinity(0))
    for wrong in ("0", "x", "-1"):
        with pytest.raises(click.UsageError):
            core_count(wrong)


def test_brokers_that_are_there_all_start_again_and_new_ones_join_them(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    place.write(cluster_of(3))
    config = BrokerConfig({"log.dirs": str(tmp_path)})

    def nodes(count: int, *, is_auto: bool, config: BrokerConfig = config) -> list[int]:
        return described(place, config, count, is_auto=is_auto, new_id=str).nodes

    assert nodes(3, is_auto=False) == [1, 2, 3]
    assert nodes(5, is_auto=False) == [1, 2, 3, 4, 5]
    assert nodes(2, is_auto=True) == [1, 2, 3], "a machine with fewer cores keeps its brokers"
    with pytest.raises(PlaceError, match="start it with --cores 3"):
        nodes(2, is_auto=False)
    with pytest.raises(PlaceError, match=r"node\.id=9 is not the first of them"):
        nodes(3, is_auto=False, config=BrokerConfig({"log.dirs": str(tmp_path), "node.id": "9"}))
    with pytest.raises(PlaceError, match="belongs to cluster"):
        nodes(3, is_auto=False, config=BrokerConfig({"log.dirs": str(tmp_path), "cluster.id": "another"}))


def test_the_data_of_a_single_broker_is_not_divided(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    refused = ottla("broker", "start", "--cores", "2", "-X", f"log.dirs={tmp_path}")
    assert refused.returncode == 1
    assert "has the data of a single broker, which cannot be divided" in refused.stderr


@pytest.mark.slow
def test_two_brokers_serve_as_one_service_and_one_that_dies_comes_back(tmp_path: Path) -> None:
    port, ready, data = consecutive_ports(4), tmp_path / "ready", tmp_path / "data"
    arguments = ["broker", "start", "--cores", "2", "--ready-file", str(ready), "-X", f"log.dirs={data}"]
    arguments += ["-X", f"listeners=PLAINTEXT://127.0.0.1:{port}"]
    environment = os.environ | {"OTTLA_NODE_ID": "5", "OTTLA_NUM_PARTITIONS": "4"}
    with (tmp_path / "err").open("w") as err:
        service = subprocess.Popen(
            [sys.executable, "-m", "ottla", *arguments], stdout=subprocess.PIPE, stderr=err, text=True, env=environment
        )
    try:
        assert service.stdout is not None
        addresses = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
        assert service.stdout.readline() == f"ottla broker: 2 brokers serve Kafka clients at {addresses}\n"
        assert ready.read_text() == f"{addresses}\n"
        with Admin(addresses) as admin:
            assert admin.create_topics([NewTopic("t")]) == {"t": None}
            found = admin.describe_topic("t").partitions
            assert sorted(partition.leader for partition in found.values()) == [5, 5, 6, 6], "by the variables of the environment"
        pid = status(data)[6]["pid"]
        os.kill(pid, signal.SIGKILL)
        after = eventually(lambda: status(data), lambda nodes: nodes[6]["process"] == "serving" and nodes[6]["pid"] != pid)
        assert "node 6 was killed (SIGKILL); it is started again in 1 s" in (tmp_path / "err").read_text()
        assert "start them by `ottla broker start --cores 2`" in ottla("broker", "start", "-X", f"log.dirs={data}").stderr
        service.terminate()
        assert service.wait(WAIT_SECONDS_MAX) == 0
        eventually(lambda: [node["pid"] for node in after.values() if is_running(node["pid"])], lambda running: not running)
    finally:
        service.kill()
        service.wait()
        if service.stdout is not None:
            service.stdout.close()


def status(data: Path) -> dict[int, Any]:
    result = ottla("cluster", "status", "--data", str(data), "--format", "json")
    [found] = json.loads(result.stdout)["items"]
    assert result.returncode == (found.get("problem") is not None), result.stderr
    return {node["node"]: node for node in found["nodes"]}

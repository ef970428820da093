"""The pages for operators while the broker starts: a liveness probe must not end a node that recovers, or waits for others."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.admin_http.test_guarded import Pages
from tests.cluster.processes import CLUSTER_ID, ClusterProcesses, format_, quorum_only
from tests.foreign_clients.broker_process import BrokerProcess
from tests.waiting import eventually

from ottla.admin_http.pages import AdminPages
from ottla.broker.node import Broker
from ottla.config import BrokerConfig
from ottla.runtime.world import real_world


def refusing() -> int:
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def page(port: int, path: str) -> tuple[int, bytes]:
    """Status and body; 0 while nothing listens."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        try:
            connection.request("GET", path)
        except ConnectionRefusedError:
            return 0, b""
        answer = connection.getresponse()
        return answer.status, answer.read()


def reasons(port: int) -> list[str]:
    status, body = page(port, "/readyz")
    found: list[str] = json.loads(body)["reasons"] if status else []
    return found


@contextlib.contextmanager
def spawned(*nodes: BrokerProcess) -> Iterator[None]:
    try:
        for node in nodes:
            node.spawn()
        yield
    finally:
        for node in nodes:
            if node.is_running:
                node.kill()


@quorum_only
def test_a_node_that_waits_for_others_is_alive_and_says_which_of_them_refuse(tmp_path: Path) -> None:
    """The listener was opened once the broker served, and the log listed all voters, itself too."""
    cluster = ClusterProcesses(tmp_path)
    node, port = cluster.nodes[1], refusing()
    node.properties["ottla.admin.listener"] = str(port)
    two, three = cluster.voters.split(",")[1:]
    with spawned(node):
        assert eventually(lambda: page(port, "/healthz"), lambda found: found[0] == 200)[1] == b'{"status":"alive"}\n'
        [said] = eventually(lambda: reasons(port), lambda found: "".join(found).count("refuses") == 2)
        assert said.startswith("the broker starts: it waits for a majority of the controllers to elect a leader (1@127.0.0.1:")
        assert f"is this node; {two} refuses connections; {three} refuses connections); that needs 2 of them" in said
        assert page(port, "/readyz")[0] == 503
        assert json.loads(page(port, "/version")[1])["cluster_id"] == CLUSTER_ID
        for path in ("/metrics", "/metrics/partitions", "/metrics/lag"):
            status, body = page(port, path)
            assert status == 200, body
            assert list(text_string_to_metric_families(body.decode())) or path != "/metrics"
        assert "admin_page_failed" not in node.log()
        eventually(node.log, lambda log: f"{three} refuses connections" in log)


@quorum_only
def test_a_wrong_address_of_the_leader_is_named_by_the_nodes_that_it_keeps_apart(tmp_path: Path) -> None:
    """The follower waited for `controller 2 to register this broker`, and the leader for itself."""
    cluster = ClusterProcesses(tmp_path)
    first, second = cluster.nodes[1], cluster.nodes[2]
    one, two, three = cluster.voters.split(",")
    wrong = f"2@127.0.0.1:{refusing()}"
    first.properties["controller.quorum.voters"] = f"{one},{wrong},{three}"
    with spawned(first, second):
        eventually(first.log, lambda log: f"{wrong} refuses connections" in log)
        never = f"{one}, {three} has not fetched from it; has each {two} in its voters?"
        eventually(second.log, lambda log: f"a majority of the controllers to follow this node, which leads them: {never}" in log)


def test_guarded_pages_of_a_node_that_starts_show_that_it_lives_and_nothing_else(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    own = f"127.0.0.1:{refusing()}"
    node = pages.broker
    node.properties |= {
        "process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{own},2@127.0.0.1:{refusing()}", "listeners": f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://{own}",
    }  # fmt: skip
    format_(node, CLUSTER_ID, {})

    def status(path: str, user: str = "") -> int:
        try:
            return pages.get(path, user)[0]
        except ConnectionRefusedError:
            return 0

    with spawned(node):
        assert eventually(lambda: status("/healthz"), bool) == 200
        code, body, _ = pages.get("/readyz")
        assert (code, json.loads(body)) == (503, {"status": "not ready"})
        code, body, _ = pages.get("/metrics", "monitor:monitor-secret")
        assert (code, json.loads(body)) == (503, {"error": "the broker starts, and does not know yet who may see this"})
        assert json.loads(pages.get("/readyz", "monitor:monitor-secret")[1]) == {"status": "not ready"}


def test_a_node_that_opens_its_directories_is_alive_and_has_no_figures_yet(tmp_path: Path) -> None:
    """A liveness probe of a node in recovery was refused."""
    pages = AdminPages(Broker(real_world(), BrokerConfig({"log.dirs": str(tmp_path)})))

    async def get(path: str) -> tuple[int, dict[str, object]]:
        answer = await pages.get(path)
        return int(answer.status), json.loads(answer.body)

    async def body() -> None:
        step = "the broker starts: its log directories and its metadata are being opened"
        assert await get("/healthz") == (200, {"status": "alive"})
        assert await get("/readyz") == (503, {"status": "not ready", "reasons": [step], "notes": [], "node_id": 1, "cluster_id": None})
        for path in ("/metrics", "/metrics/partitions", "/metrics/lag"):
            assert await get(path) == (503, {"error": step})
        assert (await get("/version"))[1]["cluster_id"] is None

    asyncio.run(body())


def test_a_port_of_the_pages_that_is_in_use_is_refused_before_a_file_is_touched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        node = BrokerProcess(tmp_path, ottla_admin_listener=str(taken.getsockname()[1]))
        with spawned(node):
            eventually(lambda: node.is_running, lambda runs: not runs)
    assert "address already in use" in node.log().lower()
    assert not node.data.exists()

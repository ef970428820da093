"""A controller whose disk was emptied is not formatted as if it were new."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest
from tests.cluster.one_loop import CLUSTER_ID, LoopCluster, cluster_on_loop
from tests.foreign_clients.broker_process import lasting_ports
from tests.waiting import eventually_is

from ottla.broker import lost_votes
from ottla.broker.lost_votes import voter_that_knows
from ottla.broker.roles import read_roles
from ottla.runtime.world import real_world

SECONDS_MAX = 60


async def formatted(cluster: LoopCluster, node_id: int, *options: str) -> tuple[int, str]:
    """What ``ottla storage format`` says of the node's directory."""
    overrides = [part for key, value in cluster.properties_of(node_id).items() for part in ("-X", f"{key}={value}")]
    command = [sys.executable, "-m", "ottla", "storage", "format", "--cluster-id", CLUSTER_ID, *overrides, *options]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    async with asyncio.timeout(SECONDS_MAX):
        text, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, text.decode()


def test_a_controller_that_lost_its_disk_is_formatted_only_where_that_is_said(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            await eventually_is(lambda: all_are_known(cluster), True)
            await cluster.stop(1)
            directory = tmp_path / "node-1"
            shutil.rmtree(directory)
            code, text = await formatted(cluster, 1)
            assert code == 1
            assert "controller 1 is not new: 127.0.0.1:" in text
            assert not directory.exists()
            code, text = await formatted(cluster, 1, "--replaces-lost-controller")
            assert (code, "formatted" in text) == (0, True), text
            await cluster.start(1)
            code, text = await formatted(cluster, 1, "--ignore-formatted")
            assert (code, "left as it is" in text) == (0, True), "what is formatted asks no one"

    async def all_are_known(cluster: LoopCluster) -> bool:
        return all(set(broker.image.controllers) == set(cluster.nodes) for broker in cluster.nodes.values())

    asyncio.run(body())


def test_a_controller_that_starts_for_the_first_time_is_formatted_whoever_runs_already(tmp_path: Path) -> None:
    async def body() -> None:
        ports = lasting_ports(6)
        pairs = {node: (ports[node - 1], ports[node + 2]) for node in (1, 2, 3)}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, (_, port) in pairs.items())
        cluster = LoopCluster(tmp_path, voters, pairs, {})
        assert (await formatted(cluster, 1))[0] == 0
        assert (await formatted(cluster, 2))[0] == 0
        await cluster.start(1, 2)
        try:
            assert (await formatted(cluster, 3))[0] == 0
        finally:
            await cluster.stop()

    asyncio.run(body())


def test_a_voter_that_says_nothing_does_not_hold_it_up_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One connects and says nothing; one refuses."""

    async def body() -> None:
        silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        ports = lasting_ports(6)
        silent_port = silent.sockets[0].getsockname()[1]
        pairs = {1: (ports[0], ports[3]), 2: (ports[1], silent_port), 3: (ports[2], ports[5])}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, (_, port) in pairs.items())
        config = LoopCluster(tmp_path, voters, pairs, {}).config(1)
        async with silent, asyncio.timeout(SECONDS_MAX):
            assert await voter_that_knows(real_world(), config, read_roles(config)) is None

    monkeypatch.setattr(lost_votes, "WAIT_MS", 300)
    asyncio.run(body())


def test_a_controller_that_cannot_make_itself_known_is_formatted_with_a_warning(tmp_path: Path) -> None:
    """Its start refuses the same, so it does not vote."""

    async def body() -> None:
        ports = lasting_ports(4)
        pairs = {node: (ports[node - 1], ports[node + 1]) for node in (1, 2)}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, (_, port) in pairs.items())
        tls = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
            "ssl.truststore.location": str(tmp_path / "absent.pem"),
        }
        cluster = LoopCluster(tmp_path, voters, pairs, tls | {"ssl.truststore.type": "PEM"})
        code, text = await formatted(cluster, 1)
        assert (code, "the other controllers were not asked whether this one is new: " in text) == (0, True), text

    asyncio.run(body())

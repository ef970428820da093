"""A controller whose disk was emptied is not formatted as if it were new."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from pathlib import Path

import pytest
from tests.cluster.one_loop import CLUSTER_ID, LoopCluster, cluster_on_loop
from tests.foreign_clients.broker_process import lasting_ports
from tests.waiting import eventually_is

from ottla.broker import lost_votes
from ottla.broker.lost_votes import ask_others
from ottla.broker.roles import read_roles
from ottla.runtime.world import real_world

SECONDS_MAX = 60
UNTOLD = "warning: no other controller could tell whether this one is new"


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
            assert "warning: what broker 1 had there is fetched again from other replicas once it starts. Partitions with no other" in text
            assert "`ottla topic describe --unavailable` lists them before it starts" in text
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
        for node_id in (1, 2):
            code, text = await formatted(cluster, node_id)
            assert (code, "formatted" in text, UNTOLD in text) == (0, True, True), text
        await cluster.start(1, 2)
        try:
            await eventually_is(lambda: known_controllers(cluster), {1, 2})
            code, text = await formatted(cluster, 3)
            assert (code, UNTOLD in text) == (0, False), "the others can tell"
        finally:
            await cluster.stop()

    async def known_controllers(cluster: LoopCluster) -> set[int]:
        return set.intersection(*(set(broker.image.controllers) for broker in cluster.nodes.values()))

    asyncio.run(body())


def test_an_emptied_controller_is_formatted_with_a_warning_where_no_other_answers(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            await cluster.stop(1, 2, 3)
            shutil.rmtree(tmp_path / "node-1")
            code, text = await formatted(cluster, 1)
            assert (code, "formatted" in text) == (0, True), text
            assert UNTOLD in text
            assert "If controller 1 ran in this cluster before, do not start it: it has lost its votes" in text
            assert 'docs/operating.md says in "Replace a lost controller"' in text
            code, text = await formatted(cluster, 1, "--ignore-formatted")
            assert (code, UNTOLD in text) == (0, False), "what is formatted has its votes"

    asyncio.run(body())


def test_another_directory_of_the_node_tells_where_no_other_controller_answers(tmp_path: Path) -> None:
    async def body() -> None:
        ports = lasting_ports(6)
        pairs = {node: (ports[node - 1], ports[node + 2]) for node in (1, 2, 3)}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, (_, port) in pairs.items())
        first, second = tmp_path / "a", tmp_path / "b"
        cluster = LoopCluster(tmp_path, voters, pairs, {"log.dirs": f"{first},{second}"})
        assert (await formatted(cluster, 1))[0] == 0
        shutil.rmtree(first)
        code, text = await formatted(cluster, 1, "--ignore-formatted")
        assert code == 1
        assert f"controller 1 is not new: {second} is formatted for it" in text
        assert not first.exists()
        code, text = await formatted(cluster, 1, "--ignore-formatted", "--replaces-lost-controller")
        assert (code, f"left as it is: {second}; formatted: {first}" in text, UNTOLD in text) == (0, True, False), text

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
        with contextlib.closing(silent):  # in Python 3.12 "async with" waits for its connections
            async with asyncio.timeout(SECONDS_MAX):
                asked = await ask_others(real_world(), config, read_roles(config))
            assert (asked.evidence, len(asked.silent)) == (None, 2), "neither can tell"

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

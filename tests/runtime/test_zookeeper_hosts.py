"""Hosts of ``zookeeper.connect`` that do not exist: said in a sentence, and not by a traceback of kazoo's thread."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from ottla.cli.nodes.at_zookeeper import begin_home
from ottla.cli.nodes.place import ClusterFile, Place, PlaceError
from ottla.cli.output import with_way_out
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.zookeeper import ZooKeeper
from ottla.runtime.zookeeper_hosts import hosts_of, unknown_names

SECONDS_MAX = 60
NEVER_MS = 3_600_000


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the system know ``localhost`` alone."""

    def look_up(host: str, *rest: Any, **named: Any) -> Any:
        if host == "localhost":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.parametrize("host", ["a" * 64, "zk..example", "zk." + "\u00e9" * 70])
def test_what_can_be_no_name_of_a_host_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a host: its parts have 1 to 63 characters each"):
        hosts_of(f"zk1:2181,{host}:2182/chroot")

    async def connect() -> None:
        await asyncio.wait_for(ZooKeeper().connect(f"{host}:2181", session_timeout_ms=NEVER_MS), SECONDS_MAX)

    with pytest.raises(ValueError, match="cannot be the name of a host"):
        asyncio.run(connect())


def test_hosts_are_found_in_every_form() -> None:
    assert hosts_of("zk1,zk2:99,[::1]:7/a/b") == [("zk1", 2181), ("zk2", 99), ("::1", 7)]


@pytest.mark.usefixtures("unknown")
def test_names_are_unknown_only_where_none_is_known() -> None:
    said = asyncio.run(unknown_names("zk1:1,zk2:2/x"))
    assert said == "no name is known to this machine (zk1: Name or service not known; zk2: Name or service not known)"
    assert asyncio.run(unknown_names("zk1:1,localhost:2")) is None


def test_a_name_that_nothing_can_be_said_of_is_not_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network of a machine that starts may not be up yet."""

    def asked(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", asked)
    assert asyncio.run(unknown_names("zk1:1")) is None


@pytest.mark.usefixtures("unknown")
def test_a_broker_that_waits_for_a_name_says_so() -> None:
    async def body() -> None:
        zookeeper, is_said = ZooKeeper(), asyncio.Event()
        note = zookeeper._note

        def on_note(problem: str, event: str = "") -> None:
            note(problem, event)
            assert event == "zookeeper_name_unknown"
            is_said.set()

        zookeeper._note = on_note  # type: ignore[method-assign]
        connecting = asyncio.ensure_future(zookeeper.connect("zk1:2181", session_timeout_ms=NEVER_MS))
        await asyncio.wait_for(is_said.wait(), SECONDS_MAX)
        assert not connecting.done(), "the name may be known later"
        connecting.cancel()
        await asyncio.wait([connecting])
        assert zookeeper.last_problem == "no name is known to this machine (zk1: Name or service not known)"

    asyncio.run(body())


@pytest.mark.usefixtures("unknown")
@pytest.mark.parametrize(("host", "said"), [("zk1", "zk1: Name or service not known"), ("a" * 64, "cannot be the name of a host")])
def test_a_cluster_of_this_machine_does_not_wait_for_a_name(tmp_path_factory: pytest.TempPathFactory, host: str, said: str) -> None:
    cluster = ClusterFile("cluster", "id", [1], [], zookeeper=f"{host}:2181", properties={"zookeeper.connection.timeout.ms": str(NEVER_MS)})
    with pytest.raises(PlaceError, match=f"ZooKeeper at {host}:2181: .*{said}"):
        begin_home(Place(str(tmp_path_factory.mktemp("place"))), cluster)


def test_the_way_out_of_a_silent_zookeeper_is_there_and_not_at_a_broker() -> None:
    text = "ZooKeeper at zk1:2181 does not answer within 18000 ms (zookeeper.connection.timeout.ms)"
    said = with_way_out(KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))
    assert said.startswith(f"REQUEST_TIMED_OUT: {text}; see that ZooKeeper runs there")
    assert "cluster health" not in said

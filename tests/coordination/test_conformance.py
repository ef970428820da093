"""What the controller's home relies on, said once, and true of Apache ZooKeeper 3.9 and of the simulated service alike."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest
from tests.coordination.places import Case, Place, run_on_sim, run_on_zookeeper

from ottla.coordination import (
    Access,
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    MultiFailedError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotAuthorizedError,
    NotEmptyError,
    Session,
    SessionExpiredError,
    Set,
)
from ottla.runtime.zookeeper_server import ZooKeeperServer

CASES: list[Case] = []
WAIT_SECONDS_MAX = 30.0


def case(function: Case) -> Case:
    CASES.append(function)
    return function


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("where", ["zookeeper", "sim"])
def test_conformance(where: str, case: Case, request: pytest.FixtureRequest) -> None:
    if where == "sim":
        run_on_sim(case)
    else:
        server: ZooKeeperServer = request.getfixturevalue("zookeeper")
        run_on_zookeeper(server, case.__name__, case)


class Called:
    """A watch, or any other callback that a test waits for."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def __call__(self, *_: object) -> None:
        self.count += 1
        self._event.set()

    async def wait(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await self._event.wait()
        self._event.clear()


async def until(ask: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not await ask():
            await asyncio.sleep(0.02)


@case
async def znodes_have_data_versions_and_children(place: Place) -> None:
    session = await place.connect()
    await session.create("/a", b"one")
    await session.create("/a/c")
    await session.create("/a/b")
    assert await session.children("/a") == ["b", "c"]
    data, stat = await session.get("/a")
    assert (data, stat.version, stat.ephemeral_owner, stat.children_count) == (b"one", 0, 0, 2)
    assert await session.set("/a", b"two", 0) == 1
    assert (await session.get("/a"))[0] == b"two"
    later = await session.exists("/a/b")
    assert later is not None
    assert later.czxid > stat.czxid
    assert await session.exists("/no") is None


@case
async def a_write_names_the_version_that_it_replaces(place: Place) -> None:
    session = await place.connect()
    await session.create("/a")
    await session.set("/a", b"1", 0)
    with pytest.raises(BadVersionError):
        await session.set("/a", b"2", 0)
    with pytest.raises(BadVersionError):
        await session.delete("/a", 0)
    assert await session.get("/a") == (b"1", (await session.get("/a"))[1])
    await session.set("/a", b"3", -1)
    await session.delete("/a", 2)
    assert await session.exists("/a") is None


@case
async def a_znode_that_was_made_again_has_version_0_and_another_czxid(place: Place) -> None:
    session = await place.connect()
    await session.create("/a")
    first = await session.exists("/a")
    await session.delete("/a", 0)
    await session.create("/a")
    second = await session.exists("/a")
    assert first is not None
    assert second is not None
    assert (second.version, second.czxid > first.czxid) == (0, True)


@case
async def refusals_are_told_apart(place: Place) -> None:
    session = await place.connect()
    await session.create("/a")
    with pytest.raises(NodeExistsError):
        await session.create("/a")
    with pytest.raises(NoNodeError):
        await session.create("/no/a")
    with pytest.raises(NoNodeError):
        await session.get("/no")
    with pytest.raises(NoNodeError):
        await session.children("/no")
    with pytest.raises(NoNodeError):
        await session.set("/no", b"", -1)
    with pytest.raises(NoNodeError):
        await session.delete("/no")
    await session.create("/a/b")
    with pytest.raises(NotEmptyError):
        await session.delete("/a")
    await session.create("/e", is_ephemeral=True)
    with pytest.raises(NoChildrenForEphemeralsError):
        await session.create("/e/a")


@case
async def a_multi_is_all_or_nothing(place: Place) -> None:
    session = await place.connect()
    await session.create("/epoch", b"5")
    await session.create("/a")
    with pytest.raises(MultiFailedError) as failed:
        await session.multi([Check("/epoch", 0), Set("/a", b"x", 0), Create("/b"), Delete("/no")])
    assert (failed.value.index, type(failed.value.reason)) == (3, NoNodeError)
    assert (await session.get("/a"))[0] == b""
    assert await session.exists("/b") is None
    with pytest.raises(MultiFailedError) as failed:
        await session.multi([Check("/epoch", 1), Set("/a", b"x", 0)])
    assert (failed.value.index, type(failed.value.reason)) == (0, BadVersionError)
    await session.multi([Check("/epoch", 0), Set("/a", b"x", 0), Set("/a", b"y", 1), Create("/b"), Create("/b/c"), Delete("/b/c", 0)])
    assert (await session.get("/a"))[0] == b"y"
    assert await session.children("/b") == []


@case
async def sequential_znodes_are_numbered(place: Place) -> None:
    session = await place.connect()
    await session.create("/changes")
    await session.multi([Create("/changes/c_", is_sequential=True), Create("/changes/c_", b"2", is_sequential=True)])
    assert await session.children("/changes") == ["c_0000000000", "c_0000000001"]


@case
async def a_watch_is_called_once(place: Place) -> None:
    session, other = await place.connect(), await place.connect()
    await session.create("/a")
    data, children, existence = Called(), Called(), Called()
    await session.get("/a", data)
    await session.children("/a", children)
    await session.exists("/b", existence)
    await other.set("/a", b"1", 0)
    await data.wait()
    await other.set("/a", b"2", 1)
    await other.create("/a/x")
    await children.wait()
    await other.create("/a/y")
    await other.create("/b")
    await existence.wait()
    await other.delete("/b")
    await session.get("/a")  # whatever was sent before has arrived
    assert (data.count, children.count, existence.count) == (1, 1, 1)


@case
async def changes_coalesce_and_the_newest_is_read(place: Place) -> None:
    session, other = await place.connect(), await place.connect()
    await session.create("/a")
    watch = Called()
    await session.children("/a", watch)
    for number in range(20):
        await other.create(f"/a/{number}")
    await watch.wait()
    await until(lambda: _has_children(session, "/a", 20))
    assert watch.count == 1


async def _has_children(session: Session, path: str, count: int) -> bool:
    return len(await session.children(path)) == count


@case
async def nothing_is_watched_where_nothing_is(place: Place) -> None:
    session = await place.connect()
    watch = Called()
    with pytest.raises(NoNodeError):
        await session.get("/a", watch)
    await session.create("/a")
    await session.get("/a")
    assert watch.count == 0


@case
async def ephemeral_znodes_end_with_their_session(place: Place) -> None:
    session, other = await place.connect(), await place.connect()
    await session.create("/e", b"1", is_ephemeral=True)
    gone = Called()
    stat = await other.exists("/e", gone)
    assert stat is not None
    assert stat.ephemeral_owner == session.session_id
    await session.close()
    await gone.wait()
    assert await other.exists("/e") is None
    with pytest.raises(SessionExpiredError):
        await session.get("/")


@case
async def any_session_may_delete_anothers_ephemeral_znode(place: Place) -> None:
    """The fast path of a proven death."""
    session, other = await place.connect(), await place.connect()
    await session.create("/e", is_ephemeral=True)
    gone = Called()
    await session.exists("/e", gone)
    await other.delete("/e", 0)
    await gone.wait()
    assert await session.exists("/e") is None


@case
async def a_session_that_expired_is_over(place: Place) -> None:
    session, other = await place.connect(), await place.connect()
    await session.create("/e", is_ephemeral=True)
    expired, watch = Called(), Called()
    session.on_expired = expired
    await session.get("/", watch)
    await place.expire(session)
    await until(lambda: _is_absent(other, "/e"))
    place.break_connections()
    await expired.wait()
    assert expired.count == 1
    assert not session.is_connected
    with pytest.raises(SessionExpiredError):
        await session.create("/again")
    await asyncio.sleep(0.2)
    assert await other.exists("/again") is None


async def _is_absent(session: Session, path: str) -> bool:
    try:
        return await session.exists(path) is None
    except ConnectionLostError:
        return False


@case
async def a_session_outlives_its_connection(place: Place) -> None:
    session = await place.connect()
    await session.create("/e", is_ephemeral=True)
    watch, changed = Called(), list[bool]()
    back = Called()

    def on_connection(is_connected: bool) -> None:
        changed.append(is_connected)
        if is_connected:
            back()

    session.on_connection = on_connection
    await session.get("/e", watch)
    place.break_connections()
    await watch.wait()  # it may have missed something
    await back.wait()
    assert changed == [False, True]
    stat = await session.exists("/e")
    assert stat is not None
    assert stat.ephemeral_owner == session.session_id


async def _is_stored(place: Place, path: str, data: bytes) -> bool:
    return await place.stored(path) == data


@case
async def what_became_of_a_request_on_a_lost_connection_is_unknown(place: Place) -> None:
    session = await place.connect()
    await session.create("/a")
    place.lose_answers()
    task = asyncio.create_task(session.set("/a", b"done all the same", 0))
    await until(lambda: _is_stored(place, "/a", b"done all the same"))
    assert not task.done()
    place.break_connections()
    with pytest.raises(ConnectionLostError):
        await task
    await until(lambda: _has_size(session, "/a", len(b"done all the same")))
    assert (await session.get("/a"))[1].version == 1


@case
async def requests_wait_while_the_service_is_away(place: Place) -> None:
    session = await place.connect(timeout_ms=20_000)
    lost = Called()
    session.on_connection = lost
    place.take_away()
    await lost.wait()
    task = asyncio.create_task(session.create("/later"))
    await asyncio.sleep(0.3)
    assert not task.done()
    place.bring_back()
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await task
    assert await session.exists("/later") is not None


@case
async def a_request_that_is_too_large_costs_the_connection(place: Place) -> None:
    session = await place.connect()
    await session.create("/a", bytes(500_000))
    with pytest.raises(ConnectionLostError):
        await session.set("/a", bytes(1_100_000), 0)
    await until(lambda: _has_size(session, "/a", 500_000))


async def _has_size(session: Session, path: str, size: int) -> bool:
    try:
        return len((await session.get(path))[0]) == size
    except ConnectionLostError:
        return False


@case
async def a_chroot_is_a_tree_of_its_own(place: Place) -> None:
    session = await place.connect()
    await session.create("/own")
    inner = await place.connect("/own")
    await inner.create("/a", b"inside")
    assert (await session.get("/own/a"))[0] == b"inside"
    watch = Called()
    await inner.get("/a", watch)
    await session.set("/own/a", b"changed", 0)
    await watch.wait()
    assert await inner.children("/") == ["a"]


@case
async def an_acl_keeps_others_out(place: Place) -> None:
    own = await place.connect(credentials=[("digest", "broker:secret")])
    foreign = await place.connect()
    acl = [Access("digest", "broker:uWoQIKP1sA9nIRIUHx4nRemBzAY=", "crwda"), Access("world", "anyone", "r")]
    await own.create("/a", b"1", acl=acl)
    assert (await foreign.get("/a"))[0] == b"1"
    with pytest.raises(NotAuthorizedError):
        await foreign.set("/a", b"2", 0)
    with pytest.raises(NotAuthorizedError):
        await foreign.create("/a/b")
    await own.set("/a", b"2", 0)


def test_a_world_without_zookeeper_does_not_import_kazoo() -> None:
    code = "import sys, ottla.cli.main, ottla.runtime.serve, ottla.broker.node; sys.exit('kazoo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

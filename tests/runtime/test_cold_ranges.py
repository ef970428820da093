"""Ranges that are not in the page cache are read by a worker before the loop sends them."""

from __future__ import annotations

import asyncio
import math
import os
import random
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ottla.ports import Connection, World
from ottla.runtime import connection as connection_module
from ottla.runtime import warming
from ottla.runtime.files import RealFileRegion
from ottla.runtime.io_policy import PATHS
from ottla.runtime.sockets import RealNetwork
from ottla.runtime.warming import WINDOW_BYTES, is_warm, read_if_warm
from ottla.runtime.world import real_world

CONTENT = random.Random(1).randbytes(3 * WINDOW_BYTES + 1000)
WAIT_SECONDS_MAX = 30
pytestmark = pytest.mark.usefixtures("default_paths")


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "segment").write_bytes(CONTENT)
    return str(tmp_path / "segment")


@pytest.fixture
def all_is_cold(default_paths: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has been warmed, no range is found in the page cache."""
    monkeypatch.setattr(PATHS, "counts_as_cold", True)


class Handler:
    """Gathers what comes, and signals when it is enough."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.enough = asyncio.Event()
        self.drained = asyncio.Event()
        self.wanted = 0

    def room(self) -> memoryview | None:
        return None

    def on_data(self, data: memoryview) -> bool:
        self.received += data
        if len(self.received) >= self.wanted:
            self.enough.set()
        return False

    def on_drain(self) -> None:
        self.drained.set()

    def on_close(self, error: Exception | None) -> None: ...

    async def get(self, size: int) -> bytes:
        self.wanted = size
        if len(self.received) < size:
            self.enough.clear()
            await asyncio.wait_for(self.enough.wait(), WAIT_SECONDS_MAX)
        return bytes(self.received)


class Pairs:
    """Connected pairs on one loop: the side that sends, and what the other side gets."""

    def __init__(self, world: World) -> None:
        assert isinstance(world.network, RealNetwork)
        self.world, self.network = world, world.network
        self.senders: list[Handler] = []
        self._accepted: asyncio.Queue[Connection] = asyncio.Queue()

    async def listen(self) -> None:
        def accept(connection: Connection) -> Handler:
            self._accepted.put_nowait(connection)
            self.senders.append(Handler())
            return self.senders[-1]

        self._listener = await self.network.listen("127.0.0.1", 0, accept)

    async def make(self) -> tuple[Connection, Handler]:
        handler = Handler()
        await self.network.connect(*self._listener.address, lambda _: handler)
        return await self._accepted.get(), handler


def run(body: Callable[[Pairs], Awaitable[None]]) -> None:
    async def main() -> None:
        pairs = Pairs(real_world(network_threads=1))
        await pairs.listen()
        await body(pairs)

    asyncio.run(asyncio.wait_for(main(), WAIT_SECONDS_MAX * 2))


def pieces(regions: Callable[[int, int], RealFileRegion]) -> tuple[Sequence[bytes | RealFileRegion], bytes]:
    """Bytes, small and large regions in turn; and what must arrive."""
    sent: list[bytes | RealFileRegion] = [b"head", regions(0, len(CONTENT)), b"between", regions(10, 1000), regions(5000, 70_000), b"tail"]
    return sent, b"head" + CONTENT + b"between" + CONTENT[10:1010] + CONTENT[5000:75_000] + b"tail"


@pytest.mark.usefixtures("all_is_cold")
def test_cold_ranges_arrive_completely_and_in_order(path: str) -> None:
    async def body(pairs: Pairs) -> None:
        file = await pairs.world.disk.open(path)
        sender, receiver = await pairs.make()
        sent, expected = pieces(file.region)  # type: ignore[arg-type]
        sender.send(sent)
        sender.send([b"!"])
        assert await receiver.get(len(expected) + 1) == expected + b"!"
        assert pairs.network.warmer.warmed_count == 4 + 1 + 1, "four windows of the file, and two small regions"
        assert sender.unsent_bytes == 0

    run(body)


@pytest.mark.usefixtures("all_is_cold")
def test_a_sender_is_notified_when_what_waited_only_for_the_disk_was_sent(path: str) -> None:
    async def body(pairs: Pairs) -> None:
        file = await pairs.world.disk.open(path)
        sender, receiver = await pairs.make()
        sender.send([b"head", file.region(10, 1000)])  # which the socket takes at once
        assert sender.unsent_bytes > 0
        assert await receiver.get(1004) == b"head" + CONTENT[10:1010]
        [handler] = pairs.senders
        await asyncio.wait_for(handler.drained.wait(), WAIT_SECONDS_MAX)

    run(body)


def test_what_is_cached_before_a_cold_window_is_sent_at_once_and_without_the_worker(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    really_send = os.sendfile

    def send(to: int, descriptor: int, offset: int, count: int) -> int:
        asked.append(count)
        return really_send(to, descriptor, offset, count)

    monkeypatch.setattr(os, "sendfile", send)
    monkeypatch.setattr(connection_module, "is_warm", lambda _, offset, length: offset + length <= 2 * WINDOW_BYTES)

    async def body(pairs: Pairs) -> None:
        file = await pairs.world.disk.open(path)
        sender, receiver = await pairs.make()
        sender.send([file.region(0, len(CONTENT))])
        assert await receiver.get(len(CONTENT)) == CONTENT
        assert asked[0] == 2 * WINDOW_BYTES
        assert pairs.network.warmer.warmed_count == 2, "the third window and the rest"

    run(body)


def test_where_the_kernel_cannot_tell_everything_counts_as_warm(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PATHS, "nowait", None)

    async def body(pairs: Pairs) -> None:
        file = await pairs.world.disk.open(path)
        sender, receiver = await pairs.make()
        sent, expected = pieces(file.region)  # type: ignore[arg-type]
        sender.send(sent)
        assert await receiver.get(len(expected)) == expected
        assert pairs.network.warmer.warmed_count == 0
        assert await file.pread(7, 100) == CONTENT[7:107]

    run(body)


@pytest.fixture
def disk_that_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """A worker that reads a cold range has begun; the disk gives it what it waits for."""
    begun, answered = threading.Event(), threading.Event()

    def read_through(_descriptor: int, _offset: int, _length: int) -> None:
        begun.set()
        assert answered.wait(WAIT_SECONDS_MAX)

    monkeypatch.setattr(warming, "_read_through", read_through)
    yield begun, answered
    answered.set()


@pytest.mark.usefixtures("all_is_cold")
def test_a_worker_that_waits_for_the_disk_holds_up_its_own_connection_alone(
    path: str, disk_that_waits: tuple[threading.Event, threading.Event]
) -> None:
    begun, answered = disk_that_waits

    async def body(pairs: Pairs) -> None:
        file = await pairs.world.disk.open(path)
        (cold, cold_end), (other, other_end) = await pairs.make(), await pairs.make()
        cold.send([b"first", file.region(0, len(CONTENT)), b"last"])
        assert await cold_end.get(5) == b"first", "what precedes a cold range does not wait for it"
        assert await asyncio.to_thread(begun.wait, WAIT_SECONDS_MAX)
        other.send([b"served"])
        assert await other_end.get(6) == b"served"
        assert bytes(cold_end.received) == b"first"
        answered.set()
        assert await cold_end.get(len(CONTENT) + 9) == b"first" + CONTENT + b"last"

    run(body)


@pytest.mark.usefixtures("all_is_cold")
def test_a_connection_may_close_while_its_range_is_read(path: str, disk_that_waits: tuple[threading.Event, threading.Event]) -> None:
    begun, answered = disk_that_waits

    async def body(pairs: Pairs) -> None:
        file = await pairs.world.disk.open(path)
        sender, _ = await pairs.make()
        sender.send([file.region(0, len(CONTENT))])
        assert await asyncio.to_thread(begun.wait, WAIT_SECONDS_MAX)
        sender.abort()
        answered.set()
        other, other_end = await pairs.make()
        other.send([file.region(0, 1000)])  # the one worker is free again
        assert await other_end.get(1000) == CONTENT[:1000]
        assert sender.is_closed

    run(body)


def test_a_file_that_is_shorter_than_its_region_ends_the_connection_instead_of_shifting_what_follows(path: str) -> None:
    async def body(pairs: Pairs) -> None:
        file = await pairs.world.disk.open(path)
        for region in (file.region(len(CONTENT) - 10, 100), file.region(len(CONTENT) - 10, 100_000)):
            sender, _ = await pairs.make()
            sender.send([region, b"next answer"])
            assert sender.is_closed

    run(body)


def test_probing_and_reading_what_is_cached(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.pread(descriptor, len(CONTENT), 0)
        assert is_warm(descriptor, 0, len(CONTENT))
        assert read_if_warm(descriptor, 100, 5000) == CONTENT[100:5100]
        assert read_if_warm(descriptor, len(CONTENT) - 5, 100) == CONTENT[-5:], "short only at the end"
    finally:
        os.close(descriptor)


def test_mechanism_49_the_path_that_copies_gives_the_same_bytes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PATHS, "sendfile_bytes_min", math.inf)
    monkeypatch.setattr(os, "sendfile", None)
    lengths: list[int] = []

    def noted(descriptor: int, offset: int, length: int) -> bytes | bytearray | None:
        lengths.append(length)
        return read_if_warm(descriptor, offset, length)

    monkeypatch.setattr(connection_module, "read_if_warm", noted)

    async def body(pairs: Pairs) -> None:
        file = await pairs.world.disk.open(path)
        sender, receiver = await pairs.make()
        sent, expected = pieces(file.region)  # type: ignore[arg-type]
        sender.send(sent)
        assert await receiver.get(len(expected)) == expected
        assert max(lengths) == WINDOW_BYTES, "no more than that is read at a time"
        assert sender.unsent_bytes == 0

    run(body)

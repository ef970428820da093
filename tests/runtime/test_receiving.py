"""Bytes of large frames are received where they belong."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from ottla.runtime import sockets
from ottla.runtime.loop import MeasuredLoop
from ottla.runtime.sockets import MANY_READY, RECEIVE_BUFFER_BYTES, RECEIVED_AMONG_MANY_BYTES_MAX, RealNetwork
from ottla.runtime.warming import Warmer
from ottla.wire.frame_memory import AnswerMemory
from ottla.wire.frames import ROOM_BYTES_MIN, FrameCutter

LIMIT = 1 << 22
LARGE = 4 * ROOM_BYTES_MIN
LARGE_COUNT = 4
WAIT_SECONDS_MAX = 30


class Frames:
    """Keeps the frames that came, and how many calls brought bytes to their place."""

    def __init__(self, expected: int) -> None:
        self.cutter = FrameCutter(LIMIT, AnswerMemory())
        self.found: list[memoryview] = []
        self.in_place = 0
        self.done = asyncio.Event()
        self._expected = expected

    def room(self) -> memoryview | None:
        return self.cutter.room()

    def on_data(self, data: memoryview) -> bool:
        self.in_place += data.obj is self.cutter._collected
        is_kept = False
        for frame, is_shared in self.cutter.feed(data):
            self.found.append(frame)
            is_kept |= is_shared
        if len(self.found) == self._expected:
            self.done.set()
        return is_kept

    def on_drain(self) -> None: ...
    def on_close(self, error: Exception | None) -> None:
        self.done.set()


def test_what_is_kept_of_a_buffer_holds_little_more_memory_than_its_own() -> None:
    network = RealNetwork(Warmer(1))
    loop = asyncio.new_event_loop()

    def received(count: int, content: bytes) -> memoryview:
        view = network.receive_buffer(loop)
        assert len(view) >= RECEIVED_AMONG_MANY_BYTES_MAX
        view[:count] = content * count
        network.keep_received(count)
        return view[:count]

    try:
        kept = [received(1000, bytes([number])) for number in range(100)]
        assert [bytes(part) for part in kept] == [bytes([number]) * 1000 for number in range(100)], "nothing was received over it"
        assert len({id(part.obj) for part in kept}) == 1
        kept += [received(RECEIVED_AMONG_MANY_BYTES_MAX, b"x") for _ in range(3)]
        assert len({id(part.obj) for part in kept}) == 2, "the rest of the first was too short, that of the second was not"
    finally:
        loop.close()


def test_one_connection_receives_less_at_once_while_many_wait_for_one_another() -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredLoop)
        network = RealNetwork(Warmer(1))
        ends = [socket.socketpair() for _ in range(MANY_READY)]
        found: list[int] = []
        try:
            for count in (1, MANY_READY):
                found.clear()
                is_done = loop.create_future()

                def on_readable(end: socket.socket, count: int = count, is_done: asyncio.Future[None] = is_done) -> None:
                    end.recv(1)
                    found.append(len(network.receive_buffer(loop)))
                    if len(found) == count:
                        is_done.set_result(None)

                for near, far in ends[:count]:
                    loop.add_reader(near, on_readable, near)
                    far.send(b"x")  # all are ready in the loop's next turn
                await asyncio.wait_for(is_done, WAIT_SECONDS_MAX)
                assert set(found) == {RECEIVE_BUFFER_BYTES if count == 1 else RECEIVED_AMONG_MANY_BYTES_MAX}
                for near, _ in ends:
                    loop.remove_reader(near)
        finally:
            for pair in ends:
                for end in pair:
                    end.close()

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        runner.run(body())


def test_a_large_frame_is_received_in_its_place_and_what_follows_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "RECEIVE_BUFFER_BYTES", 1 << 12)  # so that it is full
    contents = [bytes([number]) * size for number, size in enumerate([10, LARGE, 3, LARGE + 1, LARGE, 100_000, 7, LARGE])]

    async def body() -> None:
        network, frames = RealNetwork(Warmer(1)), Frames(len(contents))
        listener = await network.listen("127.0.0.1", 0, lambda _: frames)
        with socket.create_connection(listener.address) as sender:
            sender.setblocking(False)
            for content in contents:
                await asyncio.get_running_loop().sock_sendall(sender, struct.pack(">i", len(content)) + content)
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await frames.done.wait()
        assert [bytes(frame) for frame in frames.found] == contents
        assert frames.in_place >= LARGE_COUNT
        await listener.close()

    asyncio.run(body())

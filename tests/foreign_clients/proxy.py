"""A TCP proxy between clients and a broker that sees the frames, notes them, and can keep answers back.

It runs on an event loop in a thread of its own. The broker must advertise the proxy's port, or clients go past it.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

READ_BYTES = 1 << 18
WAIT_SECONDS_MAX = 30.0


@dataclass(slots=True)
class Exchange:
    """One request and its answer, both without the length in front; None until the answer has come."""

    api_key: int
    version: int
    request: bytes
    response: bytes | None = None


class FrameReader:
    """Cuts a stream into frames, with no code of the broker's."""

    def __init__(self) -> None:
        self._collected = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._collected += data
        while len(self._collected) >= 4:
            end = 4 + int.from_bytes(self._collected[:4], "big")
            if len(self._collected) < end:
                return
            yield bytes(self._collected[4:end])
            del self._collected[:end]


class _Link:
    """One client's connection and the one to the broker."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._open: dict[int, Exchange] = {}
        self.is_mute = False

    async def carry_requests(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        while data := await reader.read(READ_BYTES):
            for frame in frames.feed(data):
                api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
                exchange = Exchange(api_key, version, frame)
                self._open[correlation_id] = exchange
                self._proxy.note(exchange)
                if not self._proxy.passes(exchange):
                    return
            self._broker.write(data)
            await self._broker.drain()

    async def carry_answers(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        while data := await reader.read(READ_BYTES):
            if self.is_mute:
                continue
            for frame in frames.feed(data):
                exchange = self._open.pop(int.from_bytes(frame[:4], "big"))
                exchange.response = frame
                self._proxy.note(None)
                if not self._proxy.passes(exchange):
                    return
            self._client.write(data)
            await self._client.drain()

    def close(self) -> None:
        self._client.close()
        self._broker.close()


class Proxy:
    """``with Proxy() as proxy:``; then ``target_port`` is set to the broker's."""

    def __init__(self) -> None:
        self.port = 0
        self.target_port = 0
        self.exchanges: list[Exchange] = []
        self.changed = threading.Condition()
        self._links: dict[_Link, None] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def requests(self, api_key: int) -> list[Exchange]:
        with self.changed:
            return [exchange for exchange in self.exchanges if exchange.api_key == api_key]

    def mute(self) -> None:
        """No answer passes any more on the connections that are open now; requests still do."""

        async def silence() -> None:
            for link in self._links:
                link.is_mute = True

        asyncio.run_coroutine_threadsafe(silence(), self._loop).result(WAIT_SECONDS_MAX)

    def wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(is_so, WAIT_SECONDS_MAX), f"never came: {what}"

    def note(self, exchange: Exchange | None) -> None:
        with self.changed:
            if exchange is not None:
                self.exchanges.append(exchange)
            self.changed.notify_all()

    def passes(self, exchange: Exchange) -> bool:
        """Whether the request, or its answer where it has one, is carried on. Else it is lost, and so is its connection."""
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:  # the broker is away
            writer.close()
            return
        link = _Link(self, writer, broker_writer)
        self._links[link] = None
        directions = [asyncio.create_task(link.carry_requests(reader)), asyncio.create_task(link.carry_answers(broker_reader))]
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        link.close()
        for direction in directions:
            direction.cancel()
        for outcome in await asyncio.gather(*directions, return_exceptions=True):
            assert outcome is None or isinstance(outcome, OSError | asyncio.CancelledError), outcome
        del self._links[link]

    def __enter__(self) -> Self:
        async def listen() -> asyncio.Server:
            return await asyncio.start_server(self._serve, "127.0.0.1", 0)

        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(listen(), self._loop).result(WAIT_SECONDS_MAX)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        async def stop() -> None:
            self._server.close()
            for link in self._links:
                link.close()
            await asyncio.gather(*asyncio.all_tasks(self._loop) - {asyncio.current_task(self._loop)}, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(WAIT_SECONDS_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS_MAX)
        self._loop.close()

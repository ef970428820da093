"""``python -m bench.sessions``: what an idle incremental fetch of a consumer costs, by how many partitions its session has.

The broker runs in this process, without sockets. Each fetch waits for records that do not come, until its time is over, and is answered
with nothing. What is counted is processor time, which other work of the machine makes longer: the least of several rounds is shown.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench.generator import FETCH_VERSION, frame
from bench.steps import quiet
from ottla.broker.node import Broker
from ottla.config import BrokerConfig
from ottla.controller.topics import NewTopic
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.messages.headers import decode_response_header
from ottla.runtime.descriptors import raise_limit
from ottla.runtime.world import real_world
from ottla.wire.compiler import decode_from

PARTITIONS: Final = (1, 4, 10, 50, 2000)
ROUNDS: Final = 7
FETCHES: Final = 100
WAIT_MS: Final = 1


class Answers:
    """A transport that hands over what is sent."""

    peer = local = ("127.0.0.1", 0)
    unsent_bytes = 0
    is_closed = False

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()

    def send(self, buffers: Any) -> None:
        self.arrived.put_nowait(b"".join(buffers))

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def probe(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None:
        raise AssertionError("the broker refused the request")


class Consumer:
    """One connection, and its session."""

    def __init__(self, broker: Broker) -> None:
        self._transport = Answers()
        self._connection = broker.router.accept(self._transport, "PLAINTEXT")
        broker.gate._admission.admitted("PLAINTEXT", "127.0.0.1", 0)
        self._session_id = self._epoch = 0

    async def fetch(self, topics: list[FetchTopic]) -> FetchResponse:
        request = FetchRequest(
            max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=1 << 20, session_id=self._session_id, session_epoch=self._epoch, topics=topics
        )
        self._connection.on_data(memoryview(bytearray(frame(request, FETCH_VERSION))))
        data = memoryview(await self._transport.arrived.get())[4:]
        _, start = decode_response_header(data, is_flexible=False)
        response, _ = decode_from(FetchResponse, FETCH_VERSION, data, start)
        assert response.error_code == 0, "the session goes on"
        self._session_id, self._epoch = response.session_id, self._epoch + 1
        return response


async def idle_us(broker: Broker, count: int) -> float:
    """Microseconds of processor time for one incremental fetch of a session of so many partitions."""
    consumer = Consumer(broker)
    await consumer.fetch([FetchTopic("t", partitions=[FetchPartition(index, partition_max_bytes=1 << 20) for index in range(count)])])
    for _ in range(3):
        await consumer.fetch([])
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(FETCHES):
            assert not (await consumer.fetch([])).responses, "nothing is news"
        best = min(best, time.process_time() - began)
    return best / FETCHES * 1e6


async def main() -> None:
    raise_limit()
    with tempfile.TemporaryDirectory(prefix="ottla-sessions-") as directory:
        (Path(directory) / "logs").mkdir()
        broker = Broker(real_world(), BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": f"{directory}/logs"}))
        await broker.start()
        await broker.controller.create_topics([NewTopic("t", max(PARTITIONS), 1)])
        for count in PARTITIONS:
            sys.stdout.write(f"{count:>6,} partitions  {await idle_us(broker, count):>9,.1f} us an idle fetch\n")
        await broker.stop()


if __name__ == "__main__":
    quiet()
    asyncio.run(main())

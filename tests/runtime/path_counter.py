"""Appends to a file and sends of it, small and large, in a process of its own; which way the bytes took is printed as JSON.

The calls of ``os`` are wrapped before anything of ottla is imported, and do what they always do.
"""

import asyncio
import json
import os
import sys
import threading
from typing import Any

SMALL, LARGE = 1000, 512 * 1024  # what lies between is written where the last appends say
ROUNDS = 3


def main(path: str) -> None:
    counts = dict.fromkeys(("sent_by_sendfile", "appended_on_the_loop", "appended_by_threads", "asked_the_kernel"), 0)
    real_sendfile, real_pwritev, real_preadv = os.sendfile, os.pwritev, os.preadv

    def sendfile(*arguments: Any) -> int:
        sent = real_sendfile(*arguments)
        counts["sent_by_sendfile"] += sent
        return sent

    def pwritev(*arguments: Any) -> int:
        written = real_pwritev(*arguments)
        counts["appended_on_the_loop" if threading.current_thread() is threading.main_thread() else "appended_by_threads"] += written
        return written

    def preadv(*arguments: Any) -> int:
        counts["asked_the_kernel"] += 1
        return real_preadv(*arguments)

    for name, function in (("sendfile", sendfile), ("pwritev", pwritev), ("preadv", preadv)):
        setattr(os, name, function)
    warmed = asyncio.run(_work(path))
    sys.stdout.write(json.dumps(counts | {"warmed": warmed}))


async def _work(path: str) -> int:
    """Every byte arrives; how many ranges a worker has read before they were sent."""
    from ottla.ports import Connection
    from ottla.runtime.sockets import RealNetwork
    from ottla.runtime.world import real_world

    world = real_world()
    assert isinstance(world.network, RealNetwork)
    done = asyncio.Event()
    received = bytearray()

    class Handler:
        def room(self) -> memoryview | None:
            return None

        def on_data(self, data: memoryview) -> bool:
            received.extend(data)
            if len(received) >= ROUNDS * (SMALL + LARGE):
                done.set()
            return False

        def on_drain(self) -> None: ...
        def on_close(self, error: Exception | None) -> None: ...

    accepted: asyncio.Queue[Connection] = asyncio.Queue()

    def accept(connection: Connection) -> Handler:
        accepted.put_nowait(connection)
        return Handler()

    listener = await world.network.listen("127.0.0.1", 0, accept)
    await world.network.connect(*listener.address, lambda _: Handler())
    sender = await accepted.get()
    file = await world.disk.open(path, create=True)
    expected = bytearray()
    for _ in range(ROUNDS):
        for size in (SMALL, LARGE):
            data = os.urandom(size)
            expected += data
            position = await file.append([data])
            assert await file.pread(position, size) == data
            sender.send([file.region(position, size)])
    await asyncio.wait_for(done.wait(), 30)
    assert received == expected
    return world.network.warmer.warmed_count


if __name__ == "__main__":
    main(sys.argv[1])

"""A broker that is served: what ends it while it starts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.broker.node import Broker
from ottla.config import BrokerConfig
from ottla.errors import StorageError
from ottla.runtime import serve
from ottla.runtime.world import real_world

REASON = "the disk of the metadata log has failed"


class Stuck(Broker):
    """A broker whose start does not end."""

    async def start(self) -> None:
        await asyncio.Event().wait()


class FailsStuck(Broker):
    """A broker that fails while its start waits for what will not come."""

    async def start(self) -> None:
        asyncio.get_running_loop().call_soon(self._failure.note, REASON)
        await asyncio.Event().wait()


def started(kind: type[Broker], directory: Path, *, is_stopped: bool = False) -> bool:
    async def main() -> bool:
        stopping = asyncio.Event()
        config = BrokerConfig({"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"})
        broker = kind(real_world(io_threads=1), config, stopping.set)
        if is_stopped:
            stopping.set()
        async with asyncio.timeout(20):
            return await serve.start_unless(broker, stopping)

    return asyncio.run(main())


def test_a_broker_that_fails_while_it_starts_ends_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=REASON):
        started(FailsStuck, tmp_path)


def test_a_broker_that_is_stopped_while_it_starts_ends_without_an_error(tmp_path: Path) -> None:
    assert not started(Stuck, tmp_path, is_stopped=True)

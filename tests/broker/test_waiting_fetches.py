"""Fetches that wait for records: each is woken, and by as much as it still lacks."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.test_log_care import create, play, send
from tests.simulation.hunt import silence

from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.sim.cluster import SimBroker

FOR_EVER_MS = 600_000
SOON_SECONDS = 5.0


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


async def fetch(broker: SimBroker, name: str, offset: int, min_bytes: int) -> float:
    """When the answer came, with at least so many bytes."""
    cluster = broker.client(name)
    assert broker.broker is not None
    topic_id = broker.broker.partitions.by_name["t"][0].topic_id
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=FOR_EVER_MS, min_bytes=min_bytes, topics=[FetchTopic("t", topic_id, [wanted])])
    answer = await cluster.ask(None, request, FetchResponse, timeout_ms=2 * FOR_EVER_MS)
    records = answer.responses[0].partitions[0].records
    assert records is not None
    assert len(records) >= min_bytes
    await cluster.close()
    return asyncio.get_running_loop().time()


def test_all_fetches_that_wait_for_a_partition_are_woken() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        waiting = [asyncio.ensure_future(fetch(broker, f"reader-{number}", 0, 1)) for number in range(3)]
        await asyncio.sleep(1)
        await send(broker, "t", [(None, b"x")])
        sent = asyncio.get_running_loop().time()
        assert max(await asyncio.gather(*waiting)) < sent + SOON_SECONDS

    play(act)


def test_a_fetch_waits_for_what_it_lacks_and_not_for_what_it_has_read() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"x" * 300)])
        assert broker.broker is not None
        size = broker.broker.partitions.by_name["t"][0].log.size_bytes
        waiting = asyncio.ensure_future(fetch(broker, "reader", 0, size + 1))
        await asyncio.sleep(1)
        assert not waiting.done()
        await send(broker, "t", [(None, b"x")])
        sent = asyncio.get_running_loop().time()
        assert await waiting < sent + SOON_SECONDS

    play(act)

"""Order and single storage, whatever becomes of single batches."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.simulated import create, end_of, stored, with_broker

from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.sim.cluster import SimBroker


@pytest.mark.parametrize("seed", range(12))
def test_a_batch_that_is_given_up_leaves_the_order_of_those_after_it(seed: int) -> None:
    """One record of 40 is too large for the topic; batches of one record each, five requests in flight."""

    async def body(broker: SimBroker) -> None:
        await create(broker, configs={"max.message.bytes": "1000"})
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=0, batch_size=1))
        futures = []
        for number in range(400):
            value = b"%d" % number + bytes(2000 if number % 40 == 20 else 0)
            futures.append(await producer.send("t", value))
            await asyncio.sleep(0.0002)
        await asyncio.wait(futures)
        refused = [number for number, future in enumerate(futures) if future.exception() is not None]
        assert refused == list(range(20, 400, 40))
        await producer.close()
        values = await stored(broker, 390)
        assert values == [b"%d" % number for number in range(400) if number % 40 != 20]
        assert await end_of(broker) == 390

    with_broker(body, seed)

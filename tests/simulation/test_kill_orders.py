"""Brokers of three replicas die in every order and return in every order, for each ``min.insync.replicas``.

What acks=all has acknowledged is there in the end, once and in order. With fewer replicas in sync than the topic demands nothing is
acknowledged, and it goes on when brokers return. Shipped nodes in the simulated world: three controllers, and three brokers beside them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import permutations
from typing import Final

import pytest
from tests.cluster.in_simulation import SimNodes, play
from tests.foreign_clients.wire import batch_of, produce_request

from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.producer_settings import ProducerSettings
from ottla.controller.features import ELR_VERSION
from ottla.errors import ErrorCode
from ottla.messages.produce import ProduceResponse
from ottla.sim.checkers import acknowledged_are_kept, idempotent_producers_store_once_and_in_order, nothing_is_invented
from ottla.sim.workload import History, count_while
from ottla.types import TopicPartition

BROKERS: Final = (4, 5, 6)
CONTROLLER = 1
PARTITION = TopicPartition("t", 0)
Order = tuple[int, ...]
MORE = 10
"""So many more records are acknowledged where acknowledgements go on."""
REFUSED_SECONDS = 2
SLOW_MS = 5
PAUSE_SECONDS_MAX = 0.5


class Scene:
    """One topic of three replicas, and a producer that sends to it all the while."""

    def __init__(self, nodes: SimNodes, min_isr: int, met: Counter[str]) -> None:
        self.nodes = nodes
        self.min_isr = min_isr
        self.met = met
        self.history = History()
        self.in_sync = set(BROKERS)
        self.visible = 0
        """Where the highest of their high watermarks was when one of them died last."""
        for one, other in permutations(BROKERS, 2):  # so that they have their leader's records after a client could have an answer
            nodes.simulation.fabric.slow_link(f"node-{one}", f"node-{other}", SLOW_MS)

    async def kill(self, *victims: int) -> None:
        """All at once, in the moment of an acknowledgement if there are any; those that are left know."""
        is_over = asyncio.Event()

        def kill() -> None:
            self.visible = max(self.nodes.partition(broker, "t").high_watermark for broker in self.in_sync)
            for victim in victims:
                self.nodes.brokers[victim].kill(power_cut=False)
            self.history.on_acknowledged = lambda _: None
            is_over.set()

        if len(self.in_sync) >= self.min_isr:
            self.history.on_acknowledged = lambda _: kill()
        else:
            kill()
        await is_over.wait()
        self.met["kills"] += len(victims)
        self.in_sync -= set(victims)
        await self._check()

    async def bring_back(self, broker: int) -> None:
        await self.nodes.brokers[broker].start()
        self.in_sync.add(broker)
        await self._check()

    async def _check(self) -> None:
        """Enough of them acknowledge, and too few refuse."""
        await self.nodes.until(lambda: self._leader() > 0)
        count = len(self.history.acknowledged)
        if len(self.in_sync) >= self.min_isr:
            await self.nodes.until(lambda: len(self.history.acknowledged) >= count + MORE)
            read = await self.read(count + MORE)
            assert [found for found in _acknowledged(self.history)[: count + MORE] if found not in read] == []
            return
        assert await self.nodes.act(self._refused) == ErrorCode.NOT_ENOUGH_REPLICAS
        await asyncio.sleep(REFUSED_SECONDS)
        assert len(self.history.acknowledged) == count
        assert self.nodes.partition(self._leader(), "t").high_watermark <= self.visible
        self.met["times refused"] += 1

    def _leader(self) -> int:
        """Who leads with these in sync, and knows that it does; 0 while none does."""
        for broker in self.in_sync:
            leading = self.nodes.partition(broker, "t").leading if self.nodes.has(broker, "t") else None
            if leading is not None and set(leading.machine.isr) == self.in_sync == self.nodes.in_sync(CONTROLLER, "t"):
                return broker
        return 0

    async def _refused(self, cluster: Cluster) -> int:
        await cluster.refresh(["t"])
        request = produce_request("t", batch_of(b"refused"))
        request.topic_data[0].topic_id = cluster.topics["t"].topic_id
        response = await cluster.ask(self._leader(), request, ProduceResponse)
        return response.responses[0].partition_responses[0].error_code

    async def read(self, count: int) -> list[tuple[int, bytes]]:
        """As many records as that at least, from the first one on."""

        async def poll(cluster: Cluster) -> list[tuple[int, bytes]]:
            consumer = Consumer(cluster, ConsumerSettings(fetch=FetchSettings(auto_offset_reset="earliest")))
            consumer.assign([PARTITION])
            found: list[tuple[int, bytes]] = []
            while len(found) < count:
                found += [(record.offset, record.value or b"") for record in await consumer.poll(1000)]
            await consumer.close()
            return found

        return await self.nodes.act(poll)

    async def judge(self) -> None:
        """All that was sent is acknowledged by now, and is what a reader finds."""
        log = await self.read(len(self.history.sent))
        assert log == sorted(_acknowledged(self.history))
        logs = {PARTITION: log}
        found = [*acknowledged_are_kept(self.history, logs), *nothing_is_invented(self.history, logs)]
        assert found + idempotent_producers_store_once_and_in_order(self.history, logs) == []
        ends = {self.nodes.partition(broker, "t").log.log_end_offset for broker in BROKERS}
        assert ends == {len(log)}, "the replicas are equal, and nothing that was refused is in them"
        self.met["acknowledged"] += len(self.history.acknowledged)


def _acknowledged(history: History) -> list[tuple[int, bytes]]:
    return [(found.offset, found.value) for found in history.acknowledged]


def kill_and_return(min_isr: int, kills: Order, returns: Order, met: Counter[str], *, at_once: bool = False) -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", list(BROKERS), min_insync_replicas=str(min_isr))
        scene, is_over = Scene(nodes, min_isr, met), asyncio.Event()
        settings = ProducerSettings(acks="all", linger_ms=0, delivery_timeout_ms=600_000)

        async def produce(cluster: Cluster) -> None:
            await count_while(
                scene.history,
                cluster,
                "p",
                [PARTITION],
                goes_on=lambda _: not is_over.is_set(),
                settings=settings,
                pause_seconds_max=PAUSE_SECONDS_MAX,
            )

        producing = asyncio.ensure_future(nodes.act(produce))
        await nodes.until(lambda: len(scene.history.acknowledged) >= MORE)
        if at_once:
            await scene.kill(*kills)
        else:
            for victim in kills:
                await scene.kill(victim)
        for broker in returns:
            await scene.bring_back(broker)
        is_over.set()
        await producing
        await scene.judge()

    play(
        body, seed=sum(10**place * broker for place, broker in enumerate((*kills, *returns))), features={ELR_VERSION: 1}, broker_ids=BROKERS
    )


@pytest.mark.parametrize("min_isr", [1, 2, 3])
@pytest.mark.slow
def test_mechanism_30_whoever_dies_in_whatever_order_what_was_acknowledged_is_what_can_be_read(min_isr: int) -> None:
    met: Counter[str] = Counter()
    for victim in BROKERS:
        kill_and_return(min_isr, (victim,), (victim,), met)
    for kills in permutations(BROKERS, 2):
        for returns in permutations(kills):
            kill_and_return(min_isr, kills, returns, met)
        kill_and_return(min_isr, kills, kills, met, at_once=True)
    print(dict(met))
    assert met["kills"] == 3 + 6 * 3 * 2
    assert (met["times refused"] > 0) == (min_isr > 1)

"""What clients are told while a broker fails."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.simulation.quorum_nodes import NODES, QuorumNode

from ottla.broker.liveness.failing_brokers import HELD_MAX, HOLD_MS, LINGER_MS, TOGETHER_MAX, FailingBrokers
from ottla.broker.parts import Parts
from ottla.client.admin import Admin, NewTopic
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import EMPTY_IMAGE, BrokerImage, ClusterImage, EndpointImage
from ottla.ports import World
from ottla.sim.cluster import SimClient, Simulation
from ottla.sim.loop import run


def image_of(*serving: int, fenced: tuple[int, ...] = ()) -> ClusterImage:
    brokers = {broker: BrokerImage(broker, 1, {}, None, is_fenced=broker in fenced) for broker in (*serving, *fenced)}
    return ClusterImage(brokers=brokers)


class Watched:
    """``FailingBrokers`` on a simulated clock; three brokers serve."""

    def __init__(self, world: World) -> None:
        self.failing = FailingBrokers(world)
        self.not_working = 0
        self.back_at_work = [0]  # turn by turn
        self.image = EMPTY_IMAGE
        self._clock = world.clock

    async def follow(self, image: ClusterImage) -> None:
        await self.failing.on_image(ImageDelta(self.image, image))
        self.image = image

    async def asked(self) -> int:
        """How many milliseconds an answer waits."""
        began_ms = self._clock.monotonic_ms()
        await self.failing.settled(self)
        return self._clock.monotonic_ms() - began_ms

    def begin_work(self, count: int) -> None:
        if not self.back_at_work[-1]:
            asyncio.get_running_loop().call_soon(self.back_at_work.append, 0)
        self.back_at_work[-1] += count
        self.not_working -= count

    def end_work(self, count: int) -> None:
        self.not_working += count

    @property
    def listed(self) -> list[int]:
        return [broker.broker_id for broker in self.failing.just_fenced]


def watched(body: Callable[[Watched], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        machine = Simulation(0).machine("node")
        watching = Watched(machine.boot())
        await watching.follow(image_of(1, 2, 3))
        await machine.run(body(watching))

    run(main())


def test_an_answer_waits_until_the_broker_is_fenced_which_is_still_listed_for_a_moment() -> None:
    async def body(watched: Watched) -> None:
        assert await watched.asked() == 0
        watched.failing.doubt(2)
        answers = [asyncio.ensure_future(watched.asked()) for _ in range(3)]
        await asyncio.sleep(0.04)
        assert not any(answer.done() for answer in answers)
        await watched.follow(image_of(1, 3, fenced=(2,)))
        assert await asyncio.gather(*answers) == [40, 40, 40]
        assert await watched.asked() == 0
        watched.failing.doubt(2)
        assert await watched.asked() == 0, "it is known not to serve"
        assert watched.listed == [2]
        await asyncio.sleep(LINGER_MS / 1000)
        assert watched.listed == []

    watched(body)


def test_an_answer_waits_until_the_broker_has_answered() -> None:
    async def body(watched: Watched) -> None:
        watched.failing.doubt(2)
        watched.failing.doubt(3)
        answer = asyncio.ensure_future(watched.asked())
        await asyncio.sleep(0.01)
        watched.failing.trust(2)
        await asyncio.sleep(0.01)
        assert not answer.done(), "the other one has not"
        watched.failing.trust(3)
        assert await answer == 20
        assert watched.listed == []

    watched(body)


def test_an_answer_waits_briefly_for_a_new_doubt_and_never_for_an_old_one() -> None:
    async def body(watched: Watched) -> None:
        watched.failing.doubt(2)
        await asyncio.sleep(0.1)
        watched.failing.doubt(2)
        assert await watched.asked() == HOLD_MS - 100
        assert await watched.asked() == 0
        watched.failing.doubt(2)
        assert await watched.asked() == 0, "it has been in doubt all the time"

    watched(body)


def test_no_more_than_so_many_answers_wait_and_those_are_no_work_and_go_on_by_and_by() -> None:
    async def body(watched: Watched) -> None:
        watched.failing.doubt(2)
        answers = [asyncio.ensure_future(watched.asked()) for _ in range(HELD_MAX)]
        await asyncio.sleep(0.01)
        assert await watched.asked() == 0
        assert watched.not_working == HELD_MAX
        waits = await asyncio.gather(*answers)
        assert waits == sorted(waits)
        assert waits[0] == HOLD_MS
        assert watched.not_working == 0
        assert watched.back_at_work == [TOGETHER_MAX] * (HELD_MAX // TOGETHER_MAX) + [0]

    watched(body)


def test_a_dead_broker_is_listed_after_its_registration_is_gone() -> None:
    """Its znode is deleted in ZooKeeper mode."""

    async def body(watched: Watched) -> None:
        watched.failing.doubt(2)
        answer = asyncio.ensure_future(watched.asked())
        await asyncio.sleep(0.04)
        await watched.follow(image_of(1, 3))
        assert await answer == 40
        assert watched.listed == [2]
        await asyncio.sleep(LINGER_MS / 1000)
        assert watched.listed == []

    watched(body)


def test_unregistered_stopped_and_recovered_brokers_are_not_listed_as_failing() -> None:
    async def body(watched: Watched) -> None:
        await watched.follow(image_of(1, 3))
        assert watched.listed == []
        image = image_of(1, fenced=(3,))
        await watched.follow(
            dataclasses.replace(image, brokers={**image.brokers, 3: replace(image.brokers[3], in_controlled_shutdown=True)})
        )
        assert watched.listed == [], "both may have been decided since the last image that was followed"
        await watched.follow(image_of(1, 2, 3))
        await watched.follow(image_of(1, 3, fenced=(2,)))
        assert watched.listed == [2]
        await watched.follow(image_of(1, 2, 3))
        assert watched.listed == []

    watched(body)


@pytest.mark.parametrize("seed", range(5))
def test_a_request_right_after_a_leaders_death_is_answered_with_the_new_leader(seed: int) -> None:
    simulation = Simulation(seed)

    async def main() -> None:
        nodes = {node: QuorumNode(simulation, node) for node in range(1, NODES + 1)}
        for node in nodes.values():
            await node.format()
            node.begin()
        client = SimClient(simulation, "client", nodes[1].bootstrap)
        async with asyncio.timeout(60):
            for node in nodes.values():
                assert node.starting is not None
                await node.starting
            await client.machine.run(work(client, nodes))

    async def work(client: SimClient, nodes: dict[int, QuorumNode]) -> None:
        cluster = client.cluster()
        await cluster.refresh()
        assert await Admin(cluster).create_topics([NewTopic("t", assignments={0: [2, 1, 3]})]) == {"t": None}
        await asyncio.sleep(3)  # all are watched by now: of the simulated clock

        async def told() -> tuple[int, list[int]]:
            answer = await cluster.ask(1, MetadataRequest([MetadataRequestTopic(name="t")]), MetadataResponse)
            return answer.topics[0].partitions[0].leader_id, sorted(broker.node_id for broker in answer.brokers)

        assert await told() == (2, [1, 2, 3])
        nodes[2].kill(power_cut=False)
        await asyncio.sleep(0.005)  # the connections' ends are on their way to the client, too
        leader, listed = await told()
        assert leader in (1, 3)
        assert listed == [1, 2, 3]
        await asyncio.sleep(2 * LINGER_MS / 1000)
        assert await told() == (leader, [1, 3])
        await cluster.close()

    run(main())


def test_a_broker_that_serves_again_in_the_newest_image_is_listed_once() -> None:
    """What is followed here may be an older image, in which it was fenced just now."""
    end = EndpointImage("PLAINTEXT", "localhost", 9092, 0)
    brokers = {node: BrokerImage(node, 1, {"PLAINTEXT": end}, None, is_fenced=False) for node in (1, 2, 3)}
    fenced = replace(brokers[3], broker_epoch=0)
    parts: Any = SimpleNamespace(image=ClusterImage(brokers=brokers), home=SimpleNamespace(failing=SimpleNamespace(just_fenced=[fenced])))
    assert [node for node, *_ in Parts.endpoints_for(parts, "PLAINTEXT", with_just_fenced=True)] == [1, 2, 3]
    brokers[3] = replace(brokers[3], is_fenced=True)
    assert [node for node, *_ in Parts.endpoints_for(parts, "PLAINTEXT", with_just_fenced=True)] == [1, 2, 3]
    assert [node for node, *_ in Parts.endpoints_for(parts, "PLAINTEXT")] == [1, 2]

"""A broker that hangs: it accepts connections and answers nothing. Others of the cluster are asked in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.client.cluster import Cluster
from ottla.client.cluster_metadata import Node
from ottla.client.head_start import HEAD_START_MS
from ottla.client.late_answers import LATE_MS
from ottla.client.producer_ids import new_producer_id
from ottla.errors import KafkaError
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.messages.metadata import MetadataRequest, MetadataResponse
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.interference import Held, Interference
from ottla.sim.loop import run

REQUEST_MS = 2_000


def with_two(body: Callable[[Cluster, SimBroker, SimBroker], Awaitable[None]]) -> None:
    """``body`` runs with a client that has a connection to broker 1, its only bootstrap address, and that knows broker 2."""

    async def main() -> None:
        simulation = Simulation(1)
        one, two = SimBroker(simulation, name="one"), SimBroker(simulation, name="two")
        await one.start()
        await two.start()
        world = simulation.machine("client").boot()
        cluster = Cluster(world, one.bootstrap, client_id="c", request_timeout_ms=REQUEST_MS)
        await cluster.refresh()
        cluster.nodes = {1: Node(1, "one", 9092), 2: Node(2, "two", 9092)}
        await body(cluster, one, two)
        await cluster.close()

    run(main())


async def took_ms(cluster: Cluster, what: Awaitable[object]) -> int:
    clock = cluster.world.clock
    began_ms = clock.monotonic_ms()
    await what
    return clock.monotonic_ms() - began_ms


def question(cluster: Cluster) -> Awaitable[MetadataResponse]:
    return cluster.ask(None, MetadataRequest([], False), MetadataResponse)


def test_a_question_that_a_broker_leaves_unanswered_is_asked_another() -> None:
    async def body(cluster: Cluster, one: SimBroker, _: SimBroker) -> None:
        one.machine.pause_process()
        assert REQUEST_MS <= await took_ms(cluster, question(cluster)) < REQUEST_MS + HEAD_START_MS
        assert await took_ms(cluster, question(cluster)) < HEAD_START_MS, "the silent one is known to be"
        assert (await cluster.any_connection()).address == "two:9092"

    with_two(body)


def test_a_question_whose_answer_is_late_is_asked_another_and_the_connection_stays() -> None:
    """What else was asked over it may be answered yet."""

    async def body(cluster: Cluster, one: SimBroker, _: SimBroker) -> None:
        cluster.request_timeout_ms = 30_000
        before = await cluster.any_connection()
        one.machine.pause_process()
        assert LATE_MS <= await took_ms(cluster, question(cluster)) < LATE_MS + HEAD_START_MS
        assert not before.is_closed
        assert await took_ms(cluster, question(cluster)) < HEAD_START_MS

    with_two(body)


def test_an_id_for_a_producer_is_asked_of_another() -> None:
    """Nothing is sent before it has come, to whichever leader."""

    async def body(cluster: Cluster, one: SimBroker, _: SimBroker) -> None:
        cluster.request_timeout_ms = 30_000
        one.machine.pause_process()
        assert LATE_MS <= await took_ms(cluster, new_producer_id(cluster)) < LATE_MS + HEAD_START_MS

    with_two(body)


def test_the_epoch_of_a_transactional_id_is_not_asked_of_another() -> None:
    async def body(cluster: Cluster, one: SimBroker, _: SimBroker) -> None:
        one.machine.pause_process()
        with pytest.raises(KafkaError, match="one:9092 has not answered InitProducerId in 2000 ms"):
            await cluster.ask(None, InitProducerIdRequest("x", 1_000), InitProducerIdResponse)

    with_two(body)


def test_a_question_is_asked_of_each_broker_where_several_are_known_as_silent() -> None:
    """While a follower hangs, leaders leave batches unanswered, too: the client cannot tell who hangs."""

    async def body(cluster: Cluster, one: SimBroker, _: SimBroker) -> None:
        cluster.request_timeout_ms = 30_000
        for node_id in (1, 2):
            (await cluster.connection(node_id)).suspect()
        (await cluster.any_connection()).suspect()
        one.machine.pause_process()
        assert LATE_MS <= await took_ms(cluster, question(cluster)) < LATE_MS + HEAD_START_MS

    with_two(body)


def test_a_question_whose_answer_is_late_waits_behind_no_other_request() -> None:
    """While a follower hangs, leaders hold batches back, and what is asked over the same connections."""

    async def body(cluster: Cluster, one: SimBroker, _: SimBroker) -> None:
        cluster.request_timeout_ms = 30_000
        network = Interference(cluster)
        network.alter = lambda request, _: Held(20_000) if isinstance(request, DescribeClusterRequest) else None
        held = asyncio.ensure_future(cluster.ask(2, DescribeClusterRequest(), DescribeClusterResponse))
        one.machine.pause_process()
        assert LATE_MS <= await took_ms(cluster, question(cluster)) < LATE_MS + HEAD_START_MS
        assert await took_ms(cluster, question(cluster)) < HEAD_START_MS
        assert not held.done()
        await held

    with_two(body)


def test_a_question_is_not_asked_twice_of_the_only_broker() -> None:
    async def body(cluster: Cluster, one: SimBroker, _: SimBroker) -> None:
        del cluster.nodes[2]
        await cluster.connection(1)  # a second one, to the same broker
        one.machine.pause_process()
        clock = cluster.world.clock
        began_ms = clock.monotonic_ms()
        with pytest.raises(KafkaError, match="one:9092 has not answered Metadata in 2000 ms"):
            await question(cluster)
        assert clock.monotonic_ms() - began_ms < REQUEST_MS + HEAD_START_MS

    with_two(body)


def test_a_change_is_not_asked_of_another() -> None:
    """The silent broker may have made it."""

    async def body(cluster: Cluster, one: SimBroker, two: SimBroker) -> None:
        one.machine.pause_process()
        change = CreateTopicsRequest([CreatableTopic("t", 1, 1)])
        with pytest.raises(KafkaError, match="one:9092 has not answered CreateTopics in 2000 ms"):
            await cluster.ask(None, change, CreateTopicsResponse)
        other = two.client("d")
        assert "t" not in await other.all_topics()
        await other.close()

    with_two(body)


def test_a_broker_that_lets_no_connection_come_about_in_a_requests_time_is_silent_too() -> None:
    async def body(cluster: Cluster, one: SimBroker, _: SimBroker) -> None:
        one.machine.pause_process()
        clock = cluster.world.clock
        began_ms = clock.monotonic_ms()
        with pytest.raises(KafkaError, match="broker 1 cannot be reached: no broker at one:9092"):
            await cluster.connection(1, "fetch")
        assert REQUEST_MS <= clock.monotonic_ms() - began_ms < REQUEST_MS + HEAD_START_MS
        assert await took_ms(cluster, question(cluster)) < HEAD_START_MS

    with_two(body)


def test_the_only_broker_is_asked_though_it_was_silent_and_is_so_no_longer_once_it_answers() -> None:
    async def body(cluster: Cluster, one: SimBroker, _: SimBroker) -> None:
        del cluster.nodes[2]
        first = await cluster.any_connection()
        one.machine.pause_process()
        with pytest.raises(KafkaError, match="one:9092"):
            await cluster.connection(1, "fetch")
        one.machine.resume_process()
        assert await cluster.any_connection() is not first, "another attempt may say that it answers"
        assert await cluster.any_connection() is first, "and did"

    with_two(body)


def test_the_least_busy_of_the_open_connections_is_asked() -> None:
    async def body(cluster: Cluster, one: SimBroker, _: SimBroker) -> None:
        first = await cluster.any_connection()
        second = await cluster.connection(2)
        one.machine.pause_process()
        waiting = asyncio.ensure_future(first.ask(MetadataRequest([], False), MetadataResponse, timeout_ms=REQUEST_MS))
        await asyncio.sleep(0)  # the request is sent
        assert first.in_flight_count == 1
        assert await cluster.any_connection() is second
        one.machine.resume_process()
        await waiting
        assert await cluster.any_connection() is first

    with_two(body)

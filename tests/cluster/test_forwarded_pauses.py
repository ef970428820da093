"""A client above its quota of changes is not read for its pause, whichever broker passes its request on to the controller (KIP-599)."""

from __future__ import annotations

import asyncio
import gc

import pytest
from tests.broker.test_throttling import set_quota
from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.requests.embedded import EmbeddedChannel
from ottla.broker.requests.throttling import LOOK_MS
from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.quotas import THROTTLE_MS_MAX

BROKER = 4
"""A broker that is never the controller."""
ASK_MS = 60_000


@pytest.mark.parametrize(("version", "expected"), [(5, [0, 0]), (7, [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED])])
def test_the_broker_that_passes_the_request_on_does_not_read_the_client_for_its_pause(version: int, expected: list[int]) -> None:
    """It read on: a client that does not wait by itself, and in old versions is refused nothing, made topics as fast as it liked."""

    async def body(nodes: SimNodes) -> None:
        async def ask(cluster: Cluster) -> None:
            await set_quota(cluster, {"client-id": None}, controller_mutation_rate=1)
            await cluster.refresh([])
            connection, clock = await cluster.connection(BROKER), cluster.world.clock
            codes, pause_ms, began_ms = [], 0, 0
            for name in ("a", "b"):
                request = CreateTopicsRequest([CreatableTopic(name, 15, 1)])
                answer = await connection.ask(request, CreateTopicsResponse, timeout_ms=ASK_MS, version_max=version)
                codes.append(answer.topics[0].error_code)
                pause_ms = max(pause_ms, answer.throttle_time_ms)
                began_ms = clock.monotonic_ms()
            await connection.ask(ApiVersionsRequest("probe", "1"), ApiVersionsResponse, timeout_ms=ASK_MS)
            assert codes == expected
            assert pause_ms > 3000
            assert clock.monotonic_ms() - began_ms > pause_ms - 1000

        await nodes.until(lambda: is_known(nodes))
        await nodes.act(ask)

    play(body, broker_ids=[BROKER])


def is_known(nodes: SimNodes) -> bool:
    """Whether all nodes know that the broker serves."""
    images = [node.broker.image for node in nodes.nodes.values() if node.broker is not None]
    return all(BROKER in image.brokers and not image.brokers[BROKER].is_fenced for image in images)


def test_the_controller_keeps_nothing_of_a_request_until_the_pause_of_its_client_is_over() -> None:
    """The pause may be weeks: a client that connected again and again filled the controller's memory."""

    async def body(nodes: SimNodes) -> None:
        async def ask(cluster: Cluster) -> None:
            await set_quota(cluster, {"client-id": None}, controller_mutation_rate=1e-9)
            await cluster.refresh([])
            connection = await cluster.connection(BROKER)
            request, before = CreateTopicsRequest([CreatableTopic("a", 1, 1)]), kept_channels()
            answer = await connection.ask(request, CreateTopicsResponse, timeout_ms=ASK_MS, version_max=5)
            assert answer.throttle_time_ms == THROTTLE_MS_MAX
            assert kept_channels() == before + 1
            await asyncio.sleep(LOOK_MS / 1000 + 1)
            assert kept_channels() == before

        await nodes.until(lambda: is_known(nodes))
        await nodes.act(ask)

    play(body, broker_ids=[BROKER])


def kept_channels() -> int:
    gc.collect()
    return sum(isinstance(known, EmbeddedChannel) for known in gc.get_objects())

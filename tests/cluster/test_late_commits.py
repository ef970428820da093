"""A coordinator whose followers are silent: what it decides is refused after ``offsets.commit.timeout.ms``, and may be committed later."""

from __future__ import annotations

import asyncio

import pytest
from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.coordinators.shard import Shard
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import CommitOffsets, FetchOffsets, FetchResult, OffsetToCommit
from ottla.types import GROUP_METADATA_TOPIC

LIMIT_SECONDS = 3


async def commit(shard: Shard, offset: int) -> None:
    await shard.ask(lambda token: CommitOffsets(token, "g", -1, "", None, (OffsetToCommit("t", 0, offset, -1, ""),)))


async def fetch(shard: Shard) -> FetchResult:
    return await shard.ask(lambda token: FetchOffsets(token, "g", (("t", 0),), False))


async def loaded(nodes: SimNodes) -> Shard:
    """The coordinator on node 1; the other two have its log, too."""
    await nodes.create(GROUP_METADATA_TOPIC, [1, 2, 3], min_insync_replicas="2")
    broker = nodes.nodes[1].broker
    assert broker is not None
    await nodes.until(lambda: bool(broker.groups._shards) and broker.groups._shards[0]._is_loaded)
    return broker.groups._shards[0]


def test_a_commit_that_too_few_replicas_get_is_refused_in_time() -> None:
    """Kafka's clients take COORDINATOR_NOT_AVAILABLE for what may be tried again."""

    async def body(nodes: SimNodes) -> None:
        shard, loop = await loaded(nodes), asyncio.get_running_loop()
        await commit(shard, 1)
        for follower in (2, 3):
            nodes.nodes[follower].machine.pause_process()
        began = loop.time()
        with pytest.raises(KafkaError) as caught:
            await nodes.nodes[1].machine.run(commit(shard, 2))
        assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert loop.time() - began == pytest.approx(LIMIT_SECONDS, abs=0.1), "of the simulated clock"
        assert shard.parked_count == 0
        for follower in (2, 3):
            nodes.nodes[follower].machine.resume_process()
        await nodes.until(lambda: all(nodes.partition(n, GROUP_METADATA_TOPIC).high_watermark == 2 for n in (1, 2, 3)))

    play(body, offsets_commit_timeout_ms=str(LIMIT_SECONDS * 1000))


def test_an_offset_is_not_told_before_its_commit_is_committed() -> None:
    """Whoever begins there would read on from what the next coordinator may not know."""

    async def body(nodes: SimNodes) -> None:
        shard = await loaded(nodes)
        await commit(shard, 1)
        for follower in (2, 3):
            nodes.nodes[follower].machine.pause_process()
        machine = nodes.nodes[1].machine
        with pytest.raises(KafkaError):
            await machine.run(commit(shard, 2))
        with pytest.raises(KafkaError) as caught:
            await machine.run(fetch(shard))
        assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        for follower in (2, 3):
            nodes.nodes[follower].machine.resume_process()
        found = await machine.run(fetch(shard))
        assert [offset.offset for offset in found.offsets] == [2]

    play(body, offsets_commit_timeout_ms=str(LIMIT_SECONDS * 1000))

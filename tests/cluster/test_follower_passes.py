"""What a follower's fetch has committed is committed, though the leader fails to answer that fetch, or has to read from a disk first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.fetching.follower import FollowerPolicy

SOON_SECONDS = 5


def test_a_producer_is_answered_when_the_pass_fails_that_has_committed_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower's next fetch reports nothing new: no other pass would have answered the producer, or moved the high watermark."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])
        read, failed, loop = FollowerPolicy.read, list[str](), asyncio.get_running_loop()

        async def fail_once(policy: FollowerPolicy, *given: Any) -> None:
            await read(policy, *given)
            if policy._committed and not failed:
                failed.append("a pass")
                raise RuntimeError("a mistake in a later partition")

        monkeypatch.setattr(FollowerPolicy, "read", fail_once)
        began = loop.time()
        await nodes.send("t", b"x")
        assert failed
        assert loop.time() < began + SOON_SECONDS
        assert nodes.partition(1, "t").high_watermark == 1
        assert nodes.in_sync(1, "t") == {1, 2}
        await nodes.send("t", b"y")
        assert nodes.partition(2, "t").log.log_end_offset == 2

    play(body)


def test_a_producer_is_answered_while_the_pass_reads_from_a_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another partition of the same follower is far behind, and cold."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])
        read, loop = FollowerPolicy.read, asyncio.get_running_loop()

        async def read_slowly(policy: FollowerPolicy, *given: Any) -> None:
            await read(policy, *given)
            if policy._committed:
                await asyncio.sleep(SOON_SECONDS)  # of the simulated clock

        monkeypatch.setattr(FollowerPolicy, "read", read_slowly)
        began = loop.time()
        await nodes.send("t", b"x")
        assert loop.time() < began + SOON_SECONDS

    play(body)

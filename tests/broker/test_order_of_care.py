"""What has to be durable before files go or come: a crash right after them finds the log as it was."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.test_log_care import create, log_of, play, records_of, send
from tests.broker.test_parts_beside_each_other import SCATTERED
from tests.quiet import silence

from ottla.sim.cluster import SimBroker
from ottla.storage.directory.checkpoint import LOG_START_OFFSET, read_checkpoint
from ottla.types import TopicPartition

WAIT_SECONDS_MAX = 300


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


async def crashed_after(broker: SimBroker, ending: str, target: str) -> None:
    """The process is gone, right after the first rename of a path that ends so to one that ends so."""
    disk, died = broker.machine.disk, asyncio.Event()

    def strike() -> None:
        broker.kill(power_cut=False)
        died.set()

    def near(operation: str, path: str, what: str) -> None:
        if operation == "rename" and "/t-0/" in path and path.endswith(ending) and what.endswith(target) and disk.crash_at is None:
            disk.crash_at, disk.on_crash = disk.steps + 1, strike

    disk.on_step = near
    await asyncio.wait_for(died.wait(), WAIT_SECONDS_MAX)


def test_the_start_of_the_log_is_checkpointed_before_retention_removes_a_segment() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", retention_bytes="1000")
        await send(broker, "t", [(None, b"x" * 300)] * 20)
        await crashed_after(broker, ".log", ".deleted")
        broker.machine.disk.restart()
        starts = await read_checkpoint(broker.machine.disk, f"/data/{LOG_START_OFFSET}")
        assert starts.get(TopicPartition("t", 0), 0) > 10

    play(act, log_retention_check_interval_ms="20000")


def test_the_recovery_point_is_checkpointed_before_compaction_leaves_a_gap() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        await send(broker, "t", SCATTERED)
        end_offset = log_of(broker, "t").log_end_offset
        await crashed_after(broker, ".swap", ".log")
        await broker.start()
        assert log_of(broker, "t").log_end_offset == end_offset
        kept = {record.key: record.offset for record in await records_of(log_of(broker, "t"))}
        assert kept == {key: offset for offset, (key, _) in enumerate(SCATTERED)}

    play(act, log_cleaner_backoff_ms="15000")

"""No power cut may leave a log without its beginning: found by the simulation, kept here as a plain order of steps."""

from __future__ import annotations

import random

from ottla.records.builder import BatchBuilder
from ottla.sim.disk import SimDisk
from ottla.sim.loop import run
from ottla.sim.trace import Trace
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog

DIRECTORY = "/data/t-0"


class Steps(Trace):
    """Every event, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def add(self, event: str) -> None:
        self.events.append(event)


def test_a_segments_name_is_durable_before_it_takes_a_byte() -> None:
    steps = Steps()

    async def main() -> None:
        disk = SimDisk(random.Random(1), steps, "disk", delay_ms_max=0)
        await disk.make_dirs(DIRECTORY)
        log = await PartitionLog.open(disk, DIRECTORY, config=LogConfig(segment_bytes=200), now_ms=0, clean=False)
        for number in range(6):
            builder = BatchBuilder()
            builder.append(None, b"x" * 80, timestamp_ms=number)
            log.stage(memoryview(builder.build()), leader_epoch=0, now_ms=number)
            await log.flush()
        assert len(log.segments) > 3

    run(main())
    created = [event.split()[2] for event in steps.events if event.split()[1] == "create" and event.split()[2].endswith(".log")]
    assert len(created) > 3
    for path in created:
        begun = next(at for at, event in enumerate(steps.events) if event.startswith(f"disk create {path}"))
        filled = next(at for at, event in enumerate(steps.events) if event.startswith(f"disk append {path}"))
        assert f"disk sync_dir {DIRECTORY} " in steps.events[begun:filled], f"{path} took bytes before its name was durable"

"""Long walks are jobs: with the results of a short walk, in any worker, and whatever happens to the worker."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.storage.batches import DIRECTORY, append, batch, idempotent, open_log, records_of

from ottla.errors import WorkerDied
from ottla.runtime.files import RealDisk
from ottla.sim.disk import SimDisk
from ottla.sim.disk_faults import Fault
from ottla.sim.instant_disk import InstantDisk
from ottla.sim.loop import run as run_simulated
from ottla.sim.trace import Trace
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.recovery import producer_replay
from ottla.storage.recovery.producer_replay import REPLAY_JOB
from ottla.storage.segment import tally
from ottla.storage.segment.tally import COUNT_JOB, PACE_BYTES, CountRequest

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=300)


@pytest.fixture
def everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "INLINE_BYTES_MAX", 0)
    monkeypatch.setattr(producer_replay, "INLINE_BYTES_MAX", 0)


def torn() -> InstantDisk:
    """A log of several segments and producers, with two epochs, whose end is torn."""
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=CONFIG.segment_bytes, index_interval_bytes=CONFIG.index_interval_bytes)
    for number in range(300):
        batches = batch(b"x" * (number % 90), timestamp_ms=number), idempotent(number // 3, producer_id=number % 3)
        append(log, *batches, leader_epoch=number // 200)
    disk.files[log.segments[-1].file.path].written[-3:] = b""
    return disk


def recovered(disk: InstantDisk) -> tuple[dict[str, bytes], bytes, list[object]]:
    """The files, the producers and the records after a recovery; and again after the log was closed."""
    log = open_log(disk, segment_bytes=CONFIG.segment_bytes, index_interval_bytes=CONFIG.index_interval_bytes)
    return disk.contents(), log.producers.to_snapshot(), [*records_of(log), *log.epochs.entries, log.log_end_offset]


def test_a_recovery_by_jobs_leaves_the_same_bytes_as_one_inline(everything_is_long: None, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = torn()
    by_jobs, inline = disk.copy(), disk.copy()
    found = recovered(by_jobs)
    assert by_jobs.jobs.count(COUNT_JOB.name) > 2
    assert REPLAY_JOB.name in by_jobs.jobs
    monkeypatch.undo()
    assert recovered(inline) == found
    assert inline.jobs == []


def test_a_short_walk_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, pieces = InstantDisk(), list[int]()
    log = open_log(disk)
    for number in range(60):
        append(log, batch(b"x" * 10_000, producer_id=1, producer_epoch=0, base_sequence=number))
    size = log.size_bytes

    async def take_turns(size: int) -> None:
        pieces.append(size)

    monkeypatch.setattr(disk, "take_turns", take_turns)
    recovered(disk)
    walk_and_replay = 2
    assert max(pieces) <= PACE_BYTES + 11_000, "a piece ends with a batch"
    assert sum(pieces) > walk_and_replay * (size - PACE_BYTES - 11_000)


def write_to(directory: Path, disk: InstantDisk) -> None:
    for path, data in disk.contents().items():
        (directory / path.rsplit("/", 1)[1]).write_bytes(data)


def files_in(directory: Path) -> dict[str, bytes]:
    return {f"{DIRECTORY}/{path.name}": path.read_bytes() for path in directory.iterdir()}


def test_a_worker_process_recovers_the_same_bytes(everything_is_long: None, tmp_path: Path) -> None:
    disk = torn()
    write_to(tmp_path, disk)

    async def main() -> int | None:
        with ThreadPoolExecutor(1) as pool:
            real = RealDisk(pool)
            log = await PartitionLog.open(real, str(tmp_path), config=CONFIG, now_ms=1000, clean=False)
            assert [segment.size for segment in log.segments]
            return real.worker.process_id

    assert asyncio.run(main()) is not None, "a worker process did it"
    assert files_in(tmp_path) == recovered(disk)[0]


def test_the_death_of_the_worker_in_the_middle_of_a_job_is_reported_and_survived(tmp_path: Path) -> None:
    """A job at a slow pace is certainly still at work when its process is killed; the next one gets a new process."""
    disk = torn()
    write_to(tmp_path, disk)
    path = max(tmp_path.glob("*.log"), key=lambda path: path.stat().st_size)
    stretched = path.read_bytes() * 150
    path.write_bytes(stretched)
    request = CountRequest(str(path), 0, len(stretched), 300, False)

    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:
            real = RealDisk(pool)
            slow = asyncio.ensure_future(real.work(COUNT_JOB, request, bytes_per_second=1000))
            async with asyncio.timeout(30):
                while real.worker.process_id is None:
                    await asyncio.sleep(0.01)
            os.kill(real.worker.process_id, signal.SIGKILL)
            with pytest.raises(WorkerDied, match="status -9"):
                await asyncio.wait_for(slow, 30)
            first = await asyncio.wait_for(real.work(COUNT_JOB, request), 30)
            assert first.size == len(stretched)
            cancelled = asyncio.ensure_future(real.work(COUNT_JOB, request, bytes_per_second=1000))
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert await asyncio.wait_for(real.work(COUNT_JOB, request), 30) == first

    asyncio.run(main())


def test_errors_of_a_job_arrive_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"?" * 100)

    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:
            real = RealDisk(pool)
            with pytest.raises(FileNotFoundError):
                await real.work(COUNT_JOB, CountRequest(str(tmp_path / "y.log"), 0, 100, 300, False))
            with pytest.raises(Exception, match="the batch at byte 0 has magic") as caught:
                await real.work(COUNT_JOB, CountRequest(str(tmp_path / "x.log"), 0, 100, 300, False))
            assert type(caught.value).__name__ == "DecodeError"

    asyncio.run(main())


def simulated(disk: InstantDisk, *, deaths: int = 0) -> tuple[dict[str, bytes], str]:
    trace = Trace()

    async def main() -> dict[str, bytes]:
        sim = SimDisk(random.Random(1), trace, "disk")
        await sim.make_dirs(DIRECTORY)
        for path, data in disk.contents().items():
            await (await sim.open(path, create=True)).append([data])
        sim.faults = [Fault("work", "_JOB")] * deaths
        await PartitionLog.open(sim, DIRECTORY, config=CONFIG, now_ms=1000, clean=False)
        return {f"{DIRECTORY}/{name}": await sim.read_file(f"{DIRECTORY}/{name}") for name in await sim.list_dir(DIRECTORY)}

    return run_simulated(main()), trace.digest


def test_the_simulated_disk_does_jobs_alike_and_always_in_the_same_order(everything_is_long: None) -> None:
    disk = torn()
    files, digest = simulated(disk)
    assert files == recovered(disk.copy())[0]
    assert simulated(disk) == (files, digest)
    assert simulated(disk, deaths=3)[0] == files


def test_a_job_keeps_to_its_rate_in_virtual_time() -> None:
    disk = torn()

    async def main() -> float:
        sim = SimDisk(random.Random(1), Trace(), "disk", delay_ms_max=0)
        await sim.make_dirs("/d")
        file = await sim.open("/d/x", create=True)
        data = max(disk.contents().values(), key=len) * 200
        await file.append([data])
        begun = asyncio.get_running_loop().time()
        await sim.work(COUNT_JOB, CountRequest("/d/x", 0, len(data), 300, False), bytes_per_second=len(data) / 10)
        return asyncio.get_running_loop().time() - begun

    assert 5 < run_simulated(main()) <= 10

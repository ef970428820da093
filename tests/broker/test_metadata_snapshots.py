"""A follower's own snapshot beside one that its leader sends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.broker.metadata.log import format_metadata
from ottla.broker.metadata.log_limits import LogLimits
from ottla.broker.metadata.opened_log import open_log
from ottla.broker.metadata.replica import MetadataReplica
from ottla.broker.metadata.snapshots import SnapshotFile, Snapshots, build_batches, snapshot_bytes
from ottla.consensus.calls import Answer, BeginEpoch, Fetch, FetchAnswer, FetchSnapshot, FetchSnapshotAnswer, Request, SnapshotId, Span
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet
from ottla.messages.metadata_records import TopicRecord
from ottla.metadata.image import ClusterImage
from ottla.records.batch import stamp
from ottla.runtime.world import real_world
from ottla.sim.instant_disk import InstantDisk
from ottla.sim.instant_disk import run as instantly
from ottla.wire.schema import ZERO_UUID

LEADER, NEVER_MS = 2, 60_000


class Asked:
    """What the replica asks of its leader; in the place of ``Voters``."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[tuple[Request, Callable[[Answer | None], None]]] = asyncio.Queue()

    def send(self, peer: int, request: Request, on_answer: Callable[[Answer | None], None]) -> None:
        if peer == LEADER:
            self.requests.put_nowait((request, on_answer))

    def probe(self, peer: int, on_proof: Callable[[bool | None], None]) -> None:
        on_proof(None)

    async def answer(self, kind: type[Request], answer: Answer) -> None:
        """To the next request of that kind."""
        while True:
            request, on_answer = await self.requests.get()
            if isinstance(request, kind):
                on_answer(answer)
                return


class Unconcerned:
    """A ``replica.MetadataFollower``."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def topic(number: int) -> TopicRecord:
    return TopicRecord(f"topic-{number}", number.to_bytes(16, "big"))


def test_an_own_snapshot_that_ends_while_a_newer_one_is_installed_does_not_take_its_place(tmp_path: Path) -> None:
    async def body() -> None:
        world, asked = real_world(), Asked()
        await format_metadata(world.disk, str(tmp_path), [])
        voters = VoterSet(dict.fromkeys((1, 2, 3), ZERO_UUID))
        settings = QuorumSettings(1, voters, fetch_timeout_ms=NEVER_MS, request_timeout_ms=NEVER_MS, election_timeout_ms=NEVER_MS)
        found = await open_log(world, str(tmp_path), settings, clean=False, limits=LogLimits())
        replica = MetadataReplica(world, found, Unconcerned(), asked)  # type: ignore[arg-type]
        replica.begin()
        replica.on_request(BeginEpoch(1, LEADER), lambda answer: None)
        [batch] = await build_batches([topic(number) for number in range(10)], 0)
        stamp(batch, base_offset=0, leader_epoch=1)
        await asked.answer(Fetch, FetchAnswer(0, 1, LEADER, 10, 0, None, None, (Span(1, 0, 10),), bytes(batch)))
        while replica.image.end_offset < 10:
            await asyncio.sleep(0.001)

        has_written, may_go_on, may_install = asyncio.Event(), asyncio.Event(), asyncio.Event()
        write, keep = replica.log.snapshots.write, replica.log.snapshots.keep_arrived

        async def slow_write(image: ClusterImage, now_ms: int) -> SnapshotFile:
            written = await write(image, now_ms)
            has_written.set()
            await may_go_on.wait()
            return written

        async def slow_keep(end_offset: int, epoch: int) -> SnapshotFile:
            await may_install.wait()
            return await keep(end_offset, epoch)

        replica.log.snapshots.write, replica.log.snapshots.keep_arrived = slow_write, slow_keep  # type: ignore[method-assign]
        own = asyncio.ensure_future(replica.write_snapshot())
        await has_written.wait()
        data, newer = await snapshot_bytes([topic(number) for number in range(50)], 1, 0), SnapshotId(1, 100)
        await asked.answer(Fetch, FetchAnswer(0, 1, LEADER, 100, 100, None, newer))
        await asked.answer(FetchSnapshot, FetchSnapshotAnswer(0, 1, LEADER, newer, len(data), 0, data))
        assert replica.quorum.log.start_offset == 100, "the machine has it, the disk not yet"
        may_go_on.set()
        await own
        may_install.set()
        while replica.image.end_offset < 100:
            await asyncio.sleep(0.001)
        assert (replica.quorum.log.start_offset, replica.quorum.log.snapshots) == (100, ((newer, len(data)),))
        assert replica.log.start_offset == 100
        await replica.stop()

    asyncio.run(body())


def test_snapshots_are_found_oldest_first_in_whatever_order_their_directory_lists_them() -> None:
    """By end offset, then epoch; what else lies there is none."""
    ends = (30, 1), (100, 2), (100, 3), (9, 1)
    disk = InstantDisk(["/meta"])
    for end_offset, epoch in ends:
        instantly(disk.write_file_atomic(f"/meta/{end_offset:020d}-{epoch:010d}.checkpoint", b"x" * epoch))
    instantly(disk.write_file_atomic("/meta/bootstrap.checkpoint", b"x"))
    listed = instantly(disk.list_dir("/meta"))
    snapshots = Snapshots(disk, "/meta", disk)
    assert [(found.end_offset, found.epoch) for found in instantly(snapshots.all())] == sorted(ends)
    instantly(snapshots.remove_older())
    assert [(found.end_offset, found.epoch) for found in instantly(snapshots.all())] == [(100, 2), (100, 3)]
    assert listed != sorted(listed), "the directory lists them in an order that would mislead"


def test_a_snapshot_that_is_removed_while_they_are_listed_is_left_out() -> None:
    disk = InstantDisk(["/meta"])
    for end_offset in (10, 20):
        instantly(disk.write_file_atomic(f"/meta/{end_offset:020d}-0000000001.checkpoint", b"x"))
    list_dir = disk.list_dir

    async def listing(path: str) -> list[str]:
        found = await list_dir(path)
        await disk.remove(f"/meta/{10:020d}-0000000001.checkpoint")
        return found

    disk.list_dir = listing  # type: ignore[method-assign]
    assert [found.end_offset for found in instantly(Snapshots(disk, "/meta", disk).all())] == [20]

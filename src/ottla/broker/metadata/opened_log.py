"""What a replica of the metadata log starts with: the log as it is found on the disk, how this node has voted, and the newest snapshot."""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.metadata.log import MetadataLog
from ottla.broker.metadata.log_limits import LogLimits, SnapshotDue
from ottla.consensus.election_state import ElectionState
from ottla.consensus.quorum import Quorum
from ottla.consensus.settings import QuorumSettings
from ottla.metadata.image import ClusterImage
from ottla.ports import World
from ottla.storage.directory.room import Room


class OpenedLog(NamedTuple):
    """A recovered log, the machine that goes on from there, and the image of its newest snapshot."""

    log: MetadataLog
    quorum: Quorum
    image: ClusterImage
    snapshot_due: SnapshotDue


async def open_log(
    world: World, directory: str, settings: QuorumSettings, *, clean: bool, limits: LogLimits, room: Room | None = None
) -> OpenedLog:
    """Opens the log. StorageError for damage, INCONSISTENT_VOTER_SET for a voter of several that has forgotten how it voted."""
    log = await MetadataLog.open(world.disk, directory, now_ms=world.clock.now_ms(), clean=clean, limits=limits, room=room)
    shape = await log.shape()
    election = await log.read_election()
    if election is None and settings.voters.ids == (settings.node_id,):
        election = ElectionState(shape.last_epoch)  # the only voter: no other can have had its vote
    image = await log.newest_image()
    newest_ms = await log.snapshots.newest_ms(world.clock.now_ms())
    due = SnapshotDue(limits, -await log.bytes_from(image.end_offset), newest_ms)
    return OpenedLog(log, Quorum(settings, election, shape), image, due)

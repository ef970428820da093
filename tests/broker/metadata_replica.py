"""The replica of the only voter, on its own: for tests of the metadata log as a node has it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ottla.broker.metadata.log_limits import LogLimits
from ottla.broker.metadata.opened_log import open_log
from ottla.broker.metadata.replica import MetadataReplica
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet
from ottla.metadata.image import ClusterImage
from ottla.ports import World
from ottla.runtime.world import real_world
from ottla.wire.schema import ZERO_UUID, Stored

NODE = 1


class LoneReplica:
    """``with``-less: a test that ends without ``stop`` is a crash."""

    def __init__(self) -> None:
        self._replica: MetadataReplica | None = None
        self._changed = asyncio.Event()
        self.error: BaseException | None = None

    @property
    def replica(self) -> MetadataReplica:
        assert self._replica is not None, "it was opened"
        return self._replica

    @classmethod
    async def open(cls, directory: Path, *, world: World | None = None, **limits: int) -> LoneReplica:
        """Active, with everything that the log has in its image. What the replica fails with is raised."""
        settings, opened = QuorumSettings(NODE, VoterSet({NODE: ZERO_UUID})), cls()
        world = world or real_world()
        found = await open_log(world, str(directory), settings, clean=False, limits=LogLimits(**limits))
        opened._replica = MetadataReplica(world, found, opened)
        opened.replica.begin()
        while not opened.replica.is_active:
            opened._changed.clear()
            await opened._changed.wait()
            if opened.error is not None:
                raise opened.error
        return opened

    @property
    def image(self) -> ClusterImage:
        return self.replica.image

    async def record(self, *records: Stored) -> None:
        """The records are committed as one group."""
        await self.replica.committed(self.replica.append(records))

    def on_committed(self) -> None:
        self._changed.set()

    def on_leader(self) -> None:
        pass

    def on_active(self, epoch: int) -> None:
        self._changed.set()

    def on_inactive(self) -> None:
        self._changed.set()

    def on_fatal(self, reason: str, error: BaseException) -> None:
        self.error = error
        self._changed.set()

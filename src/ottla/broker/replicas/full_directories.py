"""Log directories without room: what this broker has there is left to others, where others have it, until there is room again.

A replica there is out of the ISR, and leads nothing, while another one is in sync: the controller has it as lost (``must_leave``). One that
no other broker could serve stays: it can be read, and refuses what is written. Nothing is written to partitions meanwhile, so that the
directory's reserve is left to the metadata log. Every ``PROBE_MS`` it is tried whether there is room; one that fills up again soon is
tried less often, up to ``PROBE_MS_MAX``, or its replicas would join and leave all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ottla.broker.part import Part
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.tasks import eager
from ottla.loggers import get_logger
from ottla.metadata.image import PartitionImage
from ottla.ports import TimerHandle, World
from ottla.storage.directory.directory import LogDirectory

log = get_logger(__name__)


def must_leave(store: PartitionStore, topic: str, index: int, image: PartitionImage) -> bool:
    """True when others are to serve this broker's replica: it is offline, or out of room where another one is in sync."""
    partition, shared = store.find(topic, index), store.replication
    if partition is None or partition.log.is_failed or not store.directory_of[partition].room.is_full:
        return store.is_offline(topic, index)
    return any(node != shared.node_id and shared.is_live(node) for node in image.isr)


def has_full(store: PartitionStore) -> bool:
    """True when one of its directories has no room."""
    return any(directory.room.is_full for directory in store.directories)


PROBE_MS: Final = 500
PROBE_MS_MAX: Final = 10_000
SOON_MS: Final = 10_000


class FullDirectories(Part):
    """The watch over directories without room, made by ``open``.

    ``on_change`` is called when a directory is full, and when it has room again.
    """

    def __init__(self, world: World, directories: Sequence[LogDirectory], on_change: Callable[[], None]) -> None:
        self._world = world
        self._directories = directories
        self._on_change = on_change
        self._probe_ms: dict[LogDirectory, int] = {}
        self._had_room_ms: dict[LogDirectory, int] = {}
        self._timers: dict[LogDirectory, TimerHandle] = {}
        self._is_closed = False

    @classmethod
    async def open(cls, world: World, directories: Sequence[LogDirectory], on_change: Callable[[], None]) -> FullDirectories:
        """Opens the directories: each keeps some room back, or is full."""
        made = cls(world, directories, on_change)
        for directory in directories:
            directory.room.on_full = partial(made._note, directory)
            try:
                if not await directory.room.keep_back():
                    made._note(directory)
            except OSError as error:  # the next write there shows what is wrong
                log.warning("log_dir_without_reserve", directory=directory.path, reason=str(error))
        return made

    async def stop(self) -> None:
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()

    def _note(self, directory: LogDirectory) -> None:
        if directory.room.is_full or self._is_closed:
            return
        directory.room.is_full = True
        log.warning("log_dir_full", directory=directory.path)
        is_soon = self._now_ms() - self._had_room_ms.get(directory, -SOON_MS) < SOON_MS
        before_ms = self._probe_ms.get(directory, PROBE_MS)
        self._probe_ms[directory] = min(2 * before_ms, PROBE_MS_MAX) if is_soon else PROBE_MS
        eager.run(directory.room.give_up(), partial(self._given_up, directory))
        self._probe_later(directory)
        self._on_change()

    def _given_up(self, directory: LogDirectory, _: None, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.warning("log_dir_reserve_kept", directory=directory.path, reason=str(error))

    def _probe_later(self, directory: LogDirectory) -> None:
        if not self._is_closed and not directory.is_failed:
            self._timers[directory] = self._world.timers.call_later_ms(self._probe_ms[directory], partial(self._probe, directory))

    def _probe(self, directory: LogDirectory) -> None:
        eager.run(directory.room.keep_back(), partial(self._probed, directory))

    def _probed(self, directory: LogDirectory, has_room: bool | None, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.warning("log_dir_not_probed", directory=directory.path, reason=str(error))
        if not has_room or error is not None:
            self._probe_later(directory)
            return
        directory.room.is_full = False
        self._had_room_ms[directory] = self._now_ms()
        log.info("log_dir_has_room", directory=directory.path)
        self._on_change()

    def _now_ms(self) -> int:
        return self._world.clock.monotonic_ms()

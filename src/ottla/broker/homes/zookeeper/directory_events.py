"""What a broker writes for the controller when a log directory, or one replica alone, has failed: ``/log_dir_event_notification``.

The znode names the broker, and nothing else: which replicas are meant the controller asks the broker itself (``lost_replicas.py``). It is
written again for each new controller, which cannot know what is lost, and when what was lost can be served again. Source: Kafka 3.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.broker.homes.zookeeper.loading import AclOf
from ottla.broker.homes.zookeeper.waiting import RETRY_SECONDS
from ottla.broker.part import Part
from ottla.broker.replicas.full_directories import has_full
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.tasks import eager
from ottla.coordination import ConnectionLostError, Create, Session, SessionExpiredError
from ottla.loggers import get_logger
from ottla.metadata import znodes
from ottla.metadata.delta import ImageDelta

log = get_logger(__name__)


class DirectoryEvents(Part):
    """Asleep until ``begin``. ``session`` gives the newest one."""

    def __init__(self, node_id: int, partitions: PartitionStore, session: Callable[[], Session], acl_of: AclOf) -> None:
        self._node_id = node_id
        self._partitions = partitions
        self._session = session
        self._acl_of = acl_of
        self._may_have_written = False  # of something that is lost
        self._is_on = self._is_due = self._is_writing = False

    def begin(self) -> None:
        """Starts, for the broker is about to register."""
        self._is_on = True
        self._write_soon()

    async def stop(self) -> None:
        self._is_on = False

    def on_offline(self) -> None:
        self._is_due = True
        self._write_soon()

    def on_controller(self) -> None:
        """Reports again, for the next controller does not know what is lost."""
        self.on_offline()

    async def on_image(self, delta: ImageDelta) -> None:
        """Reports full directories again: which others are in sync decides what becomes of replicas that have no room."""
        if has_full(self._partitions):
            self.on_offline()

    def _write_soon(self) -> None:
        if self._is_on and self._is_due and not self._is_writing:
            self._is_writing = True
            eager.run(self._write(), self._ended)

    def _ended(self, _: None, error: BaseException | None) -> None:
        self._is_writing = False
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.error("log_dir_event_not_written", exc_info=error)
        self._write_soon()

    async def _write(self) -> None:
        await asyncio.sleep(0)  # what fails with it is reported with it
        while self._is_on and self._is_due:
            self._is_due = False
            is_lost = self._has_offline()
            if not is_lost and not self._may_have_written:
                continue
            self._may_have_written = True  # whatever becomes of it: the connection may be lost after it was written
            path, data = znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(self._node_id)
            try:
                await self._session().multi([Create(path, data, is_sequential=True, acl=self._acl_of(path))])
            except (ConnectionLostError, SessionExpiredError):  # twice does no harm
                self._is_due = True
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._may_have_written = is_lost
                log.info("log_dir_event_written", is_lost=is_lost)

    def _has_offline(self) -> bool:
        store = self._partitions
        return bool(store.offline) or has_full(store) or any(partition.log.is_failed for partition in store.all())

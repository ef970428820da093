"""One controller epoch of this node: its decisions, and how they get into ZooKeeper.

Each request is a ``multi`` that starts with a check of ``/controller_epoch``: a later controller has changed it, and nothing of an
earlier controller gets through. Groups that wait while one request is on its way are in the next one together. What ZooKeeper has
is committed; only then do the brokers see it. A request that fails, or whose outcome is unknown, ends the reign: what the
znodes say is then read again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.broker.homes.zookeeper.served_log import ServedLog
from ottla.broker.homes.zookeeper.tree import delete_below
from ottla.broker.metadata.applied import AppliedImages, not_controller
from ottla.broker.metadata.log import is_framed
from ottla.coordination import Check, ConnectionLostError, CoordinationError, Delete, MultiFailedError, NotEmptyError, Operation, Session
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.messages.metadata_records import AccessControlEntryRecord, DelegationTokenRecord, PartitionRecord
from ottla.metadata import znodes
from ottla.metadata.security_znodes import encode_token
from ottla.metadata.znode_writer import ZnodeWriter, joined, sizes_with
from ottla.ports import World
from ottla.wire.schema import Stored

log = get_logger(__name__)

PARTITION_BYTES: Final = 12
"""What a partition takes in its topic's znode, beside its replicas."""


class _Group(NamedTuple):
    records: Sequence[Stored]
    end_offset: int
    units: list[list[Operation]]


class Reign:
    """``epoch_version`` is the version of ``/controller_epoch`` that this controller has written."""

    def __init__(
        self,
        world: World,
        session: Session,
        applied: AppliedImages,
        served: ServedLog,
        writer: ZnodeWriter,
        *,
        epoch: int,
        epoch_version: int,
        bytes_max: int,
        bytes_between_snapshots: int,
    ) -> None:
        self._world = world
        self._session = session
        self._applied = applied
        self._served = served
        self._writer = writer
        self.epoch = epoch
        self._check = Check(znodes.CONTROLLER_EPOCH, epoch_version)
        self._bytes_max = bytes_max
        self._bytes_between_snapshots = bytes_between_snapshots
        self._end_offset = served.end_offset
        self._queue: deque[_Group] = deque()
        self._wakes = asyncio.Event()
        self.has_ended = False

    @property
    def check(self) -> Check:
        """What every write of this controller starts with."""
        return self._check

    @property
    def session(self) -> Session:
        return self._session

    @property
    def writer(self) -> ZnodeWriter:
        return self._writer

    def append(self, records: Sequence[Stored], *, is_known: bool = False) -> int:
        """Decides the records, and returns where they end. With ``is_known`` they come from ZooKeeper, and need not be written there.

        KafkaError when they have no place in ZooKeeper. NOT_CONTROLLER when the reign has ended.
        """
        if self.has_ended:
            raise not_controller()
        draft = self._applied.draft
        if not is_known:
            self._writer.check(draft, records)
            self.check_size(records)
        records = self._writer.named(records)
        removed = self._writer.removed(draft, records)
        end_offset = self._end_offset + len(records) + (2 if is_framed(records) else 0)
        self._applied.decide(records, end_offset=end_offset, epoch=self.epoch)
        self._end_offset = end_offset
        units = [] if is_known else self._writer.units(self._applied.draft, records, removed)
        self._queue.append(_Group(records, end_offset, units))
        self._wakes.set()
        return end_offset

    def check_size(self, records: Sequence[Stored]) -> None:
        """Checks the sizes: a topic's assignment is one znode, and so are all ACLs of a resource, and a token."""
        draft = self._applied.draft
        added: dict[bytes, int] = {}
        for record in records:
            if isinstance(record, PartitionRecord):
                added[record.topic_id] = added.get(record.topic_id, 0) + PARTITION_BYTES + 8 * len(record.replicas)
        for topic_id, size in added.items():
            topic = draft.topics.get(draft.topic_names.get(topic_id, ""))
            known = topic.partitions.values() if topic is not None else ()
            if size + sum(PARTITION_BYTES + 8 * len(partition.replicas) for partition in known) > self._bytes_max:
                raise self._too_large("the topic's assignment", ErrorCode.INVALID_PARTITIONS)
        acls = [record for record in records if isinstance(record, AccessControlEntryRecord)]
        if any(size > self._bytes_max for size in sizes_with(draft, acls).values()):
            raise self._too_large("all ACLs of a resource", ErrorCode.INVALID_REQUEST)
        tokens = (record for record in records if isinstance(record, DelegationTokenRecord))
        if any(len(encode_token(token)) > self._bytes_max for token in tokens):
            raise self._too_large("a token with these renewers", ErrorCode.INVALID_REQUEST)

    def _too_large(self, what: str, code: ErrorCode) -> KafkaError:
        return KafkaError(code, f"{what} would be larger than a request to ZooKeeper may be ({self._bytes_max} bytes)")

    async def carry_out(self) -> None:
        """Writes what is decided, in order, for ever. Raises what ends the reign."""
        while True:
            await self._wakes.wait()
            self._wakes.clear()
            while self._queue:
                await self._commit()

    async def _commit(self) -> None:
        await self._applied.seal()
        groups = list(self._queue)  # also what was decided while that paused
        self._queue.clear()
        units = [unit for group in groups for unit in group.units]
        for request in joined(units, bytes_max=self._bytes_max):
            await self._write(request)
        await self._served.append_groups([group.records for group in groups], self._world.clock.now_ms())
        assert self._served.end_offset == groups[-1].end_offset, "the log has what was decided"
        await self._applied.apply(self._served.end_offset)
        if self._served.size_bytes > self._bytes_between_snapshots:
            self._served.begin_at(self._applied.committed)

    async def _write(self, request: Sequence[Operation]) -> None:
        """Writes the request. What others have left below a topic's znode does not keep that from being deleted: it is deleted, too."""
        while True:
            try:
                return await self._session.multi([self._check, *request])
            except CoordinationError as error:
                path = _path_with_others(request, error)
                if path is None:
                    what = {"operations": len(request), "is_unknown": isinstance(error, ConnectionLostError)}
                    log.warning("controller_write_failed", epoch=self.epoch, reason=str(error), **what)
                    raise
            log.warning("znodes_of_others_deleted", path=path)
            own = {operation.path for operation in request if isinstance(operation, Delete)}
            await delete_below(self._session, self._check, path, kept=own)

    async def delete(self, path: str) -> None:
        """Deletes a znode that is no part of the records; it may have been deleted already.

        MultiFailedError when another controller is elected.
        """
        try:
            await self._session.multi([self.check, Delete(path)])
        except MultiFailedError as error:
            if error.index == 0:
                raise

    def end(self) -> None:
        """Ends all deciding and writing."""
        self.has_ended = True
        self._queue.clear()


def _path_with_others(request: Sequence[Operation], error: CoordinationError) -> str | None:
    """Returns the topic's znode that could not be deleted because there are znodes below it; None for another failure."""
    if not isinstance(error, MultiFailedError) or not isinstance(error.reason, NotEmptyError):
        return None
    path = request[error.index - 1].path  # the check comes first
    return path if path.startswith(f"{znodes.TOPICS}/") else None

"""A broker follows the active controller: it fetches the controller's image, and then each of its decisions.

At a new controller epoch it starts over. The old image stays in use until the new controller's image is complete.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.broker.homes.zookeeper.served_log import ServedLog
from ottla.broker.metadata.applied import AppliedImages
from ottla.broker.metadata.snapshots import image_of
from ottla.broker.peers.peers import Address, Peers
from ottla.consensus.calls import Answer, Fetch, FetchAnswer, FetchSnapshot, FetchSnapshotAnswer, Request, SnapshotId
from ottla.consensus.wire_form import from_answer_message, to_message
from ottla.errors import DecodeError, StorageError
from ottla.loggers import get_logger

log = get_logger(__name__)

RETRY_MS: Final = 20
RETRY_MS_MAX: Final = 320
WAIT_MS: Final = 500


class Following:
    """The following of one broker, under one controller after the other."""

    def __init__(self, node_id: int, peers: Peers, applied: AppliedImages, served: ServedLog, *, bytes_max: int) -> None:
        self._node_id = node_id
        self._peers = peers
        self._applied = applied
        self._served = served
        self._bytes_max = bytes_max

    async def follow(self, address: Address, epoch: int, cluster_id: str) -> None:
        """Follows until it is cancelled."""
        retry_ms = RETRY_MS
        is_resumed = self._served.epoch != epoch
        while True:
            try:
                if not is_resumed:
                    await self._applied.resume(self._served.end_offset)
                    is_resumed = True
                has_come = await self._fetch(address, epoch, cluster_id)
            except (DecodeError, StorageError) as error:
                log.error("controller_not_followed", epoch=epoch, reason=error.message)
                self._served.epoch = -1  # it starts over
                has_come = False
            if has_come:
                retry_ms = RETRY_MS
                continue
            await asyncio.sleep(retry_ms / 1000)
            retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    async def _fetch(self, address: Address, epoch: int, cluster_id: str) -> bool:
        served = self._served
        offset, last_epoch = (served.end_offset, epoch) if served.epoch == epoch else (0, -1)
        request = Fetch(
            epoch, self._node_id, offset, last_epoch, max_wait_ms=WAIT_MS, max_bytes=self._bytes_max, cluster_id=cluster_id
        )  # fmt: skip
        answer = await self._ask(address, request)
        if not isinstance(answer, FetchAnswer) or answer.error or answer.epoch != epoch:
            return False
        if answer.snapshot_id is not None:
            return await self._install(address, answer.snapshot_id, cluster_id)
        if answer.records:
            served.append_fetched(bytes(answer.records))
            await self._applied.apply(served.end_offset)
            served.forget_below(self._applied.committed.end_offset)
        return True

    async def _install(self, address: Address, wanted: SnapshotId, cluster_id: str) -> bool:
        pieces: list[bytes] = []
        position = 0
        while True:
            request = FetchSnapshot(wanted.epoch, self._node_id, wanted, position, self._bytes_max, cluster_id=cluster_id)
            answer = await self._ask(address, request)
            if not isinstance(answer, FetchSnapshotAnswer) or answer.error or answer.snapshot_id != wanted or not answer.data:
                return False
            pieces.append(bytes(answer.data))
            position += len(pieces[-1])
            if position >= answer.size:
                break
        image = await image_of(b"".join(pieces), end_offset=wanted.end_offset, epoch=wanted.epoch)
        self._served.start_over(image)
        self._applied.start_over(image)
        log.info("controller_followed", epoch=wanted.epoch, topics=len(image.topics), brokers=sorted(image.brokers))
        return True

    async def _ask(self, address: Address, request: Request) -> Answer | None:
        """Returns the answer; None when there is none, or none that can be read."""
        response = await self._peers.ask(address, to_message(request))
        try:
            return None if response is None else from_answer_message(response)
        except DecodeError as error:
            log.warning("controller_answer_not_understood", reason=error.message)
            return None

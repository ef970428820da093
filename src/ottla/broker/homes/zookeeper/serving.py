"""The active controller answers brokers that fetch its log: with records, with its image, or once there is something new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.homes.zookeeper.served_log import ServedLog
from ottla.broker.tasks import eager
from ottla.consensus.calls import Answer, Fetch, FetchAnswer, FetchSnapshot, FetchSnapshotAnswer, Request, VoteAnswer
from ottla.consensus.leading import OBSERVERS_MAX, PARKED_MAX
from ottla.errors import ErrorCode
from ottla.loggers import get_logger
from ottla.ports import TimerHandle, World
from ottla.types import NO_LEADER

log = get_logger(__name__)

OnAnswer = Callable[[Answer], None]
PIECE_BYTES_MAX: Final = 1 << 20


class Serving:
    """``is_active`` says whether this node is the controller of the log's epoch; ``known`` who is, and of which epoch."""

    def __init__(
        self,
        world: World,
        served: ServedLog,
        cluster_id: str,
        is_active: Callable[[], bool],
        known: Callable[[], tuple[int, int]],
    ) -> None:
        self._world = world
        self._served = served
        self._cluster_id = cluster_id
        self._is_active = is_active
        self._known = known
        self._parked: dict[OnAnswer, tuple[Fetch, TimerHandle]] = {}
        self.fetched_offsets: dict[int, int] = {}
        """By broker: up to where it has fetched in this epoch."""

    def on_request(self, request: Request, on_answer: OnAnswer) -> OnAnswer:
        """Answers the request by callback."""
        match request:
            case Fetch():
                self._on_fetch(request, on_answer)
            case FetchSnapshot():
                eager.run(self._piece(request), lambda answer, error: _answer(on_answer, answer, error))
            case _:
                on_answer(VoteAnswer(ErrorCode.INVALID_REQUEST))
        return on_answer

    def on_request_dropped(self, token: OnAnswer) -> None:
        parked = self._parked.pop(token, None)
        if parked is not None:
            parked[1].cancel()

    def _refusal(self, request: Fetch | FetchSnapshot) -> int:
        if request.cluster_id not in (None, self._cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if not self._is_active() or request.epoch != self._served.epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _on_fetch(self, request: Fetch, on_answer: OnAnswer) -> None:
        refusal = self._refusal(request)
        leader_id, epoch = self._known()
        if refusal:
            on_answer(FetchAnswer(refusal, epoch, leader_id))
            return
        served = self._served
        is_continued = request.last_epoch == served.epoch and served.start_offset <= request.fetch_offset <= served.end_offset
        if request.fetch_offset < 0 or request.max_bytes < 0:
            on_answer(FetchAnswer(ErrorCode.INVALID_REQUEST, epoch, leader_id))
            return
        if not is_continued:
            on_answer(FetchAnswer(0, epoch, leader_id, served.end_offset, served.start_offset, None, served.snapshot_id))
            return
        self._note(request)
        if request.fetch_offset == served.end_offset and request.max_wait_ms > 0 and len(self._parked) < PARKED_MAX:
            timer = self._world.timers.call_later_ms(request.max_wait_ms, lambda: self._timed_out(on_answer))
            self._parked[on_answer] = request, timer
            return
        self._answer_with_records(request, on_answer)

    def _note(self, request: Fetch) -> None:
        """Notes the brokers that fetched last; bounded, because any client may claim to be a broker."""
        if request.replica_id < 0:
            return
        self.fetched_offsets.pop(request.replica_id, None)
        self.fetched_offsets[request.replica_id] = request.fetch_offset
        if len(self.fetched_offsets) > OBSERVERS_MAX:
            del self.fetched_offsets[next(iter(self.fetched_offsets))]

    def _answer_with_records(self, request: Fetch, on_answer: OnAnswer) -> None:
        served = self._served
        records = served.read(request.fetch_offset, request.max_bytes)
        leader_id, epoch = self._known()
        on_answer(FetchAnswer(0, epoch, leader_id, served.end_offset, served.start_offset, None, None, (), records))

    def _timed_out(self, on_answer: OnAnswer) -> None:
        parked = self._parked.pop(on_answer, None)
        if parked is not None:
            self._answer_with_records(parked[0], on_answer)

    def grown(self) -> None:
        """Answers the waiting fetches, for there is more."""
        parked, self._parked = self._parked, {}
        for on_answer, (request, timer) in parked.items():
            timer.cancel()
            self._on_fetch(request, on_answer)

    def begin(self) -> None:
        """Starts another epoch of this node's."""
        self.fetched_offsets.clear()

    def end(self) -> None:
        """Answers the waiting requests, since this node is no longer the controller."""
        self.grown()
        self.fetched_offsets.clear()

    async def _piece(self, request: FetchSnapshot) -> FetchSnapshotAnswer:
        refusal = self._refusal(request)
        leader_id, epoch = self._known()
        if refusal:
            return FetchSnapshotAnswer(refusal, epoch, leader_id, request.snapshot_id)
        if request.max_bytes <= 0:
            return FetchSnapshotAnswer(ErrorCode.INVALID_REQUEST, epoch, leader_id, request.snapshot_id)
        data = await self._served.snapshot(request.snapshot_id, self._world.clock.now_ms())
        if data is None:
            return FetchSnapshotAnswer(ErrorCode.SNAPSHOT_NOT_FOUND, epoch, leader_id, request.snapshot_id)
        if not 0 <= request.position < len(data):
            return FetchSnapshotAnswer(ErrorCode.POSITION_OUT_OF_RANGE, epoch, leader_id, request.snapshot_id, len(data), request.position)
        piece = data[request.position : request.position + min(request.max_bytes, PIECE_BYTES_MAX)]
        return FetchSnapshotAnswer(0, epoch, leader_id, request.snapshot_id, len(data), request.position, piece)


def _answer(on_answer: OnAnswer, answer: FetchSnapshotAnswer | None, error: BaseException | None) -> None:
    if answer is None:
        log.error("metadata_image_not_served", exc_info=error)
        answer = FetchSnapshotAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, -1, NO_LEADER)
    on_answer(answer)

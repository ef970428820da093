"""Fetch, versions 4-18.

Answers at once when min_bytes are there, something failed or nothing may be waited for; else the request is parked and
answered by the append that completes it, or at its deadline. Batches are never cut into: the first one is sent completely even
when it is larger than allowed, and an offset inside a batch returns the complete batch. v7 sessions (KIP-227); v12
diverging epochs; v13 topic ids (KIP-516); v16 leader hints (KIP-951). A parked request is answered when a leader changes.

Consumers read up to the high watermark, followers up to the log's end; what a follower asks for says what it has (KIP-101, KIP-903).
An offset between the two is no error for a consumer: a new leader's high watermark may be behind what the last one told. Followers answer
those who compare replicas (replica id -2), and nobody else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.broker.handlers.fetch_reading import Reading
from ottla.broker.replicas.waiting import AT_ONCE
from ottla.broker.requests.context import RequestContext, fail
from ottla.broker.requests.service import service
from ottla.broker.tasks import eager
from ottla.errors import KafkaError
from ottla.messages.fetch import TOPIC_IDS_SINCE, FetchRequest, FetchResponse
from ottla.replication.fetch_sessions import FetchPlan

if TYPE_CHECKING:
    from ottla.broker.parts import Parts
    from ottla.broker.replicas.partition import Partition

REPLICA_STATE_SINCE = 15
WAIT_MS_MAX = 2**31 - 1
CONSUMER, COMPARING = -1, -2
"""Replica ids of those that are no followers; the latter is that of kafka-replica-verification."""


async def handle(parts: Parts, context: RequestContext, request: FetchRequest) -> FetchResponse | None:
    try:
        plan = parts.fetch_sessions.plan(
            request, uses_topic_ids=context.version >= TOPIC_IDS_SINCE, now_ms=parts.world.clock.monotonic_ms()
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    if (
        request.replica_state is None and request.replica_id == CONSUMER and (plan.session is None or not plan.session.is_worth_watching)
    ):  # a consumer, and no session that is watched
        reading = Reading(parts, context, request, plan)
    else:
        reading = _reading_of(parts, context, request, plan)
    await reading.read()
    if reading.has_error and type(reading) is Reading and (early := reading.came_early()):
        await parts.early_requests.wait(early)
        await reading.read()
    if reading.has_error or not reading.may_wait or reading.size_bytes >= request.min_bytes or request.max_wait_ms <= 0:
        return await reading.answer()
    if reading.settles_before_waiting:
        await reading.settle()
    ParkedFetch(parts, context, request, reading).park()
    return None


def _reading_of(parts: Parts, context: RequestContext, request: FetchRequest, plan: FetchPlan) -> Reading:
    """A follower's; a tool's, which compares replicas; a consumer's, whose session is watched, or whose version has followers elsewhere."""
    node, epoch, state, session = request.replica_id, -1, request.replica_state, plan.session
    if context.version >= REPLICA_STATE_SINCE:
        node, epoch = (-1, -1) if state is None else (state.replica_id, state.replica_epoch)
    if node < 0:
        if node != COMPARING and session is not None and session.is_worth_watching:
            from ottla.broker.handlers.watched_reading import WatchedReading  # a lone broker starts without

            return WatchedReading(parts, context, request, plan, session)
        if session is not None and session.watch is not None:  # another kind of client had it
            session.watch.ended()
        return (ComparingReading if node == COMPARING else Reading)(parts, context, request, plan)
    from ottla.broker.handlers.follower_reading import FollowerReading  # a lone broker starts without

    return FollowerReading(parts, context, request, plan, node=node, broker_epoch=epoch)


class ComparingReading(Reading):
    """Leader or not, the broker shows what it has, up to the high watermark that it knows."""

    __slots__ = ()

    def _check(self, partition: Partition, known_epoch: int) -> None:
        partition.check_epoch(known_epoch)


class ParkedFetch:
    """A fetch that waits for more bytes: on the list of each of its partitions, and in the purgatory by its deadline."""

    __slots__ = ("_context", "_is_due", "_missing_bytes", "_parts", "_reading", "_request", "is_done")

    def __init__(self, parts: Parts, context: RequestContext, request: FetchRequest, reading: Reading) -> None:
        self._parts = parts
        self._context = context
        self._request = request
        self._reading = reading
        self._missing_bytes = request.min_bytes - reading.size_bytes
        self.is_done = self._is_due = False

    def park(self) -> None:
        reading = self._reading
        reading.wait(self)
        self._context.connection.parked[self] = None
        self._parts.parking.park(self, min(self._request.max_wait_ms, WAIT_MS_MAX))
        if reading.has_news or self._parts.partitions.role_changes != reading.role_changes:
            self._complete()  # an append came, or a leader, while the last partitions were still being read

    def on_append(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if size_bytes >= AT_ONCE or self._reading.is_enough(self._missing_bytes):
            self._complete()

    def on_leader_progress(self, partition: Partition, size_bytes: int) -> None:
        """As ``on_append``, for a follower: it takes what the rest of the burst brings, too."""
        if size_bytes < AT_ONCE and self._reading.is_held_back(partition):
            return
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0 and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._complete)

    def expire(self) -> None:
        self._complete()

    def abandon(self) -> None:
        self._leave()

    def _complete(self) -> None:
        if not self.is_done:
            self._leave()
            eager.run(self._reading.read_and_answer(), self._answer)

    def _leave(self) -> None:
        self.is_done = True
        self._context.connection.parked.pop(self, None)
        self._reading.leave(self)
        self._parts.parking.unpark()

    def _answer(self, response: FetchResponse | None, error: BaseException | None) -> None:
        if response is None:
            fail(self._context, error or RuntimeError("a fetch has an answer"))
        else:
            self._context.reply(response)


SERVICE = service(FetchRequest, handle)

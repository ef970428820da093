"""Clients above their quota: answered with how long they have to pause, and not read for that time.

The answer leaves first, and the connection is mute afterwards (KIP-219), so that a client which does not wait by itself waits all
the same. Bytes are counted where they are produced and fetched; request time is what a request keeps the loop busy for, in percent
of a second, whatever it then waits for. While no quota is set, nothing is measured.

The user of a quota is the name of the connection's principal. What nodes ask of each other is exempt, where they have ClusterAction: a
follower that pauses would leave the ISR, and its pauses would be every producer's (KIP-124).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from ottla.broker.part import Part
from ottla.broker.requests.context import Channel, RequestContext
from ottla.config import BrokerConfig
from ottla.controller.decided import Decided
from ottla.controller.quotas import NAME_LENGTH_MAX
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import PartitionRecord, RemoveTopicRecord
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import ClusterImage
from ottla.ports import World
from ottla.quotas import ClientQuotas, QuotaKind

D = TypeVar("D", bound=Decided)
PAUSED_MAX: Final = 100
"""So many clients are counted for themselves, by quota; the pauses of others are counted together: clients choose their own ids."""
OTHERS: Final = "(others)"
LOOK_MS: Final = 60_000
"""After this time, at most, it is seen that a connection has ended in its pause."""


class Throttling(Part):
    def __init__(self, world: World, config: BrokerConfig) -> None:
        self._clock = world.clock
        self._timers = world.timers
        self._quotas = ClientQuotas(window_count=config["quota.window.num"], window_ms=config["quota.window.size.seconds"] * 1000)
        window_ms = config["controller.quota.window.size.seconds"] * 1000
        self._mutation_quotas = ClientQuotas(window_count=config["controller.quota.window.num"], window_ms=window_ms)
        self._current: RequestContext | None = None  # whose handler is running, when request time is measured
        self._began_us = 0
        self.pauses_ms: dict[tuple[QuotaKind, str, str], int] = {}
        """How long clients had to pause since the start, by quota, user and client id."""
        self.limits_produce = self.limits_fetch = self.times_requests = False  # whether any client has such a quota

    async def on_image(self, delta: ImageDelta) -> None:
        """Applies the image's quotas."""
        image = delta.new
        self._quotas.set_quotas(image.quotas)
        self._mutation_quotas.set_quotas(image.quotas)
        self.limits_produce = QuotaKind.PRODUCE in self._quotas.active
        self.limits_fetch = QuotaKind.FETCH in self._quotas.active
        self.times_requests = QuotaKind.REQUEST in self._quotas.active

    def run(self, context: RequestContext, handle: Callable[[], None]) -> None:
        """Runs ``handle``, and counts its time on the loop as the request's."""
        self._current, self._began_us = context, self._clock.monotonic_us()
        try:
            handle()
        finally:
            self._current = None
            context.work_us = self._clock.monotonic_us() - self._began_us

    def on_reply(self, context: RequestContext, response: Any) -> None:
        """Puts the pause, if there is one, into the response; one that has no place for it is only followed by the pause."""
        if context.is_of_node:
            return
        work_us = self._clock.monotonic_us() - self._began_us if context is self._current else context.work_us
        pause_ms = self._record(QuotaKind.REQUEST, context, work_us * 100 / 1_000_000)
        if pause_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, pause_ms)

    def on_produce(self, context: RequestContext, size_bytes: int) -> int:
        """Returns how long the client pauses after this request, in milliseconds."""
        return self._record(QuotaKind.PRODUCE, context, size_bytes)

    def on_fetch(self, context: RequestContext, size_bytes: int) -> tuple[int, bool]:
        """Returns how long the client pauses, and whether it gets these bytes before that."""
        now_ms = self._clock.monotonic_ms()
        pause_ms, is_given = self._quotas.record_unless_above(
            QuotaKind.FETCH, context.principal.name, _client_id(context), size_bytes, now_ms
        )
        if pause_ms:
            self._pause(QuotaKind.FETCH, context, pause_ms)
        return pause_ms, is_given

    def fetch_bytes_max(self, context: RequestContext, wanted: int) -> int:
        """Returns how much of the bytes wanted one answer may bring the client."""
        limit = self._quotas.amount_max(QuotaKind.FETCH, context.principal.name, _client_id(context))
        return wanted if limit is None else min(wanted, int(limit))

    def mutations(self, context: RequestContext, *, is_strict: bool) -> MutationBudget:
        """Returns what the request may create and delete; ``is_strict`` in versions that know THROTTLING_QUOTA_EXCEEDED."""
        return MutationBudget(self, context, is_strict)

    def spend(self, context: RequestContext, count: int, *, is_strict: bool) -> tuple[int, bool]:
        """Returns the pause for creating or deleting so many partitions, and whether it may be done."""
        now_ms = self._clock.monotonic_ms()
        pause_ms, is_spent = self._mutation_quotas.spend(context.principal.name, _client_id(context), count, now_ms, is_strict=is_strict)
        if pause_ms:
            self._pause(QuotaKind.MUTATION, context, pause_ms)
        return pause_ms, is_spent

    def _record(self, kind: QuotaKind, context: RequestContext, amount: float) -> int:
        pause_ms = self._quotas.record(kind, context.principal.name, _client_id(context), amount, self._clock.monotonic_ms())
        if pause_ms:
            self._pause(kind, context, pause_ms)
        return pause_ms

    def pause(self, context: RequestContext, pause_ms: int) -> None:
        """Does not read the client for the pause of a quota that the controller has measured: it came with the answer, and counts there."""
        self._mute(context.connection, pause_ms)

    def _pause(self, kind: QuotaKind, context: RequestContext, pause_ms: int) -> None:
        whose = (kind, context.principal.name, _client_id(context))
        if whose not in self.pauses_ms and len(self.pauses_ms) >= PAUSED_MAX:
            whose = (kind, OTHERS, OTHERS)
        self.pauses_ms[whose] = self.pauses_ms.get(whose, 0) + pause_ms
        self._mute(context.connection, pause_ms)

    def _mute(self, connection: Channel, pause_ms: int) -> None:
        until_ms = self._clock.monotonic_ms() + pause_ms
        if until_ms <= connection.muted_until_ms:
            return
        connection.muted_until_ms = until_ms  # reading stops when the answer takes its place, right after this
        self._look_later(connection, until_ms)

    def _look_later(self, connection: Channel, until_ms: int) -> None:
        left_ms = until_ms - self._clock.monotonic_ms()
        self._timers.call_later_ms(min(left_ms, LOOK_MS), lambda: self._unmute(connection, until_ms))

    def _unmute(self, connection: Channel, until_ms: int) -> None:
        """Reads the connection again if its pause is over. One that has ended is not kept for a pause of days."""
        if connection.muted_until_ms != until_ms or connection.transport.is_closed:  # or a later pause has followed
            return
        if self._clock.monotonic_ms() < until_ms:
            self._look_later(connection, until_ms)
            return
        connection.muted_until_ms = 0
        connection.update_reading()


def _client_id(context: RequestContext) -> str:
    """Returns as much of the client id as a quota can name: ids are remembered, and a client chooses its own."""
    return (context.client_id or "")[:NAME_LENGTH_MAX]


class MutationBudget:
    """One request's changes of topics: each is let through while the client has a token (KIP-599). ``pause_ms`` goes into the answer."""

    def __init__(self, throttling: Throttling, context: RequestContext, is_strict: bool) -> None:
        self._throttling = throttling
        self._context = context
        self._is_strict = is_strict
        self.pause_ms = 0

    def limit(self, decision: Callable[[ClusterImage], D]) -> Callable[[ClusterImage], D]:
        """Returns the decision, or THROTTLING_QUOTA_EXCEEDED in its place. It costs a token for each partition that comes or goes."""

        def decide(image: ClusterImage) -> D:
            decided = decision(image)
            pause_ms, is_spent = self._throttling.spend(self._context, _partition_count(image, decided), is_strict=self._is_strict)
            self.pause_ms = max(self.pause_ms, pause_ms)
            if not is_spent:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"the next topic change is allowed in {pause_ms} ms")
            return decided

        return decide


def _partition_count(image: ClusterImage, decided: Decided) -> int:
    """Returns how many partitions come or go."""
    count = 0
    for record in decided.records:
        if isinstance(record, PartitionRecord):
            count += 1
        elif isinstance(record, RemoveTopicRecord):
            count += len(image.topics[image.topic_names[record.topic_id]].partitions)
    return count

"""What a transaction asks of coordinators: one request after the other, repeated until an answer comes that counts.

The coordinator of the transactional id has a connection of its own; offsets go to that of their group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ottla.client.backoff import Backoff
from ottla.client.call_limit import TRY_MS, ended_by
from ottla.client.cluster import KEY_TYPE_TRANSACTION, MAIN_LANE, TRANSACTION_LANE, Cluster
from ottla.client.connection import ClientConnection
from ottla.client.coordinator import Coordinator
from ottla.client.enlistment import Enlistment
from ottla.errors import KafkaError
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
X = TypeVar("X")
FIRST_PAUSE_MS: Final = 5
"""Kafka's coordinator refuses the next transaction while it writes the markers of the last one, which takes milliseconds."""


class TransactionRequests:
    def __init__(self, cluster: Cluster, enlistment: Enlistment, *, max_block_ms: int) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._enlistment = enlistment
        self._max_block_ms = max_block_ms
        self._backoff = Backoff(first_ms=FIRST_PAUSE_MS)
        self._groups: dict[str, Coordinator] = {}
        self._turn = asyncio.Lock()  # of a request
        self.coordinator = Coordinator(cluster, enlistment.transactional_id, KEY_TYPE_TRANSACTION)

    def deadline_ms(self) -> int:
        """Returns when a call that starts now has lasted for max.block.ms, on the monotonic clock."""
        return self._clock.monotonic_ms() + self._max_block_ms

    async def connection(self, deadline_ms: int) -> ClientConnection:
        """Returns a connection to the transactional id's coordinator; raises the last problem when there is none by the deadline."""
        return await self._until_answered(
            lambda _: self.coordinator.connection(TRANSACTION_LANE), lambda _: 0, self.coordinator, deadline_ms
        )

    async def pause(self, attempt: int) -> None:
        """Pauses after a failed attempt, longer after each."""
        await asyncio.sleep(self._backoff.delay_ms(attempt, self._cluster.world) / 1000)

    async def ask_until_answered(
        self,
        request: Request,
        response_type: type[R],
        code_of: Callable[[R], int],
        deadline_ms: int,
        *,
        group_id: str | None = None,
        version_max: int | None = None,
        version_min: int = 0,
        on_lost: Callable[[], None] = lambda: None,
    ) -> R:
        """Returns the coordinator's answer other than "not here" and "not yet"; raises the last problem when none comes by the deadline.

        It is the group's coordinator that is asked where there is a ``group_id``. ``on_lost`` is called for each answer that did not come.
        """
        return await self._until_answered(
            lambda end_ms: self.ask(request, response_type, group_id, version_max, version_min, on_lost, end_ms),
            code_of,
            self._coordinator_of(group_id),
            deadline_ms,
        )

    async def _until_answered(
        self, ask: Callable[[int], Awaitable[X]], code_of: Callable[[X], int], coordinator: Coordinator, deadline_ms: int
    ) -> X:
        """Asks until there is an answer. ``ask`` is given when its try ends; a try has ``TRY_MS`` at least."""
        what = f"the coordinator of {coordinator.key!r} has not answered in max_block_ms={self._max_block_ms}"
        attempt = 0
        while True:
            now_ms = self._clock.monotonic_ms()
            end_ms = max(deadline_ms, now_ms + TRY_MS)
            try:
                async with ended_by(end_ms - now_ms, what):
                    answer = await ask(end_ms)
                code = code_of(answer)
                problem = KafkaError(code, f"the coordinator of {coordinator.key!r} is not ready")
                if not code or not problem.is_transient:
                    return answer
                coordinator.on_error(code)
            except KafkaError as error:
                if not error.is_transient:
                    raise
                coordinator.on_error(error.code)
                problem = error
            delay_ms = self._backoff.delay_ms(attempt, self._cluster.world)
            if self._clock.monotonic_ms() + delay_ms >= deadline_ms:
                raise problem
            await asyncio.sleep(delay_ms / 1000)
            attempt += 1

    async def ask(
        self,
        request: Request,
        response_type: type[R],
        group_id: str | None = None,
        version_max: int | None = None,
        version_min: int = 0,
        on_lost: Callable[[], None] = lambda: None,
        end_ms: int | None = None,
    ) -> R:
        """Makes one exchange with the coordinator. What is not answered before ``end_ms`` is the end of the connection."""
        coordinator, timeout_ms = self._coordinator_of(group_id), self._cluster.request_timeout_ms
        async with self._turn:
            connection = await coordinator.connection(TRANSACTION_LANE if group_id is None else MAIN_LANE)
            connection.require(type(request), version_min)
            if end_ms is not None:  # a little earlier than the try: a later request would wait behind this one
                timeout_ms = min(timeout_ms, max(1, end_ms - self._clock.monotonic_ms() - 1))
            try:
                with coordinator.given_up_for_another(connection):
                    return await connection.ask(request, response_type, timeout_ms=timeout_ms, version_max=version_max)
            except BaseException as error:
                self._enlistment.on_lost()
                on_lost()
                if isinstance(error, KafkaError):
                    coordinator.on_error(error.code)
                raise

    def _coordinator_of(self, group_id: str | None) -> Coordinator:
        if group_id is None:
            return self.coordinator
        return self._groups.setdefault(group_id, Coordinator(self._cluster, group_id))

"""Requests and responses of many elements: decoded and encoded in steps, between which others have their turn.

Two such requests are worked on at a time, from their decoding to their answer; others wait, as the bytes that they came as. One that has
taken ``TURN_MS`` counts no longer, since it waits for something else.

The connection is held meanwhile: no later request of it is started, so that order is kept, and a client has one such message
at most. A thread would not do as well: it and the loop would take the interpreter from each other, and the client that
asks for little would wait for it at every system call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from types import CoroutineType
from typing import Any, Final, Protocol

from ottla.broker.requests.answers import encode_answer_in_steps
from ottla.broker.requests.connection import BrokerConnection
from ottla.broker.requests.context import Channel, RequestContext, fail, fail_loudly
from ottla.broker.requests.service import Handle
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import pause
from ottla.errors import DecodeError
from ottla.messages.registry import Api
from ottla.ports import TimerHandle, Timers
from ottla.wire.compiler import decode_in_steps
from ottla.wire.schema import Request, Response

TOGETHER_MAX: Final = 2
TURN_MS: Final = 5000


class Workload(Protocol):
    """The count of requests that the broker works on."""

    def begin_work(self, count: int) -> None: ...
    def end_work(self, count: int) -> None: ...


class LargeMessages:
    """The large messages of one broker's connections."""

    def __init__(self, workload: Workload, timers: Timers) -> None:
        self._workload = workload
        self._timers = timers
        self._turns: dict[BrokerConnection, TimerHandle] = {}  # of requests that are worked on
        self._encoded: set[Channel] = set()  # whose answers are being encoded
        self._waiting: deque[tuple[BrokerConnection, Callable[[], object]]] = deque()

    def decode(self, connection: BrokerConnection, frame: memoryview, api: Api, version: int, position: int) -> None:
        """Decodes the request in the frame, whose memory is kept, and starts it then."""

        def decoded(found: tuple[Request, int] | None, error: BaseException | None) -> None:
            self._workload.end_work(1)
            connection.share.keep(-len(frame))
            if found is None:
                self.ended(connection)
            if isinstance(error, DecodeError):
                connection.refuse(error)
            elif error is not None:
                fail_loudly(api.name, error)
                connection.transport.abort()
            elif found is not None:
                connection.decoded = found[0]
                connection.behind.insert(0, frame)
                connection.share.keep(len(frame))
            connection.release()

        self._begin(connection)
        connection.share.keep(len(frame))
        steps = decode_in_steps(api.request, version, frame, position)
        self._waiting.append((connection, lambda: eager.run(_worked_off(connection, steps), decoded)))
        self._begin_waiting()

    def working(self, connection: BrokerConnection, handle: Handle, *, waits_for_others: bool) -> Handle:
        """Returns the handler of a request that was decoded here; its turn ends with it."""

        def begin(parts: Any, context: RequestContext, request: Any) -> Any:
            result = handle(parts, context, request)
            if type(result) is CoroutineType and not waits_for_others:
                return self._awaited(connection, result)
            self.ended(connection)
            return result

        return begin

    async def _awaited(self, connection: BrokerConnection, handled: CoroutineType[Any, Any, Response | None]) -> Response | None:
        try:
            return await handled
        finally:
            self.ended(connection)

    def ended(self, connection: BrokerConnection) -> None:
        """Notes that the request is worked off, or will not be, or waits for others: its turn ends once it is answered."""
        turn = self._turns.get(connection)
        if turn is not None:
            self._timers.call_later_ms(0, partial(self._end, connection, turn))

    def _end(self, connection: Channel, turn: TimerHandle | None = None) -> None:
        """Ends that turn, or any: by the time that it is looked at, the connection's next request may have one of its own."""
        if connection in self._turns and connection not in self._encoded and turn in (None, self._turns[connection]):
            self._turns.pop(connection).cancel()
            self._begin_waiting()

    def _expire(self, connection: BrokerConnection) -> None:
        self._turns.pop(connection, None)
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        while self._waiting and len(self._turns) < TOGETHER_MAX:
            connection, begin = self._waiting.popleft()
            self._turns[connection] = self._timers.call_later_ms(TURN_MS, partial(self._expire, connection))
            begin()

    def reply(self, context: RequestContext, response: Response) -> None:
        """Encodes the response, and sends it when its turn comes."""
        answer: list[Any] = []

        def encoded(_: None, error: BaseException | None) -> None:
            self._workload.end_work(1)
            self._encoded.discard(context.connection)
            self._end(context.connection)
            if error is not None:
                fail(context, error)
            else:
                context.complete(answer)
            context.connection.release()

        self._encoded.add(context.connection)
        self._begin(context.connection)
        steps = encode_answer_in_steps(context.api, context.version, context.correlation_id, response, answer)
        eager.run(_worked_off(context.connection, steps), encoded)

    def _begin(self, connection: Channel) -> None:
        connection.hold()
        self._workload.begin_work(1)


async def _worked_off(connection: Channel, steps: Iterator[None]) -> Any:
    """Returns what the steps return; None as soon as the connection has ended."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
        await pause()
        if connection.transport.is_closed:
            return None

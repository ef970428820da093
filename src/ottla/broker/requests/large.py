"""Requests and responses of many elements: decoded and encoded in steps, between which others have their turn.

The connection is held meanwhile: no later request of it is begun, so that order is kept, and a client has one such message
at most. A thread would not do as well: it and the loop would take the interpreter from each other, and the client that
asks for little would wait for it at every system call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from ottla.broker.requests.answers import encode_answer_in_steps
from ottla.broker.requests.connection import BrokerConnection
from ottla.broker.requests.context import Channel, RequestContext, fail, fail_loudly
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import pause
from ottla.errors import DecodeError
from ottla.messages.registry import Api
from ottla.wire.compiler import decode_in_steps
from ottla.wire.schema import Request, Response


class Workload(Protocol):
    """What counts the requests that the broker works on."""

    def begin_work(self, count: int) -> None: ...
    def end_work(self, count: int) -> None: ...


class LargeMessages:
    """Those of one broker's connections."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def decode(self, connection: BrokerConnection, frame: memoryview, api: Api, version: int, position: int) -> None:
        """The request in the frame, whose memory is kept, is begun once it is decoded."""

        def decoded(found: tuple[Request, int] | None, error: BaseException | None) -> None:
            self._workload.end_work(1)
            if isinstance(error, DecodeError):
                connection.refuse(error)
            elif error is not None:
                fail_loudly(api.name, error)
                connection.transport.abort()
            elif found is not None:
                connection.decoded = found[0]
                connection.behind.insert(0, frame)
            connection.release()

        self._begin(connection)
        eager.run(_worked_off(connection, decode_in_steps(api.request, version, frame, position)), decoded)

    def reply(self, context: RequestContext, response: Response) -> None:
        """The response leaves once it is encoded, when its turn comes."""
        answer: list[Any] = []

        def encoded(_: None, error: BaseException | None) -> None:
            self._workload.end_work(1)
            if error is not None:
                fail(context, error)
            else:
                context.complete(answer)
            context.connection.release()

        self._begin(context.connection)
        steps = encode_answer_in_steps(context.api, context.version, context.correlation_id, response, answer)
        eager.run(_worked_off(context.connection, steps), encoded)

    def _begin(self, connection: Channel) -> None:
        connection.hold()
        self._workload.begin_work(1)


async def _worked_off(connection: Channel, steps: Iterator[None]) -> Any:
    """What the steps return; None as soon as the connection has ended."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
        await pause()
        if connection.transport.is_closed:
            return None

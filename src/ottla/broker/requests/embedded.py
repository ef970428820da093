"""A request that came inside another one: handled as if its client were connected here, its answer as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ottla.broker.authorization import Rights
from ottla.broker.requests.context import Parked, Pipeline, RequestContext
from ottla.broker.requests.counted_errors import meters_of
from ottla.broker.requests.gate import is_allowed, refuse
from ottla.broker.requests.service import Service
from ottla.broker.roles import Role
from ottla.messages.headers import RequestHeader
from ottla.net.response_queue import ResponseSlot
from ottla.ports import Connection
from ottla.security.principal import Principal
from ottla.wire.schema import Response


class EmbeddedChannel:
    """A ``context.Channel`` for one request, over the connection that brought it. Its answer is what ``answer`` becomes."""

    def __init__(self, outer: RequestContext, rights: Rights, *, principal: Principal, client_host: str) -> None:
        connection = outer.connection
        self.transport: Connection = connection.transport
        self.listener = connection.listener
        self.role = Role.BROKER
        self.principal = principal
        self.rights = rights
        self.client_host = client_host
        self.muted_until_ms = 0
        self.parked: dict[Parked, None] = connection.parked
        self.watches: dict[Parked, None] = connection.watches
        self.pipeline: Pipeline = connection.pipeline
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def complete(self, place: ResponseSlot, answer: Sequence[Any]) -> None:
        """Takes the answer's bytes, without their length before them."""
        if not self.answer.done():
            self.answer.set_result(b"".join(bytes(piece) for piece in answer)[4:])

    def hold(self) -> None:
        pass

    def release(self) -> None:
        pass

    def update_reading(self) -> None:
        pass

    def expect_write(self, count: int) -> None:
        raise AssertionError("records are never forwarded")

    def written(self, count: int) -> None:
        raise AssertionError("records are never forwarded")

    def gather_answers(self) -> None:
        pass

    def send_answers(self) -> None:
        pass


async def answer_embedded(
    parts: Any,
    outer: RequestContext,
    served: Service,
    header: RequestHeader,
    request: Any,
    *,
    principal: Principal,
    client_host: str,
) -> tuple[bytes, int]:
    """Returns the header and the body of the answer, and how long the client has to pause, in milliseconds."""
    channel = EmbeddedChannel(outer, parts.authorizer.rights(principal, client_host), principal=principal, client_host=client_host)
    meters = meters_of(served.api.response, served.version_max)
    context = RequestContext(
        channel, outer.place, served.api, header.api_version, header.correlation_id, header.client_id, meters, outer.began_us
    )
    if not is_allowed(served, context, request):
        refuse(served, context, request)
    elif (result := (served.embedded or served.handle)(parts, context, request)) is not None:
        response = result if isinstance(result, Response) else await result
        if response is not None:
            context.reply(response)
    data = await channel.answer
    muted_until_ms, channel.muted_until_ms = channel.muted_until_ms, 0  # another broker pauses the client: nothing here waits for the end
    return data, max(0, muted_until_ms - parts.world.clock.monotonic_ms())

"""One request on its way through the broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.answers import encode_answer
from ottla.loggers import get_logger
from ottla.net.response_queue import Place
from ottla.wire.primitives import ManyElements

if TYPE_CHECKING:
    from ottla.broker.connection import BrokerConnection
    from ottla.messages.registry import Api
    from ottla.metrics import RequestMeters
    from ottla.wire.schema import Response

log = get_logger(__name__)


class RequestContext:
    """Who asked, in which version, and the place in line that the answer takes."""

    __slots__ = ("api", "began_us", "client_id", "connection", "correlation_id", "meters", "place", "version", "work_us")

    def __init__(
        self,
        connection: BrokerConnection,
        place: Place,
        api: Api,
        version: int,
        correlation_id: int,
        client_id: str | None,
        meters: RequestMeters,
        began_us: int,
    ) -> None:
        self.connection = connection
        self.place = place
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.meters = meters
        self.began_us = began_us
        self.work_us = 0  # what it kept the loop busy for, when that is measured

    def reply(self, response: Response) -> None:
        """The response leaves when its turn comes."""
        connection = self.connection
        if connection.router.throttling.times_requests:
            connection.router.throttling.on_reply(self, response)
        meters = self.meters
        if meters.has_error_code and (code := response.error_code):  # type: ignore[attr-defined]
            meters.errors[code] = meters.errors.get(code, 0) + 1
        try:
            answer = encode_answer(self.api, self.version, self.correlation_id, response)
        except ManyElements:
            connection.router.large.reply(self, response)
        else:
            self.complete(answer)

    def reply_nothing(self) -> None:
        """The request gets no answer (acks=0)."""
        self.complete(())

    def complete(self, answer: Sequence[Any]) -> None:
        """The answer leaves when its turn comes."""
        self.connection.router.answered(self.meters, self.began_us)
        self.connection.complete(self.place, answer)


def fail(context: RequestContext, error: BaseException) -> None:
    """A mistake of ours: it is logged, and the client loses its connection."""
    fail_loudly(context.api.name, error)
    context.connection.transport.abort()


def fail_loudly(what: str, error: BaseException) -> None:
    log.error("request_failed", api=what, exc_info=error)

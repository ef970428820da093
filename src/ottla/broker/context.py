"""One request on its way through the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.messages.headers import encode_response_header
from ottla.net.response_queue import Place
from ottla.wire.compiler import encode_into

if TYPE_CHECKING:
    from ottla.broker.connection import BrokerConnection
    from ottla.messages.registry import Api
    from ottla.metrics import RequestMeters
    from ottla.wire.schema import Response


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
        connection.router.answered(meters, self.began_us)
        connection.complete(self.place, encode_answer(self.api, self.version, self.correlation_id, response))

    def reply_nothing(self) -> None:
        """The request gets no answer (acks=0)."""
        self.connection.router.answered(self.meters, self.began_us)
        self.connection.complete(self.place, ())


PIECES_MANY: Final = 2000
SHARED_BYTES_MIN: Final = 512


def encode_answer(api: Api, version: int, correlation_id: int, response: Response) -> list[Any]:
    """Length, header and body as buffers; file regions stay what they are."""
    pieces: list[Any] = [encode_response_header(correlation_id, is_flexible=api.has_flexible_response_header(version))]
    encode_into(response, version, pieces.append)
    if len(pieces) > PIECES_MANY:  # and some of them perhaps many times: they are sent from where they are
        return _join_around(pieces, [at for at, piece in enumerate(pieces) if type(piece) is not bytes or len(piece) >= SHARED_BYTES_MIN])
    try:
        body = b"".join(pieces)
    except TypeError:  # a fetch that found something: a region is no bytes
        return _join_around(pieces, [at for at, piece in enumerate(pieces) if type(piece) is not bytes])
    return [len(body).to_bytes(4, "big") + body]


def _join_around(pieces: list[Any], kept: list[int]) -> list[Any]:
    """Runs of ``bytes`` between those that are kept as they are become one each: a vectored send pays for every piece."""
    joined: list[Any] = []
    head = sum(map(len, pieces)).to_bytes(4, "big")
    start = 0
    for at in kept:
        joined.append(head + b"".join(pieces[start:at]))
        joined.append(pieces[at])
        head, start = b"", at + 1
    joined.append(head + b"".join(pieces[start:]))
    return joined

"""The requests in flight on one connection: encoded on their way out, matched with the responses, which come in the order of the requests.

A machine without a transport, and without a way to wait: the owner of the connection keeps a ``waiter`` of its own kind with each request,
a future or a callback, and gets it back with the response, or at the end of the connection.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Generic, TypeVar

from ottla.errors import DecodeError
from ottla.messages.api_keys import ApiKey
from ottla.messages.headers import RequestHeader, decode_response_header, encode_request_header
from ottla.messages.registry import Api
from ottla.wire.compiler import decode, encode_into
from ottla.wire.schema import Request, Response

W = TypeVar("W")

_UNSUPPORTED_VERSION: Final = b"\0\x23"


class Sent(Generic[W]):
    """A request that awaits its response."""

    __slots__ = ("api", "correlation_id", "version", "waiter")

    def __init__(self, api: Api, version: int, correlation_id: int, waiter: W) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.waiter = waiter


class InFlight(Generic[W]):
    """The requests of one connection that await their responses, the oldest first. ``client_id`` names the caller in each of them."""

    __slots__ = ("_client_id", "_last_correlation_id", "_sent")

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._sent: deque[Sent[W]] = deque()
        self._last_correlation_id = 0

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def oldest(self) -> W | None:
        """The waiter of the request that has waited for the longest time."""
        return self._sent[0].waiter if self._sent else None

    def add(self, request: Request, api: Api, version: int, waiter: W) -> list[Any]:
        """Returns the frame of the request, in pieces, to be sent at once. EncodeError leaves nothing in flight."""
        pieces = self.unanswered(request, api, version)
        self._sent.append(Sent(api, version, self._last_correlation_id, waiter))
        return pieces

    def unanswered(self, request: Request, api: Api, version: int) -> list[Any]:
        """Returns the frame of a request that has no response, as a Produce with acks=0."""
        self._last_correlation_id = correlation_id = (self._last_correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(api.key, version, correlation_id, self._client_id)
        pieces: list[Any] = [b"", encode_request_header(header, is_flexible=api.is_flexible(version))]
        encode_into(request, version, pieces.append)
        pieces[0] = sum(map(len, pieces)).to_bytes(4, "big")
        return pieces

    def answered(self, frame: memoryview) -> tuple[Sent[W], Response]:
        """Returns the oldest request, which is in flight no longer, and its response, which may hold views of the frame.

        DecodeError when the frame is no response to it: the connection has lost its order, and every request remains, to be failed.
        """
        if not self._sent:
            raise DecodeError("a response without a matching request")
        sent = self._sent[0]
        correlation_id, position = decode_response_header(frame, is_flexible=sent.api.has_flexible_response_header(sent.version))
        if correlation_id != sent.correlation_id:
            raise DecodeError(f"response {correlation_id} came where {sent.correlation_id} was due")
        version = sent.version
        if sent.api.key == ApiKey.API_VERSIONS and bytes(frame[position : position + 2]) == _UNSUPPORTED_VERSION:
            version = 0  # this error is always returned in version 0 (KIP-511)
        response = decode(sent.api.response, version, frame[position:])
        self._sent.popleft()
        return sent, response

    def end(self) -> list[W]:
        """Returns the waiters of all requests, none of which is in flight from now on: the connection has ended."""
        waiters = [sent.waiter for sent in self._sent]
        self._sent.clear()
        return waiters

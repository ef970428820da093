"""One connection to another node: a machine with callbacks, without a task or a future for each request.

The first exchange is ApiVersions, in which the connection says whose it is; then what waited is sent, each request in the newest version
that both have. Answers come in the order of the requests. When the connection ends, everything that was asked on it is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ottla.broker.peers.caller_name import CallerName
from ottla.errors import DecodeError, ErrorCode
from ottla.loggers import get_logger
from ottla.messages.api_keys import ApiKey
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.in_flight import InFlight
from ottla.messages.registry import API_OF_REQUEST, APIS, Api
from ottla.ports import Connection
from ottla.wire.frame_memory import FrameMemory
from ottla.wire.frames import FrameCutter
from ottla.wire.schema import Request, Response

log = get_logger(__name__)

RESPONSE_BYTES_MAX: Final = 2**31 - 1
NAMED_SINCE: Final = 3
"""The version of ApiVersions in which a connection starts; every node serves it (Kafka since 2.4)."""

_WAY_OUT: Final = (
    "name the nodes' principals in super.users of every node, or give them CLUSTER_ACTION on the cluster; the peer's log names them"
)

OnAnswer = Callable[[Response | None], None]
"""Gets the answer; None when there will be none: the connection has ended, or the node does not serve the request."""


class Older(NamedTuple):
    """A node that serves older versions than ``version_min`` alone is not asked: ``answer`` is taken for its answer."""

    version_min: int
    answer: Response


class _Asked(NamedTuple):
    on_answer: OnAnswer
    sent_ms: int


class PeerConnection:
    """A ``ports.ConnectionHandler``. ``send`` may be called before the connection is open."""

    def __init__(
        self,
        name: CallerName,
        on_end: Callable[[], None],
        memory: FrameMemory | None = None,
        *,
        on_retire: Callable[[], None] | None = None,
    ) -> None:
        self._name = name
        self._on_end = on_end
        self._on_retire = on_retire
        self._transport: Connection | None = None
        self._cutter = FrameCutter(RESPONSE_BYTES_MAX, memory)
        self._versions: Mapping[int, tuple[int, int]] | None = None  # None before the node has sent them
        self._waiting: deque[tuple[Request, OnAnswer, int, Older | None]] = deque()
        self._in_flight: InFlight[_Asked] = InFlight(name.client_id)
        self._is_refused = False  # as a client that may not ask what nodes ask: said once
        self._is_retired = False
        self.is_closed = False

    @property
    def oldest_ms(self) -> int | None:
        """When the request was sent that has waited for the longest time; None when nothing waits."""
        oldest = self._in_flight.oldest
        if oldest is not None:
            return oldest.sent_ms
        return self._waiting[0][2] if self._waiting else None

    def on_open(self, transport: Connection, now_ms: int) -> PeerConnection:
        """Asks the node what it serves, as the connection is made."""
        return self.open_with(self._name.hello(), transport, self._on_versions, now_ms)

    def open_with(self, hello: ApiVersionsRequest, transport: Connection, on_answer: OnAnswer, now_ms: int) -> PeerConnection:
        """Sends the first request, as the connection is made. Only ``on_open`` lets others follow."""
        self._transport = transport
        self._write(hello, APIS[ApiKey.API_VERSIONS], NAMED_SINCE, on_answer, now_ms)
        return self

    def send(self, request: Request, on_answer: OnAnswer, now_ms: int, older: Older | None = None) -> None:
        """Sends the request as soon as it can. ``older`` is for one that means something else in older versions."""
        if self.is_closed:
            on_answer(None)
        elif self._versions is None:
            self._waiting.append((request, on_answer, now_ms, older))
        else:
            self._send(request, on_answer, now_ms, older)

    def _on_versions(self, response: Response | None) -> None:
        if response is None:
            return
        assert isinstance(response, ApiVersionsResponse), "an API has one response type"
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise DecodeError(f"the node does not serve ApiVersions version {NAMED_SINCE}")
        self._versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        waiting, self._waiting = self._waiting, deque()
        for request, on_answer, sent_ms, older in waiting:
            self.send(request, on_answer, sent_ms, older)  # the first one may find that the connection is broken

    def _send(self, request: Request, on_answer: OnAnswer, now_ms: int, older: Older | None) -> None:
        api = API_OF_REQUEST[type(request)]
        low, high = (self._versions or {}).get(api.key, (0, -1))
        version = min(api.version_max, high)
        if version < max(low, api.version_min):
            log.warning("peer_does_not_serve", api=api.name, peer=self._transport and self._transport.peer)
            on_answer(None)
        elif older is not None and version < older.version_min:
            on_answer(older.answer)
        else:
            self._write(request, api, version, on_answer, now_ms)

    def _write(self, request: Request, api: Api, version: int, on_answer: OnAnswer, now_ms: int) -> None:
        assert self._transport is not None, "the connection is open"
        self._transport.send(self._in_flight.add(request, api, version, _Asked(on_answer, now_ms)))

    def room(self) -> memoryview | None:
        return self._cutter.room()

    def on_data(self, data: memoryview) -> bool:
        try:
            for frame, is_shared in self._cutter.feed(data):
                self._on_frame(memoryview(bytes(frame)) if is_shared else frame)  # the answer outlives what was received
        except DecodeError as error:
            log.warning("peer_answer_not_understood", peer=self._transport and self._transport.peer, reason=error.message)
            self.close()
        return False

    def _on_frame(self, frame: memoryview) -> None:
        sent, response = self._in_flight.answered(frame)
        if not self._is_refused and getattr(response, "error_code", 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._is_refused = True
            log.warning("node_refused", api=sent.api.name, peer=self._transport and self._transport.peer, way_out=_WAY_OUT)
        sent.waiter.on_answer(response)
        if self._is_retired:
            self._end_if_idle()

    def probe(self) -> None:
        """Probes the connection, which ends when the node's machine has restarted since it was made."""
        if self._transport is not None:
            self._transport.probe()

    def on_drain(self) -> None:
        """Does nothing, since nothing waits for it: the callers bound what is in flight."""

    def on_close(self, error: Exception | None) -> None:
        self._end()

    def retire(self) -> None:
        """Ends the connection, whose session is about to end, once it has the answers that are still to come.

        At once where no other connection takes its place.
        """
        if self._on_retire is None:
            self.close()
        elif not (self.is_closed or self._is_retired):
            self._is_retired = True
            self._on_retire()
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self._in_flight and not self._waiting:
            self.close()

    def close(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def _end(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._cutter.close()
        self._on_end()
        lost = [asked.on_answer for asked in self._in_flight.end()] + [on_answer for _, on_answer, _, _ in self._waiting]
        self._waiting.clear()
        for on_answer in lost:
            on_answer(None)

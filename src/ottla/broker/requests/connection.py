"""A client's connection, from bytes to answers.

What one receive brought is one burst: all its requests are decoded and started, then every log that was touched is flushed
once, then the answers that are ready leave in one send. A connection with too many open requests, or one that does not
read its answers, is not read until that is over: back-pressure instead of memory.

A burst whose requests take longer than the connection's share of the loop ends early: the frames that are left wait
(``behind``), and continue as a burst of their own after the other connections had their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from ottla.broker.authorization import AllowAll, Rights
from ottla.broker.requests.context import Parked, Pipeline, RequestContext
from ottla.broker.requests.refusals import Refusals
from ottla.broker.requests.repeated_head import RepeatedHead
from ottla.broker.roles import Role
from ottla.errors import DecodeError
from ottla.loggers import Chatty
from ottla.messages.produce import ProduceRequest
from ottla.net.request_memory import RequestMemory
from ottla.net.response_queue import ResponseQueue, ResponseSlot
from ottla.ports import Connection
from ottla.security.principal import ANONYMOUS
from ottla.wire.frame_memory import FrameMemory
from ottla.wire.frames import FrameCutter
from ottla.wire.schema import Request

CONNECTIONS: Final = Chatty(__name__)
log = CONNECTIONS.log

OPEN_REQUESTS_MAX: Final = 1000
UNSENT_BYTES_MAX: Final = 16 * 1024 * 1024
MISSES_MAX: Final = 4
UNLOOKED_AT: Final = 100
FOREVER_MS: Final = 2**63


class Dispatcher(Pipeline, Protocol):
    """The receiver of a connection's requests and of the ends of its bursts."""

    frame_memory: FrameMemory
    request_memory: RequestMemory
    refusals: Refusals

    @property
    def is_held(self) -> bool:
        """Whether nothing more is read for now."""
        ...

    def begin_burst(self) -> int:
        """Starts a burst: one receive's requests are about to be dispatched. Returns its time in milliseconds."""
        ...

    def dispatch(self, connection: BrokerConnection, frame: memoryview) -> bool:
        """Starts the request; False when it has to wait for records that are being written. DecodeError ends the connection."""
        ...

    def end_burst(self) -> bool:
        """Writes and answers what is staged; True when a write still needs the received bytes."""
        ...

    def close_burst(self) -> None:
        """Closes the burst: everything that it could answer has left."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Runs ``callback`` after what the loop has to do now."""
        ...

    def end_large(self, connection: BrokerConnection) -> None:
        """Ends a request that was decoded in steps, and will not be worked on."""
        ...

    def forget(self, connection: BrokerConnection) -> None:
        """Forgets the connection, which has ended."""
        ...


class BrokerConnection:
    """A ``ports.ConnectionHandler``."""

    __slots__ = (
        "_cutter", "_goes_on", "_hold_count", "_in_burst", "_is_paused", "_out", "_received_bytes", "_responses", "_work_bytes", "behind",
        "decoded", "head_misses", "last_used_ms", "listener", "muted_until_ms", "parked", "pipeline", "principal", "repeated",
        "rights", "role", "share", "transport", "unwritten_count", "watches",
    )  # fmt: skip

    def __init__(self, pipeline: Dispatcher, transport: Connection, listener: str, role: Role, *, frame_bytes_max: int) -> None:
        self.pipeline = pipeline
        self.transport = transport
        self.listener = listener
        self.role = role  # of those who connect there
        self.principal = ANONYMOUS
        self.rights: Rights = AllowAll()  # until it has been introduced to the authorizer
        self.share = pipeline.request_memory.share(self.update_reading, self._give_up)
        self._cutter = FrameCutter(frame_bytes_max, pipeline.frame_memory, self.share)
        self._responses = ResponseQueue()
        self._out: list[Any] = []
        self._in_burst = False
        self._hold_count = 0  # why no request is started: a batch is examined, a large request decoded, a large answer encoded
        self._is_paused = False
        self.last_used_ms = 0
        self.muted_until_ms = 0  # on the monotonic clock; not 0 while a client above its quota is not read
        self.parked: dict[Parked, None] = {}
        self.watches: dict[Parked, None] = {}  # of its fetch sessions
        self.repeated: RepeatedHead | None = None  # of the last produce request, where it was one for a single partition
        self.head_misses = 0  # produce requests in a row that did not repeat it
        self.unwritten_count = 0  # produce requests whose records are being written by a thread
        self.behind: list[memoryview] = []  # frames that wait: for those records, or for the connection's next turn
        self._goes_on = False  # that turn is coming
        self._received_bytes = 0  # of the burst
        self._work_bytes = 0  # of requests whose records are being written
        self.decoded: Request | None = None  # what the first of those frames says, when it was decoded in steps

    @property
    def client_host(self) -> str:
        return self.transport.peer[0]

    @property
    def has_open_requests(self) -> bool:
        return len(self._responses) > 0

    @property
    def is_crowded(self) -> bool:
        """Whether it has so many open requests that it may not start another."""
        return len(self._responses) > OPEN_REQUESTS_MAX

    def limit_frames(self, bytes_max: int) -> None:
        """Limits the length of requests, from the next one on."""
        self._cutter.limit_bytes = bytes_max

    def room(self) -> memoryview | None:
        return self._cutter.room()

    def on_data(self, data: memoryview) -> bool:
        self._received_bytes = len(data) + self.share.received
        return self._work((frame for frame, _ in self._cutter.feed(data)), are_kept=False)

    def expect_write(self, count: int) -> None:
        """Notes that the records of so many produce requests are being written: other requests wait for them."""
        self.unwritten_count += count
        size, self._received_bytes = self._received_bytes, 0
        self._work_bytes += size
        self.share.begin_work(size)

    def written(self, count: int) -> None:
        """Notes that the records of produce requests are in their logs, or were refused: what had to wait for them continues."""
        self.unwritten_count -= count
        if self.unwritten_count == 0:
            self.share.begin_work(-self._work_bytes)
            self._work_bytes = 0
        self._go_on()

    def refuse(self, error: DecodeError) -> None:
        """Ends the connection of a client that sends what is no request."""
        self._refuse(error.message)

    def _give_up(self) -> None:
        self._refuse("requests hold more memory than queued.max.request.bytes allows")

    def _refuse(self, reason: str) -> None:
        if self.pipeline.refusals.take("connection_refused_input", self.client_host):
            log.info("connection_refused_input", peer=self.client_host, reason=reason)
        self.transport.abort()

    def hold(self) -> None:
        """Starts no later request until there was a ``release`` for each ``hold``."""
        self._hold_count += 1

    def release(self) -> None:
        self._hold_count -= 1
        if self.behind:
            self._go_on_soon()

    def _go_on(self) -> None:
        """Starts the waiting frames as a burst, unless what they wait for is still to come."""
        self._goes_on = False
        if self.behind and self._may_go_on and not self.transport.is_closed:
            behind, self.behind = self.behind, []
            self._received_bytes = sum(map(len, behind))
            self.share.keep(-self._received_bytes)
            self._work(iter(behind), are_kept=True)

    @property
    def _may_go_on(self) -> bool:
        return self.unwritten_count == 0 and self._hold_count == 0 and not self.is_crowded

    def _go_on_soon(self) -> None:
        """Continues after the others have had their turn."""
        if not self._goes_on and self._may_go_on:
            self._goes_on = True
            self.pipeline.call_soon(self._go_on)

    def gather_answers(self) -> None:
        """Holds answers back until ``send_answers``, as in a burst."""
        self._in_burst = True

    def send_answers(self) -> None:
        """Sends the answers that are ready, in one system call."""
        self._in_burst = False
        self._leave()

    def _work(self, frames: Iterator[memoryview], *, are_kept: bool) -> bool:
        """Works one burst; True when a write still needs the frames' memory. ``are_kept``: no later bytes are received into it."""
        pipeline = self.pipeline
        self._in_burst = True
        self.last_used_ms = pipeline.begin_burst()
        behind, timing = self.behind, pipeline.timing
        try:
            for frame in frames:
                if behind or timing.is_long or self._hold_count or not pipeline.dispatch(self, frame):
                    rest = [frame, *frames]
                    behind += rest if are_kept else [memoryview(bytearray(frame)) for frame in rest]
                    self.share.keep(sum(map(len, rest)))
        except DecodeError as error:
            self.refuse(error)
        except Exception as error:
            log.error("request_failed", peer=self.client_host, exc_info=error)
            self.transport.abort()
        kept = pipeline.end_burst()
        self._in_burst = False
        self._leave()
        pipeline.close_burst()
        return kept

    def learn_head(self, context: RequestContext, request: ProduceRequest, frame: memoryview) -> None:
        """Learns the request's head, which may be repeated. Where none ever is, as with writes to many partitions, few are looked at."""
        self.head_misses += 1
        self.repeated = RepeatedHead.of(context, request, frame) if self.head_misses <= MISSES_MAX else None
        if self.repeated is not None:
            self.repeated.release()
        elif self.head_misses > MISSES_MAX + UNLOOKED_AT:
            self.head_misses = 0

    def enter(self) -> ResponseSlot:
        return self._responses.enter()

    def has_sent_all_before(self, place: ResponseSlot) -> bool:
        """True when the answers of all earlier requests are with the system."""
        return self._responses.is_first(place) and self.transport.unsent_bytes == 0

    def is_kept_waiting(self, place: ResponseSlot | None) -> bool:
        """True when an answer before that place, or any without one, is still worked on here, or the client is above its quota."""
        return self.muted_until_ms > 0 or (self.has_open_requests and (place is None or not self._responses.is_first(place)))

    def complete(self, place: ResponseSlot, answer: Sequence[Any]) -> None:
        """Completes the answer, which leaves after the earlier ones."""
        place.answer = answer
        if not self._in_burst:
            self._leave()

    def _leave(self) -> None:
        out = self._out
        self._responses.leave(out)
        if out:
            self._out = []
            self.transport.send(out)
        if self.behind:
            self._go_on_soon()
        self.update_reading()

    def mute_for_good(self) -> None:
        """Reads nothing further from it."""
        self.muted_until_ms = FOREVER_MS
        self.update_reading()

    def update_reading(self) -> None:
        """Pauses reading while the connection, or the broker, has enough to do."""
        is_paused = (
            len(self._responses) > OPEN_REQUESTS_MAX  # ``is_crowded``
            or self.transport.unsent_bytes > UNSENT_BYTES_MAX
            or len(self.behind) > 0
            or self.share.is_waiting
            or self.pipeline.is_held
            or self.muted_until_ms > 0
        )
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            if is_paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def on_drain(self) -> None:
        self._leave()

    def on_close(self, error: Exception | None) -> None:
        self.share.end()
        self._cutter.close()
        self.behind = []  # a burst that is being worked on has the old one still
        if self.decoded is not None:
            self.pipeline.end_large(self)
        self.pipeline.forget(self)
        for parked in [*self.parked, *self.watches]:
            parked.abandon()
        if CONNECTIONS.is_wanted:
            why = {} if error is None else {"error": str(error)}
            CONNECTIONS.log.debug("connection_closed", peer=self.client_host, listener=self.listener, principal=str(self.principal), **why)

"""From a frame to the handler of its API, and the end of each burst.

A handler returns a response, or None when it has arranged for the answer itself, or a coroutine; one that finishes without
suspending costs no Task. What the broker does not serve is told by ApiVersions; a client that asks all the same loses its
connection, as with Kafka, except for ApiVersions itself, which answers any version (KIP-511).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from ottla.broker import eager
from ottla.broker.connection import BrokerConnection
from ottla.broker.context import RequestContext, fail, fail_loudly
from ottla.broker.large import LargeMessages
from ottla.errors import DecodeError, StorageError
from ottla.loggers import get_logger
from ottla.messages.api_keys import ApiKey
from ottla.messages.headers import decode_request_header, decode_request_header_start
from ottla.messages.produce import ProduceRequest
from ottla.messages.registry import Api
from ottla.metrics import RequestMeters
from ottla.ports import Clock, Connection
from ottla.wire.compiler import decode_from
from ottla.wire.frame_memory import FrameMemory
from ottla.wire.generator import Form
from ottla.wire.primitives import ManyElements
from ottla.wire.schema import Response

if TYPE_CHECKING:
    from ottla.broker.handlers.produce import StagedProduce
    from ottla.broker.node import Broker
    from ottla.broker.partition import Partition

log = get_logger(__name__)

ROUND_US: Final = 50_000
"""So long is a round in which every connection has a burst of full length."""
BURST_US_MAX: Final = 5_000
BURST_US_MIN: Final = 100
QUICK_FRAME_BYTES: Final = 1 << 15
"""A produce request up to this size takes a few milliseconds at most, whatever its records."""

Handle = Callable[["Broker", RequestContext, Any], Response | Coroutine[Any, Any, Response | None] | None]


@dataclass(frozen=True, slots=True)
class Service:
    """One API as this broker serves it. ``version_min_listed`` may lie below what is served (Produce, trap T3)."""

    api: Api
    handle: Handle
    version_min: int
    version_max: int
    version_min_listed: int
    waits_for_others: bool = False
    """Its answer may wait for other requests (a join for other joins): such a wait is no work of the broker's."""
    handle_many: Handle | None = None
    """In place of ``handle``, for requests of so many elements that they were decoded in steps."""


class Router:
    """``requests_max`` bounds the requests that the broker works on (``queued.max.requests``).

    Work is what waits for the disk; a fetch that waits for records and a member that waits for its group are none. Above
    the bound no socket is read, and nobody is let in, until half of it is done.
    """

    def __init__(self, broker: Broker, services: Mapping[int, Service], *, frame_bytes_max: int, requests_max: int) -> None:
        self._broker = broker
        self._services = services
        self._frame_bytes_max = frame_bytes_max
        self._requests_max = requests_max
        self.meters = {key: _meters_of(service) for key, service in services.items()}
        self._burst_us = 0  # when the burst that is being worked on began; 0 between bursts
        self._burst_us_max = BURST_US_MAX
        self.is_burst_long = False
        """The burst has had its share of the loop: what is left of it waits for the connection's next turn."""
        self._answered: list[RequestMeters] = []  # those with answers in this burst
        self.large = LargeMessages(self)
        self.throttling = broker.throttling
        self.working_count = 0
        self.is_held = False
        self._staged: list[StagedProduce] = []
        self._keeps_received = False  # a write or a decoder still needs the bytes that the burst received
        self._dirty: dict[Partition, None] = {}
        self.clock: Clock = broker.world.clock
        self.connections: dict[BrokerConnection, None] = {}
        self.frame_memory = FrameMemory()

    def accept(self, transport: Connection, listener: str) -> BrokerConnection:
        connection = BrokerConnection(self, transport, listener, frame_bytes_max=self._frame_bytes_max)
        connection.last_used_ms = self.clock.monotonic_ms()
        self.connections[connection] = None
        return connection

    def forget(self, connection: BrokerConnection) -> None:
        """The connection has ended."""
        del self.connections[connection]
        self._broker.gate.left(connection)

    def begin_burst(self) -> int:
        """One receive's requests are about to be dispatched; the time of it in milliseconds."""
        self._burst_us = self.clock.monotonic_us()
        self._burst_us_max = min(BURST_US_MAX, max(BURST_US_MIN, ROUND_US // max(1, len(self.connections))))
        self.is_burst_long = False
        return self._burst_us // 1000

    def look_at_clock(self) -> None:
        """Something was done that may have taken long: ``is_burst_long`` is as it should be."""
        self.is_burst_long = self.clock.monotonic_us() - self._burst_us > self._burst_us_max

    def call_soon(self, callback: Callable[[], None]) -> None:
        """``callback`` runs after what the loop has to do now."""
        self._broker.world.timers.call_later_ms(0, callback)

    def close_burst(self) -> None:
        """Everything that this burst could answer has left."""
        took_us = self.clock.monotonic_us() - self._burst_us
        self._burst_us = 0
        for meters in self._answered:
            meters.timer.observe(took_us, meters.pending)
            meters.pending = 0
        self._answered.clear()

    def answered(self, meters: RequestMeters, began_us: int) -> None:
        """An answer is ready to a request of the burst that began then."""
        if began_us != self._burst_us:
            meters.timer.observe(self.clock.monotonic_us() - began_us)
            return
        if not meters.pending:
            self._answered.append(meters)
        meters.pending += 1

    def dispatch(self, connection: BrokerConnection, frame: memoryview) -> bool:
        """The request is begun; False when it has to wait for records that are being written. DecodeError ends the connection."""
        repeated = connection.repeated
        if repeated is not None and repeated.repeats(frame):
            meters, version = repeated.meters, repeated.version
            meters.requests[version] += 1
            place = connection.enter()
            client_id, correlation_id = repeated.client_id, repeated.correlation_id
            context = RequestContext(connection, place, repeated.api, version, correlation_id, client_id, meters, self._burst_us)
            produce = self._services[ApiKey.PRODUCE]
            self._run(produce, produce.handle, context, repeated.request)
            repeated.release()
            connection.head_misses = 0
            if len(frame) > QUICK_FRAME_BYTES:
                self.look_at_clock()
            return True
        api_key, version, correlation_id = decode_request_header_start(frame)
        if self._staged and api_key != ApiKey.PRODUCE:
            self._flush_staged()  # whatever this one asks, what the client sent before is there
        if connection.unwritten_count and api_key != ApiKey.PRODUCE:
            return False
        service = self._services.get(api_key)
        if service is None:
            raise DecodeError(f"API key {api_key} is not served")
        api = service.api
        meters = self.meters[api_key]
        if not service.version_min <= version <= service.version_max:
            if api_key != ApiKey.API_VERSIONS:
                raise DecodeError(f"{api.name} v{version} is not served ({service.version_min} to {service.version_max} are)")
            context = RequestContext(connection, connection.enter(), api, 0, correlation_id, None, meters, self._burst_us)
            self._begin(service, service.handle, context, None)
            return True
        header, position = decode_request_header(frame, is_flexible=version >= api.flexible)
        handle = service.handle
        if connection.decoded is not None:
            request, connection.decoded = connection.decoded, None
            handle = service.handle_many or handle
        else:
            try:  # bytes after the request are passed over, as Kafka does: librdkafka's Metadata v9+ for all topics has three too many
                request, _ = decode_from(api.request, version, frame, position, Form.FEW)
            except ManyElements:
                self._keeps_received = True
                self.large.decode(connection, frame, api, version, position)
                return True
        meters.requests[version] += 1
        place = connection.enter()
        context = RequestContext(connection, place, api, version, correlation_id, header.client_id, meters, self._burst_us)
        self._run(service, handle, context, request)
        if type(request) is ProduceRequest:
            connection.learn_head(context, request, frame)
            if len(frame) > QUICK_FRAME_BYTES:
                self.look_at_clock()
        elif connection.is_crowded:
            self.is_burst_long = True
        else:
            self.look_at_clock()
        return True

    def _run(self, service: Service, handle: Handle, context: RequestContext, request: Any) -> None:
        if self.throttling.times_requests:
            self.throttling.run(context, lambda: self._begin(service, handle, context, request))
        else:
            self._begin(service, handle, context, request)

    def _begin(self, service: Service, handle: Handle, context: RequestContext, request: Any) -> None:
        result = handle(self._broker, context, request)
        if result is None:
            return
        if type(result) is CoroutineType:
            finish = _Finish(self, context)
            if not eager.run(result, finish) and not service.waits_for_others:
                finish.is_counted = True
                self.begin_work(1)
            return
        assert isinstance(result, Response), "a handler returns a response, a coroutine or None"
        context.reply(result)

    def stage(self, produce: StagedProduce) -> None:
        """The burst's logs will be flushed before this request is answered."""
        self._staged.append(produce)
        for partition, _, _ in produce.staged:
            self._dirty[partition] = None

    def end_burst(self) -> bool:
        """What is staged is written and answered; True when a write still needs the received bytes."""
        if self._staged:
            self._flush_staged()
        keeps, self._keeps_received = self._keeps_received, False
        return keeps

    def _flush_staged(self) -> None:
        """One write per touched log, then the answers."""
        staged, self._staged = self._staged, []
        dirty, self._dirty = self._dirty, {}
        flush = _flush(next(iter(dirty))) if len(dirty) == 1 else _flush_all(list(dirty))
        counted = 0

        def finished(failed: frozenset[Partition] | None, error: BaseException | None) -> None:
            if counted:
                self.end_work(counted)
            if error is not None:
                fail_loudly("produce", error)
                failed = frozenset(dirty)
            connection = staged[0].connection  # a burst is one connection's
            if counted:
                connection.gather_answers()
            for produce in staged:
                try:
                    produce.finish(failed or frozenset())
                except Exception as error:  # noqa: BLE001 - the others of the burst are answered all the same
                    fail(produce.context, error)
            if counted:
                connection.send_answers()
                connection.written(counted)

        if not eager.run(flush, finished):
            self._keeps_received = True
            counted = len(staged)
            self.begin_work(counted)
            staged[0].connection.unwritten_count += counted

    def begin_work(self, count: int) -> None:
        self.working_count += count
        if self.working_count >= self._requests_max and not self.is_held:
            self._hold(True)

    def end_work(self, count: int) -> None:
        self.working_count -= count
        if self.is_held and self.working_count <= self._requests_max // 2:
            self._hold(False)

    def _hold(self, is_held: bool) -> None:
        self.is_held = is_held
        self._broker.gate.hold(is_held)
        for connection in self.connections:
            connection.update_reading()


def _meters_of(service: Service) -> RequestMeters:
    return RequestMeters(service.version_max, has_error_code="error_code" in service.api.response.__struct_fields__)


class _Finish:
    """Answers when a handler's coroutine has ended. A failure that is not an answer costs the client its connection."""

    __slots__ = ("_context", "_router", "is_counted")

    def __init__(self, router: Router, context: RequestContext) -> None:
        self._router = router
        self._context = context
        self.is_counted = False

    def __call__(self, response: Response | None, error: BaseException | None) -> None:
        if self.is_counted:
            self._router.end_work(1)
        if error is not None:
            fail(self._context, error)
        elif response is not None:
            self._context.reply(response)


async def _flush(partition: Partition) -> frozenset[Partition]:
    """The partitions whose log failed. Whatever happens, no log keeps what was staged for this flush."""
    try:
        await partition.flush()
    except StorageError as error:
        log.error("log_append_failed", topic=partition.topic, partition=partition.index, error=error.message)
        return frozenset((partition,))
    except Exception as error:  # noqa: BLE001 - the other logs of the burst must be flushed before its memory is used again
        fail_loudly("produce", error)
        partition.fail()
        return frozenset((partition,))
    return frozenset()


async def _flush_all(partitions: list[Partition]) -> frozenset[Partition]:
    failed: frozenset[Partition] = frozenset()
    for partition in partitions:
        failed |= await _flush(partition)
    return failed

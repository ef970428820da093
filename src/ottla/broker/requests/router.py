"""From a frame to the service of its API, and to the gate (``gate.py``) before its handler.

What the broker does not serve is reported by ApiVersions; a client that asks all the same loses its connection, as with Kafka,
except for ApiVersions itself, which answers any version (KIP-511).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from ottla.broker.authorization import Authorizer
from ottla.broker.part import Part
from ottla.broker.requests.burst_timing import BurstTiming
from ottla.broker.requests.connection import CONNECTIONS, BrokerConnection
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.counted_errors import meters_of
from ottla.broker.requests.gate import Forward, Gate
from ottla.broker.requests.large import LargeMessages
from ottla.broker.requests.produce_burst import ProduceBurst
from ottla.broker.requests.refusals import Refusals
from ottla.broker.requests.service import Service, after
from ottla.broker.requests.throttling import Throttling
from ottla.broker.roles import Role
from ottla.errors import DecodeError
from ottla.messages.api_keys import ApiKey
from ottla.messages.headers import decode_request_header, decode_request_header_start
from ottla.messages.produce import ProduceRequest
from ottla.metrics import RequestMeters
from ottla.net.request_memory import RequestMemory
from ottla.ports import Connection, World
from ottla.security.principal import ANONYMOUS, Principal
from ottla.wire.compiler import decode_from
from ottla.wire.frame_memory import FrameMemory
from ottla.wire.generator import Form
from ottla.wire.primitives import ManyElements
from ottla.wire.schema import Response

_PRODUCE: Final = int(ApiKey.PRODUCE)
QUICK_FRAME_BYTES: Final = 1 << 15
"""A produce request up to this size takes a few milliseconds at most, whatever its records."""
UNTIMED_MAX: Final = 64
"""After so many quick produce requests a look at the clock is due, too: a burst may have thousands of them."""
LOOK_MS: Final = 1000


class Doorkeeper(Protocol):
    """The part that lets connections in."""

    def left(self, connection: BrokerConnection) -> None:
        """Notes that the connection has ended."""
        ...

    def hold(self, is_held: bool) -> None:
        """Lets no connection in while the broker has enough to do."""
        ...


class Router(Part):
    """The way from frames to the gate, for all connections of a node.

    ``forward`` passes a request on to the active controller, when that may be another node's; ``is_active`` says whether it is this node's.
    ``requests_max`` bounds the requests that the broker works on (``queued.max.requests``), ``request_bytes_max`` what they hold.

    Work is what waits for the disk; a fetch that waits for records and a member that waits for its group are none. Above
    the bound no socket is read, and no connection accepted, until half of it is done.
    """

    def __init__(
        self,
        world: World,
        services: Mapping[Role, Mapping[int, Service]],
        throttling: Throttling,
        authorizer: Authorizer,
        doorkeeper: Doorkeeper,
        *,
        forward: Forward | None,
        is_active: Callable[[], bool],
        frame_bytes_max: int,
        requests_max: int,
        request_bytes_max: int = -1,
    ) -> None:
        self._services = services
        self._authorizer = authorizer
        self._produce = services[Role.BROKER][ApiKey.PRODUCE]
        self._timers = world.timers
        self._clock = world.clock
        self.quotas = throttling
        self.topic_names: Mapping[bytes, str] = {}
        self._frame_bytes_max = frame_bytes_max
        self._requests_max = requests_max
        self._large = LargeMessages(self, world.timers)
        self.timing = BurstTiming(world.clock)
        self._keeps_received = False  # a decoder still needs the bytes that the burst received
        self.burst = ProduceBurst(self)
        self.meters = {key: _meters_of(service) for served in services.values() for key, service in served.items()}
        self.gate = Gate(throttling, self, forward)
        self._doorkeeper = doorkeeper
        self._is_active = is_active
        self.working_count = 0
        self.is_held = False
        self.connections: dict[BrokerConnection, None] = {}
        self.frame_memory = FrameMemory()
        self.refusals = Refusals(world.clock)
        self.request_memory = RequestMemory(
            bytes_max=request_bytes_max, frame_bytes_max=frame_bytes_max, now_ms=world.clock.monotonic_ms,
            on_short=self._look_at_memory, on_full=self._hold_or_not,
        )  # fmt: skip

    async def stop(self) -> None:
        """Ends every connection."""
        for connection in list(self.connections):
            connection.transport.close()

    def serve(self, services: Mapping[Role, Mapping[int, Service]]) -> None:
        """Serves these requests from now on, and no others; each of them was among those that the router was made with."""
        self._services = services

    def accept(self, transport: Connection, listener: str, role: Role = Role.BROKER) -> BrokerConnection:
        connection = BrokerConnection(self, transport, listener, role, frame_bytes_max=self._frame_bytes_max)
        self.introduce(connection, ANONYMOUS)
        connection.last_used_ms = self._clock.monotonic_ms()
        self.connections[connection] = None
        self.timing.share_among(len(self.connections))
        if CONNECTIONS.is_wanted:
            CONNECTIONS.log.debug("connection_opened", peer=connection.client_host, listener=listener)
        return connection

    def introduce(self, connection: BrokerConnection, principal: Principal) -> None:
        """Makes the connection's requests the principal's from now on."""
        connection.principal = principal
        connection.rights = self._authorizer.rights(principal, connection.client_host)
        connection.repeated = None

    def forget(self, connection: BrokerConnection) -> None:
        """Forgets the connection, which has ended."""
        del self.connections[connection]
        self.timing.share_among(len(self.connections))
        self._doorkeeper.left(connection)

    def begin_burst(self) -> int:
        return self.timing.begin()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._timers.call_later_ms(0, callback)

    def close_burst(self) -> None:
        self.timing.close()

    def end_large(self, connection: BrokerConnection) -> None:
        self._large.ended(connection)

    def reply_in_steps(self, context: RequestContext, response: Response) -> None:
        self._large.reply(context, response)

    def dispatch(self, connection: BrokerConnection, frame: memoryview) -> bool:
        """Starts the request; False when it has to wait for records that are being written. DecodeError ends the connection."""
        repeated = connection.repeated
        if repeated is not None and repeated.repeats(frame):  # most produce requests: here, since a call would make each dearer
            meters, version = repeated.meters, repeated.version
            count = meters.requests[version] = meters.requests[version] + 1
            place = connection.enter()
            client_id, correlation_id = repeated.client_id, repeated.correlation_id
            context = RequestContext(
                connection, place, repeated.api, version, correlation_id, client_id, meters, self.timing.began_us,
                repeated_answer=repeated.answer or repeated.learn_answer(),
            )  # fmt: skip
            produce = self._produce
            self.gate.enter(produce, produce.handle, context, repeated.request)
            repeated.release()
            connection.head_misses = 0
            if len(frame) > QUICK_FRAME_BYTES or not count % UNTIMED_MAX:
                self.timing.look_at_clock()
            return True
        api_key, version, correlation_id = decode_request_header_start(frame)
        if api_key != _PRODUCE:
            if self.burst.staged:
                self.burst.flush()  # whatever this one asks, what the client sent before is there
            if connection.unwritten_count:
                return False
        service = self._services[connection.role].get(api_key)
        if service is None:
            raise DecodeError(f"API key {api_key} is not served")
        api = service.api
        meters = self.meters[api_key]
        if not api.version_min <= version <= api.version_max:
            if api_key != ApiKey.API_VERSIONS:
                raise DecodeError(f"{api.name} v{version} is not served ({api.version_min} to {api.version_max} are)")
            context = RequestContext(connection, connection.enter(), api, 0, correlation_id, None, meters, self.timing.began_us)
            self.gate.enter(service, service.handle, context, None)
            return True
        header, position = decode_request_header(frame, is_flexible=version >= api.flexible)
        handle = service.handle
        kept = None  # to be passed on, if another node's controller decides, or does by the end
        forward = self.gate.forward
        if service.is_forwarded and forward is not None and connection.role is Role.BROKER:
            kept = bytes(frame)
            if not self._is_active() and service.first is not None:
                handle, kept = after(service.first, _passing_on(forward, kept)), None
            elif not self._is_active():
                meters.requests[version] += 1
                place = connection.enter()
                context = RequestContext(connection, place, api, version, correlation_id, header.client_id, meters, self.timing.began_us)
                forward(context, kept)
                return True
        if connection.decoded is not None:
            request, connection.decoded = connection.decoded, None
            handle = self._large.working(connection, service.handle_many or handle, waits_for_others=service.waits_for_others)
        else:
            try:  # bytes after the request are passed over, as Kafka does: librdkafka's Metadata v9+ for all topics has three too many
                request, _ = decode_from(api.request, version, frame, position, Form.FEW)
            except ManyElements:
                self._keeps_received = True
                self._large.decode(connection, frame, api, version, position)
                return True
        meters.requests[version] += 1
        place = connection.enter()
        context = RequestContext(connection, place, api, version, correlation_id, header.client_id, meters, self.timing.began_us)
        self.gate.enter(service, handle, context, request, kept)
        if type(request) is ProduceRequest:
            connection.learn_head(context, request, frame)
            if len(frame) > QUICK_FRAME_BYTES or not meters.requests[version] % UNTIMED_MAX:
                self.timing.look_at_clock()
        elif connection.is_crowded:
            self.timing.is_long = True
        else:
            self.timing.look_at_clock()
        return True

    def end_burst(self) -> bool:
        burst = self.burst
        if burst.staged:
            burst.flush()
        keeps = self._keeps_received or burst.keeps_received
        self._keeps_received = burst.keeps_received = False
        return keeps

    def begin_work(self, count: int) -> None:
        self.working_count += count
        if self.working_count >= self._requests_max and not self.is_held:
            self._hold_or_not()

    def end_work(self, count: int) -> None:
        self.working_count -= count
        if self.is_held and self.working_count <= self._requests_max // 2:
            self._hold_or_not()

    def _look_at_memory(self) -> None:
        """Looks every second while memory for requests is short."""
        self.request_memory.look()
        if self.request_memory.is_short:
            self._timers.call_later_ms(LOOK_MS, self._look_at_memory)

    def _hold_or_not(self) -> None:
        count_max = self._requests_max // 2 + 1 if self.is_held else self._requests_max
        is_held = self.working_count >= count_max or self.request_memory.is_full
        if is_held == self.is_held:
            return
        self.is_held = is_held
        self._doorkeeper.hold(is_held)
        for connection in self.connections:
            connection.update_reading()


def _passing_on(forward: Forward, frame: bytes) -> Callable[[Any, RequestContext, Any], Awaitable[None]]:
    async def pass_on(_: Any, context: RequestContext, request: Any) -> None:
        forward(context, frame)

    return pass_on


def _meters_of(service: Service) -> RequestMeters:
    return meters_of(service.api.response, service.version_max)

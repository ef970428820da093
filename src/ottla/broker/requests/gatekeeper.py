"""The broker's listeners, and who gets in through them (``net/admission.py`` has the limits and their meaning).

A listener whose new connections must wait is paused: they stay in the kernel's backlog and cost the broker nothing. While the
broker itself has more to do than it may (``queued.max.requests``), all listeners are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ottla.broker.authorization import Authorizer
from ottla.broker.part import Part
from ottla.broker.requests.candidate import Candidate
from ottla.broker.requests.connection import BrokerConnection, Dispatcher
from ottla.broker.requests.doorstep import Doorstep
from ottla.broker.requests.expired_certificates import WAY_OUT, not_valid
from ottla.broker.requests.gate import Forward
from ottla.broker.requests.key_sets import KeySet
from ottla.broker.requests.listener_security import Protocol, enabled_mechanisms, oauth_urls, read_tls, used_protocols
from ottla.broker.requests.listeners import ListenerAddress
from ottla.broker.requests.named_hosts import OVERRIDES, NamedHosts
from ottla.broker.requests.router import Router
from ottla.broker.requests.service import Service
from ottla.broker.requests.threshold import Threshold
from ottla.broker.requests.throttling import Throttling
from ottla.broker.roles import Role
from ottla.broker.tasks import eager
from ottla.config import BrokerConfig
from ottla.config.forms import connections_by_host
from ottla.loggers import get_logger
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import CONNECTION_RATE, QuotaEntity
from ottla.net.admission import UNLIMITED, Admission, AdmissionLimits, ListenerLimits
from ottla.ports import BACKLOG, Connection, ConnectionHandler, Listener, TimerHandle, World
from ottla.security.scram import ScramMechanism
from ottla.security.validity import ends_ms
from ottla.tls import TlsServer

log = get_logger(__name__)


DECOY_BYTES: Final = 32
SEND_BUFFER_BYTES: Final = 320 << 10
"""More leaves the processor's caches before the reader takes it: cached fetches of a mebibyte ran at 2.4 GB/s with what the system
gives, at 3.2 to 4.0 with 192 to 384 KiB, at 1.9 with Kafka's 100 KiB (docs/performance.md)."""


class Gatekeeper(Part):
    """The keeper of all listeners of a node. It makes the router, hands it the connections that are let in, and reports their ends."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        services: Mapping[Role, Mapping[int, Service]],
        throttling: Throttling,
        authorizer: Authorizer,
        *,
        forward: Forward | None,
        is_active: Callable[[], bool],
    ) -> None:
        self._world = world
        self._config = config
        self.router = Router(
            world,
            services,
            throttling,
            authorizer,
            self,
            forward=forward,
            is_active=is_active,
            frame_bytes_max=config["socket.request.max.bytes"],
            requests_max=config["queued.max.requests"],
            request_bytes_max=config["queued.max.request.bytes"],
        )
        self.threshold = Threshold(self.router, world, config, self._dispatcher)
        self._guarded: set[str] = set()
        self._key_sets: dict[str, KeySet] = {}  # by listener
        self._needs_image: set[str] = set()  # listeners whose users are in the metadata
        self._listeners: dict[str, Listener] = {}
        self._admission = Admission(AdmissionLimits(), [])
        self._hosts = NamedHosts(world.network, config)
        self._timer: TimerHandle | None = None
        self._followed: Mapping[QuotaEntity, Mapping[str, float]] | None = None
        self._serving: set[Role] = set()
        self._knows_users = True
        self._roles: dict[str, Role] = {}  # of the listeners
        self._doorstep: Doorstep | None = None  # while brokers' clients wait outside of an open door
        self._is_held = False
        self.refused_count = 0
        self.servers: dict[str, TlsServer] = {}
        """Of the listeners that speak TLS."""
        self._shut: set[str] = set()  # listeners whose stores could not be read before they were opened

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Each listener's host and port, as bound."""
        return {name: listener.address for name, listener in self._listeners.items()}

    @property
    def is_open(self) -> bool:
        return self._serving == set(Role)

    @property
    def connection_counts(self) -> dict[str, int]:
        """Open connections by listener."""
        return {name: self._admission.count_of(name) for name in self._listeners}

    async def bind(self, addresses: Iterable[ListenerAddress]) -> None:
        """Binds the ports; no connection is accepted before ``open``.

        OSError when one is in use, INVALID_CONFIG for a bad limit, or for stores that cannot be used.
        """
        addresses = list(addresses)
        await self._hosts.look_up()
        names = [address.name for address in addresses]
        self._admission = Admission(admission_limits(self._config, names, self._hosts), names)
        backlog = self._given("socket.listen.backlog.size", BACKLOG)  # Kafka's 50 are few for one loop that does it all
        send_buffer_bytes = self._given("socket.send.buffer.bytes", SEND_BUFFER_BYTES)
        receive_buffer_bytes = self._given("socket.receive.buffer.bytes", -1)
        used = used_protocols(self._config, names)
        self.servers = await read_tls(self._world, self._config, used)
        for name, fault in not_valid(self.servers, self._world.clock.now_ms()):
            log.warning("certificate_not_valid", listener=name, reason=f"the certificate {fault}", way_out=WAY_OUT)
        guarded = {name: protocol for name, protocol in used.items() if protocol is not Protocol.PLAINTEXT}
        decoy_key = self._world.secret_bytes(DECOY_BYTES) if guarded else b""
        await self._read_key_sets(guarded)
        for name, protocol in guarded.items():
            self.threshold.guard(name, protocol, decoy_key, self._key_sets.get(name))
        self._guarded = set(guarded)
        self._needs_image = {name for name in guarded if any(map(ScramMechanism.named, enabled_mechanisms(self._config, name)))}
        for address in addresses:
            listener = await self._world.network.listen(
                address.host, address.port, self._acceptor(address), backlog=backlog, send_buffer_bytes=send_buffer_bytes,
                receive_buffer_bytes=receive_buffer_bytes, tls=self.servers.get(address.name), on_tls=self.threshold.on_tls,
            )  # fmt: skip
            listener.pause()
            self._listeners[address.name] = listener
            self._roles[address.name] = address.role

    async def _read_key_sets(self, used: Mapping[str, Protocol]) -> None:
        """Reads the key sets of the listeners that offer OAUTHBEARER; one set for each URL."""
        by_url: dict[str, KeySet] = {}
        for name, url in oauth_urls(self._config, used).items():
            if url not in by_url:
                by_url[url] = KeySet(self._world, self._config, url)
                await by_url[url].begin()
            self._key_sets[name] = by_url[url]

    def _given(self, key: str, otherwise: int) -> int:
        """Returns what the operator says; without that, not Kafka's default but what was measured to serve this broker."""
        value: int = self._config[key]
        return value if self._config.is_given(key) else otherwise

    @property
    def certificate_ends_ms(self) -> dict[str, int]:
        """Wall-clock milliseconds, by listener that speaks TLS."""
        return {name: ends for name, tls in self.servers.items() if (ends := ends_ms(tls.keys.chain)) is not None}

    def is_serving(self, listener: str) -> bool:
        """True when clients have been let in there."""
        return self._roles.get(listener) in self._serving

    def use_stores(self, listener: str, tls: TlsServer) -> None:
        """Gives connections from now on these keys and certificates."""
        self.servers[listener] = tls
        self._listeners[listener].set_tls(tls)
        self._shut.discard(listener)
        self._let_in()

    def keep_stores(self, listener: str) -> None:
        """Keeps the listener shut where the stores that were set cannot be used: the old ones might let in clients that those refuse."""
        if not self.is_serving(listener):
            self._shut.add(listener)

    async def start(self) -> None:
        """Lets clients in."""
        self.open()

    def open(self, *roles: Role, knows_users: bool = True) -> None:
        """Lets connections in; with ``roles``, on the listeners of these roles.

        A listener whose users are in the metadata stays closed as long as they are not known: every client would be refused.
        """
        self._serving.update(roles or Role)
        self._knows_users = knows_users
        if self._doorstep is not None and Role.BROKER in self._serving:
            self._doorstep.open()
            self._doorstep = None
        self._let_in()

    def say_who(self, incarnation_id: bytes) -> None:
        """Answers those who connect to brokers' listeners which process this is, and nothing else, until they are let in.

        A listener whose users are in the metadata stays closed: who they are is not known yet.
        """
        if self._doorstep is None and Role.BROKER not in self._serving:
            self._doorstep = Doorstep(self.router, incarnation_id)
            self._let_in()

    async def stop(self) -> None:
        """Stops accepting; open connections stay."""
        self._serving.clear()
        self.threshold.stop()
        for key_set in self._key_sets.values():
            key_set.stop()
        if self._timer is not None:
            self._timer.cancel()
        for listener in self._listeners.values():
            await listener.close()

    def hold(self, is_held: bool) -> None:
        """Accepts no connection while held."""
        self._is_held = is_held
        self._let_in()

    def configure(self) -> None:
        """Applies the configuration's limits, which have changed; limits of new names apply once their addresses have been found."""
        self._use_limits()
        if self._hosts.is_behind:
            eager.run(self._hosts.look_up(), self._looked_up)

    def _looked_up(self, _: None, error: BaseException | None) -> None:
        if error is None:  # a stop ends a look-up that is under way
            self._use_limits()

    def _use_limits(self) -> None:
        self._admission.set_limits(admission_limits(self._config, list(self._listeners), self._hosts))
        self._let_in()

    async def on_image(self, delta: ImageDelta) -> None:
        """Applies the image's quotas of addresses."""
        image = delta.new
        self.threshold.follow(image)
        self.router.topic_names = image.topic_names
        if image.quotas is self._followed:
            return
        self._followed = image.quotas
        rates = {entity[0][1]: values[CONNECTION_RATE] for entity, values in image.quotas.items() if CONNECTION_RATE in values}
        self._admission.set_ip_rates(rates)

    def left(self, connection: BrokerConnection) -> None:
        """Notes that a connection has ended: one that waited for its place is accepted."""
        self.threshold.gone(connection)
        self._admission.left(connection.listener, connection.client_host)
        self._let_in()

    def _acceptor(self, listener: ListenerAddress) -> Callable[[Connection], ConnectionHandler]:
        name = listener.name

        def accept(connection: Connection) -> ConnectionHandler:
            handler = self.router.accept(connection, name, listener.role)
            is_welcome = self._admission.admitted(name, handler.client_host, self._world.clock.monotonic_ms())
            if not is_welcome:
                self.refused_count += 1
                self.threshold.note_refused(handler, "max.connections.per.ip")
                connection.abort()
            else:
                if name not in self._guarded:
                    self._make_room(besides=name)
                pause_ms = self._admission.ip_pause_ms(handler.client_host, self._world.clock.monotonic_ms())
                if pause_ms:
                    self.refused_count += 1
                    self.threshold.note_refused(handler, CONNECTION_RATE)
                    self.threshold.turn_away(handler)
                    self._world.timers.call_later_ms(pause_ms, connection.close)
                elif name in self._guarded:
                    self.threshold.enter(handler)
                elif self._doorstep is not None and listener.role is Role.BROKER:
                    self._doorstep.enter(handler)
            self._let_in()
            return handler

        return accept

    def _dispatcher(self, connection: BrokerConnection) -> Dispatcher:
        """Returns the dispatcher of a connection that has authenticated."""
        self._make_room(besides=connection.listener)
        if self._doorstep is None or connection.role is not Role.BROKER:
            return self.router
        self._doorstep.enter(connection)
        return self._doorstep

    def _make_room(self, *, besides: str) -> None:
        """Ends a connection of another listener, one that has not authenticated if any, for one of the protected listener."""
        if not self._admission.is_above_maximum():
            return
        others = [connection for connection in self.router.connections if connection.listener != besides]
        if others:
            min(others, key=lambda other: (not isinstance(other.pipeline, Candidate), other.last_used_ms)).transport.close()

    def _let_in(self) -> None:
        """Opens or pauses each listener, as the limits have it; a timer looks again when only the rate holds one up."""
        now_ms = self._world.clock.monotonic_ms()
        wait_ms = 0
        for name, listener in self._listeners.items():
            role = self._roles[name]
            needs_users = name in self._needs_image
            is_served = role in self._serving and (self._knows_users or not needs_users)
            is_served = is_served or (self._doorstep is not None and role is Role.BROKER and not needs_users)
            may_come = is_served and not self._is_held and name not in self._shut and self._admission.has_room(name)
            listener_wait_ms = self._admission.wait_ms(name, now_ms) if may_come else 0
            if may_come and listener_wait_ms == 0:
                listener.resume()
            else:
                listener.pause()
                wait_ms = max(wait_ms, listener_wait_ms)
        if wait_ms and self._timer is None:
            self._timer = self._world.timers.call_later_ms(wait_ms, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._let_in()


def admission_limits(config: BrokerConfig, listeners: Iterable[str], hosts: NamedHosts) -> AdmissionLimits:
    """Returns what the configuration says. 0 for all addresses is passed over: no client could connect to take it back."""
    overrides = {address: count for host, count in connections_by_host(config[OVERRIDES]).items() for address in hosts.addresses_of(host)}
    return AdmissionLimits(
        connections=config["max.connections"],
        creation_rate=config["max.connection.creation.rate"],
        per_ip=config["max.connections.per.ip"] if overrides else config["max.connections.per.ip"] or UNLIMITED,
        per_ip_overrides=overrides,
        by_listener={
            name: ListenerLimits(
                connections=_of_listener(config, name, "max.connections"),
                creation_rate=_of_listener(config, name, "max.connection.creation.rate"),
            )
            for name in listeners
        },
        protected_listener=config["inter.broker.listener.name"],
    )


def _of_listener(config: BrokerConfig, listener: str, key: str) -> int:
    value: int | None = config.of_listener(listener, key)
    return UNLIMITED if value is None else value

"""Connections that have not shown yet who they are: a dispatcher of their own, so that the router never sees a request of theirs.

What is taken of them, and what follows, is the table of ``security/exchange.py``. Bounds: frames of ``sasl.server.max.receive.size``;
``ottla.authentication.timeout.ms`` from accept to authenticated, whatever is sent meanwhile; so many of them as
``ottla.unauthenticated.connections.max`` says, which hold ``HELD_BYTES_MAX`` together. Above either bound the connection that has waited
longest is closed. A client that fails is answered after ``connection.failed.authentication.delay.ms``, and is not read meanwhile.

A session that has expired is on the threshold again, and so is one while it authenticates again; what it had asked is answered in order.
Source: KIP-43, KIP-152, KIP-306 (delay), KIP-368 (sessions).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ottla.broker.requests.candidate import Candidate, Tally
from ottla.broker.requests.connection import BrokerConnection, Dispatcher
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.key_sets import KeySet
from ottla.broker.requests.listener_security import Protocol, SaslOffer, get_of
from ottla.broker.requests.router import Router
from ottla.config import BrokerConfig
from ottla.config.principal_rules import RULES, PrincipalRules, why_unnamed
from ottla.errors import ErrorCode
from ottla.loggers import get_logger
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.metadata_records import DelegationTokenRecord
from ottla.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage
from ottla.net.response_queue import ResponseSlot
from ottla.ports import Connection, TimerHandle, World
from ottla.security.exchange import Exchange, Session
from ottla.security.principal import ANONYMOUS, USER, Principal
from ottla.security.tokens import TokenKeys, end_ms
from ottla.tls import TlsError, TlsPeer

log = get_logger(__name__)

TIMEOUT: Final = "ottla.authentication.timeout.ms"
COUNT_MAX: Final = "ottla.unauthenticated.connections.max"
HELD_BYTES_MAX: Final = 16 << 20
"""Of frames that are being received. A token has some kilobytes."""
AGAIN_MS: Final = 1_000
AGAIN_STEPS: Final = 10
"""In which the time to authenticate again is counted."""
APART_MS: Final = 25
"""Between earlier answers and that of a handshake in an open session over TLS, at least. A Java client that finds both in what it has
decrypted sees the second one when the socket has more for it, and not before: that is when its connection ends.
"""
SALT_KEY_BYTES: Final = 32
REPORTED_MS: Final = 60_000
"""A failed handshake of an address is logged once in that time."""
ADDRESSES_MAX: Final = 10_000


class _Standing(Struct):
    """A connection that has authenticated for some time."""

    session: Session
    timer: TimerHandle | None


class _NoRights:
    """The rights of a connection that has not authenticated: none, whatever the authorizer grants to the anonymous."""

    __slots__ = ()
    version = None

    def allowed(self, resource_type: ResourceType, name: str) -> int:
        return 0

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return False

    def may_anywhere(self, operation: Operation, resource_type: ResourceType) -> bool:
        return False


_NONE: Final = _NoRights()


class Threshold:
    """The threshold of one node. ``dispatcher`` starts the requests of connections that have authenticated."""

    def __init__(self, router: Router, world: World, config: BrokerConfig, dispatcher: Callable[[BrokerConnection], Dispatcher]) -> None:
        self.router = router
        self.tallies: dict[str, Tally] = {}  # by listener, of those that are guarded
        self.image: ClusterImage = EMPTY_IMAGE
        secret = config["delegation.token.secret.key"]
        self.token_keys: Final = TokenKeys(secret, b"" if secret is None else world.secret_bytes(SALT_KEY_BYTES))
        self._world = world
        self._config = config
        self._dispatcher = dispatcher
        self._waiting: dict[Candidate, int] = {}  # and until when, the first of them first
        self._held: dict[Candidate, int] = {}  # bytes of frames that are being received
        self._held_bytes = 0
        self._again: dict[Candidate, TimerHandle] = {}  # sessions that authenticate again, and when their time for it is over
        self._standings: dict[BrokerConnection, _Standing] = {}
        self._offers: dict[str, SaslOffer] = {}
        self._rules: dict[str, PrincipalRules] = {}  # of listeners whose clients are who their certificates say
        self._protocols: dict[str, Protocol] = {}
        self._handshaking: dict[Connection, Candidate] = {}  # in TLS
        self._reported_ms: dict[str, int] = {}  # when a failed handshake of the address was logged last
        self._timer: TimerHandle | None = None

    @property
    def tally(self) -> Tally:
        """Of all listeners."""
        return sum(self.tallies.values(), Tally())

    def tally_of(self, listener: str) -> Tally:
        return self.tallies[listener]

    @property
    def waiting_count(self) -> int:
        """Connections that have not authenticated."""
        return len(self._waiting)

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def protocol_of(self, listener: str) -> Protocol:
        """Returns the listener's protocol."""
        return self._protocols.get(listener, Protocol.PLAINTEXT)

    def follow(self, image: ClusterImage) -> None:
        """Takes users and tokens from the image from now on; ends the sessions of tokens that are no longer valid."""
        before, self.image = self.image, image
        if image.delegation_tokens is before.delegation_tokens:
            return
        for connection, standing in list(self._standings.items()):
            token_id = standing.session.token_id
            if token_id and image.delegation_tokens.get(token_id) is not before.delegation_tokens.get(token_id):
                self._shorten(connection, standing, image.delegation_tokens.get(token_id))

    def _shorten(self, connection: BrokerConnection, standing: _Standing, token: DelegationTokenRecord | None) -> None:
        """Shortens the session to its token's life; after a renewal another session is needed to last longer."""
        now_ms, session = self.now_ms(), standing.session
        left_ms = 0 if token is None else max(0, end_ms(token) - self._world.clock.now_ms())
        if session.ends_ms is not None and session.ends_ms <= now_ms + left_ms:
            return
        self._forget(connection)
        self._stand(connection, replace(session, ends_ms=now_ms + left_ms))

    def guard(self, listener: str, protocol: Protocol, decoy_key: bytes, key_set: KeySet | None = None) -> None:
        """Guards the listener: its connections come to the threshold first."""
        self._protocols[listener] = protocol
        self.tallies[listener] = Tally()
        if protocol.has_sasl:
            self._offers[listener] = SaslOffer(self._config, listener, lambda: self.image, self._world, decoy_key, self.token_keys, key_set)
        else:
            self._rules[listener] = PrincipalRules.parse(get_of(self._config, listener, protocol)(RULES))

    def enter(self, connection: BrokerConnection) -> None:
        """Lets a new connection wait here, to a listener that is guarded."""
        offer = self._offers.get(connection.listener)
        candidate = Candidate(self, connection, None if offer is None else Exchange(offer))
        if self._protocols[connection.listener].has_tls:
            self._handshaking[connection.transport] = candidate
        connection.pipeline, connection.rights = candidate, _NONE
        connection.limit_frames(self._config["sasl.server.max.receive.size"])
        self._waiting[candidate] = self.now_ms() + self._config[TIMEOUT]
        if len(self._waiting) > self._config[COUNT_MAX]:
            self._close_first(besides=candidate)
        self._look_later()

    def turn_away(self, connection: BrokerConnection) -> None:
        """Lets nothing of the connection in, which will be closed; it has no place among those that wait here."""
        if connection.listener in self._protocols:
            connection.pipeline, connection.rights = Candidate(self, connection, None), _NONE
        connection.transport.turn_away()
        connection.mute_for_good()

    def now_ms(self) -> int:
        return self._world.clock.monotonic_ms()

    # -- of candidates

    def held(self, candidate: Candidate, count: int) -> None:
        """Notes that so many bytes of a frame are there."""
        before = self._held.pop(candidate, 0)
        if count:
            self._held[candidate] = count
        self._held_bytes += count - before
        while self._held_bytes > HELD_BYTES_MAX and self._close_first(besides=candidate):
            pass

    def left(self, candidate: Candidate) -> None:
        """Notes that it is no longer a candidate."""
        self._waiting.pop(candidate, None)
        self._handshaking.pop(candidate.connection.transport, None)
        self._end_deadline(candidate)
        self.held(candidate, 0)

    def passed(self, candidate: Candidate, session: Session) -> None:
        """Starts the connection's requests from now on, as its principal's."""
        connection = candidate.connection
        self.left(candidate)
        tally = self.tallies[connection.listener]
        if candidate.is_again:
            tally.succeeded_again += 1
        else:
            tally.succeeded += 1
            tally.without_session_end += session.ends_ms is None
            connection.limit_frames(self._config["socket.request.max.bytes"])
        self._forget(connection)
        self._stand(connection, session)
        self.router.introduce(connection, session.principal)
        connection.pipeline = self._dispatcher(connection)
        log.debug("connection_authenticated", listener=connection.listener, peer=connection.client_host, principal=str(session.principal))

    def on_tls(self, transport: Connection, peer: TlsPeer | TlsError) -> None:
        """Notes that the connection's handshake is done, or has failed; an ``OnTls``."""
        candidate = self._handshaking.pop(transport, None)
        if candidate is None:
            return
        connection = candidate.connection
        if isinstance(peer, TlsError):
            self._note_failed_handshake(connection, str(peer))
        elif (rules := self._rules.get(connection.listener)) is not None:
            name = ANONYMOUS.name if peer.subject is None else rules.name_of(peer.subject)
            if not name:
                self._note_failed_handshake(connection, why_unnamed(peer.subject))
                connection.transport.abort()
                return
            self.tallies[connection.listener].succeeded += 1
            self.left(candidate)
            connection.limit_frames(self._config["socket.request.max.bytes"])
            self.router.introduce(connection, Principal(USER, name))
            connection.pipeline = self._dispatcher(connection)

    def _note_failed_handshake(self, connection: BrokerConnection, reason: str) -> None:
        self.tallies[connection.listener].failed += 1
        now_ms, address = self.now_ms(), connection.client_host
        if now_ms - self._reported_ms.get(address, -REPORTED_MS) >= REPORTED_MS:
            if len(self._reported_ms) >= ADDRESSES_MAX:
                self._reported_ms.clear()
            self._reported_ms[address] = now_ms
            if self.router.refusals.take("tls_handshake_failed", address):
                log.info("tls_handshake_failed", listener=connection.listener, peer=address, reason=reason)

    def failed(self, candidate: Candidate, reason: str, end: Callable[[], None]) -> None:
        """Calls ``end``, which answers, and ends the connection, when the delay is over."""
        connection = candidate.connection
        tally = self.tallies[connection.listener]
        if candidate.is_again:
            tally.failed_again += 1
        else:
            tally.failed += 1
        if self.router.refusals.take("authentication_failed", connection.client_host):
            log.info(
                "authentication_failed", listener=connection.listener, peer=connection.client_host, mechanism=candidate.mechanism,
                reason=reason,
            )  # fmt: skip
        self._end_deadline(candidate)  # it is answered, and closed, in time
        connection.mute_for_good()
        self._world.timers.call_later_ms(self._config["connection.failed.authentication.delay.ms"], end)

    # -- of sessions

    def handshake_again(self, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse | None:
        """Lets the session authenticate again, if it may; ILLEGAL_SASL_STATE otherwise."""
        connection = context.connection
        standing = self._standings.get(connection) if isinstance(connection, BrokerConnection) else None
        now_ms = self.now_ms()
        if standing is None or not standing.session.may_begin_again(now_ms):
            return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
        assert isinstance(connection, BrokerConnection), "it has a session"
        candidate = Candidate(self, connection, Exchange(self._offers[connection.listener], standing.session, again_ms=now_ms))
        connection.pipeline = candidate
        connection.hold()  # what the burst has of later requests is for the candidate
        if self.protocol_of(connection.listener).has_tls:
            self._begin_apart(candidate, context, request)
            return None
        self.router.call_soon(connection.release)
        candidate.on_handshake(request.mechanism, context.version, context.reply)
        return None

    def _begin_apart(self, candidate: Candidate, context: RequestContext, request: SaslHandshakeRequest) -> None:
        """Answers the handshake once all earlier answers have left, ``APART_MS`` ago at least. The client's time for it counts from now."""
        connection = candidate.connection
        self.begun_again(candidate, context.place)

        def look(*, had_left: bool) -> None:
            if connection.transport.is_closed:
                return
            have_left = connection.has_sent_all_before(context.place)
            if had_left and have_left:
                candidate.on_handshake(request.mechanism, context.version, context.reply)
                connection.release()
            else:
                self._world.timers.call_later_ms(APART_MS, lambda: look(had_left=have_left))

        look(had_left=False)

    def begun_again(self, candidate: Candidate, handshake: ResponseSlot | None = None) -> None:
        """Notes that its session authenticates again from now on, or from when that was noted; it has as much time as a new connection.

        Not counted is the time in which this broker keeps it waiting: for an answer to what it asked before ``handshake``, or because its
        client is above a quota.
        """
        if candidate not in self._again:
            self._count_down(candidate, handshake, AGAIN_STEPS)

    def _count_down(self, candidate: Candidate, handshake: ResponseSlot | None, steps: int) -> None:
        def step() -> None:
            left = steps if candidate.connection.is_kept_waiting(handshake) else steps - 1
            if left > 0:
                self._count_down(candidate, handshake, left)
            else:
                candidate.close_overdue()

        self._again[candidate] = self._world.timers.call_later_ms(max(1, self._config[TIMEOUT] // AGAIN_STEPS), step)

    def _end_deadline(self, candidate: Candidate) -> None:
        timer = self._again.pop(candidate, None)
        if timer is not None:
            timer.cancel()

    def gone(self, connection: BrokerConnection) -> None:
        """Forgets the connection, which has ended."""
        self._forget(connection)

    def _forget(self, connection: BrokerConnection) -> None:
        standing = self._standings.pop(connection, None)
        if standing is not None and standing.timer is not None:
            standing.timer.cancel()

    def _stand(self, connection: BrokerConnection, session: Session) -> None:
        standing = self._standings[connection] = _Standing(session, None)
        left_ms = None if session.ends_ms is None else session.ends_ms - self.now_ms()
        if left_ms is not None and left_ms > 0:
            standing.timer = self._world.timers.call_later_ms(left_ms, lambda: self._expire(connection))
        elif left_ms is not None:
            self._expire(connection)

    def _expire(self, connection: BrokerConnection) -> None:
        """Expires the session: nothing but a handshake is taken from now on."""
        standing = self._standings[connection]
        if isinstance(connection.pipeline, Candidate):  # it authenticates again just now
            standing.timer = self._world.timers.call_later_ms(AGAIN_MS, lambda: self._expire(connection))
            return
        connection.pipeline = Candidate(self, connection, Exchange(self._offers[connection.listener], standing.session, is_expired=True))

    # -- of those who wait

    def _close_first(self, *, besides: Candidate) -> bool:
        """Closes the first other one; returns whether there was one."""
        first = next((waiting for waiting in self._waiting if waiting is not besides), None)
        if first is not None:
            self.tallies[first.connection.listener].crowded_out += 1
            self._close(first, "too many connections that have not authenticated")
        return first is not None

    def _close(self, candidate: Candidate, reason: str) -> None:
        connection = candidate.connection
        self.note_refused(connection, reason)
        self.left(candidate)
        connection.transport.abort()

    def note_refused(self, connection: BrokerConnection, reason: str) -> None:
        """Logs that the connection is not let in, unless the log has enough of its address."""
        if self.router.refusals.take("connection_refused", connection.client_host):
            log.info("connection_refused", listener=connection.listener, peer=connection.client_host, reason=reason)

    def _look_later(self) -> None:
        if self._timer is None and self._waiting:
            deadline_ms = next(iter(self._waiting.values()))
            self._timer = self._world.timers.call_later_ms(max(0, deadline_ms - self.now_ms()), self._look)

    def _look(self) -> None:
        """Closes the connections whose time is over."""
        self._timer = None
        now_ms = self.now_ms()
        while self._waiting:
            candidate, deadline_ms = next(iter(self._waiting.items()))
            if deadline_ms > now_ms:
                break
            self.tallies[candidate.connection.listener].overdue += 1
            self._close(candidate, f"not authenticated within {self._config[TIMEOUT]} ms")
        self._look_later()

    def stop(self) -> None:
        """Stops all timers."""
        if self._timer is not None:
            self._timer.cancel()
        for candidate in list(self._again):
            self._end_deadline(candidate)
        for connection in list(self._standings):
            self._forget(connection)

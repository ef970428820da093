"""How this node makes itself known to others: TLS, and SASL before the first request, below what speaks to them.

``Introduced`` is a ``ports.Network`` whose connections have shown who they are before their handlers see a byte; what a handler sends
meanwhile waits. Peers, probes and sentinels use it and know nothing of it. A refusal is an OSError and never a ``ConnectionRefusedError``:
it is no evidence that a process has died, nor that it lives. A session that ends some time has its connection closed before that, in order.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ottla.broker.peers.connection import PeerConnection
from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.messages.in_flight import InFlight
from ottla.messages.registry import API_OF_REQUEST
from ottla.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.net.passing import PassingConnection, PassingNetwork
from ottla.ports import Buffer, Connection, ConnectionHandler, FileRegion, TimerHandle, World
from ottla.security.client_exchange import ClientExchange, Credentials, OAuthCredentials
from ottla.security.mechanism import Refusal
from ottla.tls import TlsClient
from ottla.wire.frames import FrameCutter
from ottla.wire.schema import Request

log = get_logger(__name__)

NONCE_BYTES: Final = 18
ANSWER_BYTES_MAX: Final = 1 << 16
SHARE_OF_SESSION: Final = 0.9
TOLD_MS: Final = 10_000
TOLD_MAX: Final = 1_000


class IntroductionError(OSError):
    """The other node has not let this one in, or is not whom it should be."""


@dataclass(slots=True, eq=False)
class Introduction:
    """The introduction to nodes of one kind: nothing where they listen in plain text. A new ``tls`` holds for later connections."""

    tls: TlsClient | None = None
    credentials: Credentials | OAuthCredentials | None = None
    listener: str | None = None
    """That of the other nodes, and of this one if it has it, whose settings these are."""
    changed: Callable[[], Credentials | None] = lambda: None
    """Returns the name and the password that were set since the start; None while the ones of the start hold.

    Of the two that is used which was not refused last.
    """

    def over(self, world: World) -> World:
        """Returns the world in which connections are made so."""
        if self.tls is None and self.credentials is None:
            return world
        return replace(world, network=Introduced(world, self))


PLAIN_INTRODUCTION: Final = Introduction()


class Introductions(Struct, frozen=True):
    """The introductions of one node: to brokers, and to controllers."""

    brokers: Introduction = PLAIN_INTRODUCTION
    controllers: Introduction = PLAIN_INTRODUCTION


UNKNOWN_EVERYWHERE: Final = Introductions()
"""Every node listens in plain text, and asks for no credentials."""


class Introduced(PassingNetwork):
    """The network of a node that makes itself known."""

    def __init__(self, world: World, introduction: Introduction) -> None:
        super().__init__(world.network)
        self._world = world
        self._introduction = introduction
        self._refused: Credentials | None = None  # set since the start, and not let in
        self._told_ms: dict[tuple[str, int, str, str], int] = {}  # when the log had it

    async def connect(
        self,
        host: str,
        port: int,
        make_handler: Callable[[Connection], ConnectionHandler],
        *,
        receive_buffer_bytes: int = -1,
        tls: TlsClient | None = None,
    ) -> Connection:
        """Besides what is raised anyway, IntroductionError when the other node refuses this one."""
        introduction = self._introduction
        changed = introduction.changed()
        credentials = introduction.credentials if changed is None or changed is self._refused else changed
        if credentials is None:
            return await self._network.connect(
                host, port, make_handler, receive_buffer_bytes=receive_buffer_bytes, tls=tls or introduction.tls
            )
        made: list[_Introducing] = []

        def make(transport: Connection) -> ConnectionHandler:
            made.append(_Introducing(self._world, transport, credentials, make_handler))
            if isinstance(credentials, Credentials):
                made[0].begin()
            return made[0]

        await self._network.connect(host, port, make, receive_buffer_bytes=receive_buffer_bytes, tls=tls or introduction.tls)
        try:
            if isinstance(credentials, OAuthCredentials):  # now, for a port that refuses is evidence, whatever the issuer does
                await made[0].begin_with_token(credentials)
            await made[0].done
        except IntroductionError as error:
            self._tell(host, port, credentials, str(error))
            if made[0].is_refused:  # by its other login the node learns of a newer one
                self._refused = changed if credentials is changed else None
            raise
        finally:
            if not made[0].is_introduced:
                made[0].abort()
        return made[0]

    def _tell(self, host: str, port: int, credentials: Credentials | OAuthCredentials, reason: str) -> None:
        """Logs that the node is not let in, which it tries many times a second; the same is not said again within ``TOLD_MS``."""
        key, now_ms = (host, port, credentials.name, reason), self._world.clock.monotonic_ms()
        if now_ms - self._told_ms.get(key, -TOLD_MS) < TOLD_MS:
            return
        if len(self._told_ms) >= TOLD_MAX:
            self._told_ms.clear()
        self._told_ms[key] = now_ms
        log.warning("not_introduced", host=host, port=port, mechanism=credentials.mechanism, user=credentials.name, reason=reason)


class _Introducing(PassingConnection):
    """One connection: to its handler a ``Connection``, to the transport a ``ConnectionHandler``."""

    def __init__(
        self,
        world: World,
        transport: Connection,
        credentials: Credentials | OAuthCredentials,
        make_handler: Callable[[Connection], ConnectionHandler],
    ) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_introduced = False
        self.is_refused = False
        self._world = world
        super().__init__(transport)
        self._mechanism = credentials.mechanism
        self._credentials = credentials
        self._cutter = FrameCutter(ANSWER_BYTES_MAX)
        self._in_flight: InFlight[ClientExchange] = InFlight("introduction")
        self._waiting: list[Buffer | FileRegion] = []
        self._ending: TimerHandle | None = None  # before the session does
        self._handler = make_handler(self)

    # -- the introduction

    def begin(self) -> None:
        exchange = self._credentials.begin(lambda: self._world.secret_bytes(NONCE_BYTES).hex())
        self._ask(SaslHandshakeRequest(self._mechanism), exchange)

    async def begin_with_token(self, credentials: OAuthCredentials) -> None:
        """Starts with a token; IntroductionError where there is none. Each connection has the exchange of its own token."""
        try:
            found = credentials.asks()
            credentials.take(await found if inspect.isawaitable(found) else found)
        except (KafkaError, Refusal, OSError) as error:
            raise IntroductionError(f"this node has no token: {getattr(error, 'message', None) or error}") from None
        if not self.done.done():
            self.begin()

    def _ask(self, request: Request, exchange: ClientExchange) -> None:
        self._transport.send(self._in_flight.add(request, API_OF_REQUEST[type(request)], 1, exchange))

    def _on_frame(self, frame: memoryview) -> None:
        sent, answer = self._in_flight.answered(frame)
        exchange = sent.waiter
        if isinstance(answer, SaslHandshakeResponse):
            if answer.error_code:
                offered = ", ".join(answer.mechanisms) or "none"
                raise Refusal(f"{ErrorCode(answer.error_code).name}: mechanism {self._mechanism}, offered are {offered}")
            self._ask(SaslAuthenticateRequest(exchange.first()), exchange)
            return
        assert isinstance(answer, SaslAuthenticateResponse), "nothing else was asked"
        if answer.error_code:
            raise Refusal(answer.error_message or ErrorCode(answer.error_code).name)
        token = exchange.step(bytes(answer.auth_bytes))
        if token is not None:
            self._ask(SaslAuthenticateRequest(token), exchange)
            return
        self.is_introduced = True
        if answer.session_lifetime_ms > 0:
            self._ending = self._world.timers.call_later_ms(int(answer.session_lifetime_ms * SHARE_OF_SESSION), self._retire)
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._transport.send(waiting)
        if not self.done.done():
            self.done.set_result(None)

    def _retire(self) -> None:
        """Ends the connection before the other node ends its session: what was asked is answered first, where the handler waits for it."""
        if isinstance(self._handler, PeerConnection):
            self._handler.retire()
        else:
            self.close()

    def _fail(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_exception(IntroductionError(reason))
            self.done.exception()  # who connected may have given up
        self._transport.abort()

    # -- from the transport

    def on_data(self, data: memoryview) -> bool:
        if self.is_introduced:
            return self._handler.on_data(data)
        try:
            for frame, _ in self._cutter.feed(data):
                if self.is_introduced:
                    raise DecodeError("more than an answer to what was asked")
                self._on_frame(frame)
        except (DecodeError, Refusal) as error:
            self.is_refused = isinstance(error, Refusal)
            self._fail(error.message)
        return False

    def room(self) -> memoryview | None:
        return self._handler.room() if self.is_introduced else None

    def on_drain(self) -> None:
        if self.is_introduced:
            self._handler.on_drain()

    def on_close(self, error: Exception | None) -> None:
        if not self.done.done():
            self._fail(f"the connection ended: {error or 'closed by the other node'}")
        if self._ending is not None:
            self._ending.cancel()
        self._handler.on_close(error)

    # -- from the handler

    @property
    def unsent_bytes(self) -> int:
        return self._transport.unsent_bytes + sum(map(len, self._waiting))

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        if self.is_introduced:
            self._transport.send(buffers)
        elif not self.is_closed:
            self._waiting += buffers

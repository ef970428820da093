"""One connection on the threshold: the dispatcher of its requests until it has authenticated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, Protocol

from ottla.broker.requests.answers import encode_answer
from ottla.broker.requests.connection import BrokerConnection
from ottla.broker.requests.context import ReplyQuotas, RequestContext
from ottla.broker.requests.router import Router
from ottla.config.jaas import SERVER_MECHANISMS
from ottla.errors import DecodeError, ErrorCode
from ottla.messages.api_keys import ApiKey
from ottla.messages.headers import decode_request_header, decode_request_header_start
from ottla.messages.registry import API_OF_REQUEST, APIS
from ottla.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.exchange import Exchange, Kind, Session, State, Verdict
from ottla.security.mechanism import Refusal
from ottla.wire.compiler import decode_from
from ottla.wire.schema import Request, Response

_KINDS: Final = {
    ApiKey.API_VERSIONS: Kind.VERSIONS,
    ApiKey.SASL_HANDSHAKE: Kind.HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE: Kind.AUTHENTICATE,
}
NAMED: Final = (*SERVER_MECHANISMS, "GSSAPI")
"""Mechanisms that the log names where they are not enabled."""
FAILED: Final = "authentication failed: the user is not known, or the credentials are wrong"
"""To clients, whatever was wrong with what they sent."""

Reply = Callable[[Response], None]


@dataclass(slots=True)
class Tally:
    """The counts of what has happened since the start."""

    succeeded: int = 0
    failed: int = 0
    succeeded_again: int = 0
    failed_again: int = 0
    without_session_end: int = 0
    expired: int = 0
    overdue: int = 0
    crowded_out: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))


class Keeper(Protocol):
    """The keeper of the threshold."""

    router: Router

    def tally_of(self, listener: str) -> Tally:
        """Returns the counts of what has happened to connections to the listener."""
        ...

    def now_ms(self) -> int: ...

    def held(self, candidate: Candidate, count: int) -> None:
        """Notes that so many bytes of a frame are there."""
        ...

    def left(self, candidate: Candidate) -> None:
        """Notes that it is no longer a candidate."""
        ...

    def begun_again(self, candidate: Candidate) -> None:
        """Notes that its session authenticates again from now on, and has as much time for it as a new connection."""
        ...

    def passed(self, candidate: Candidate, session: Session) -> None:
        """Starts the connection's requests from now on, as its principal's."""
        ...

    def failed(self, candidate: Candidate, reason: str, end: Callable[[], None]) -> None:
        """Calls ``end``, which answers, and ends the connection, when the delay is over."""
        ...


class Candidate:
    """A ``connection.Dispatcher``."""

    def __init__(self, threshold: Keeper, connection: BrokerConnection, exchange: Exchange | None) -> None:
        """Makes a candidate; ``exchange`` is None where TLS alone says who connects."""
        router = threshold.router
        self._threshold = threshold
        self._router = router
        self._given = exchange
        self.connection = connection
        self.frame_memory = router.frame_memory
        self.request_memory = router.request_memory
        self.refusals = router.refusals
        self.timing = router.timing

    @property
    def topic_names(self) -> Mapping[bytes, str]:
        return self._router.topic_names

    @property
    def quotas(self) -> ReplyQuotas:
        return self._router.quotas

    @property
    def is_held(self) -> bool:
        return self._router.is_held

    @property
    def _exchange(self) -> Exchange:
        assert self._given is not None, "nothing is decrypted before the handshake is done, and then TLS has said who it is"
        return self._given

    @property
    def is_again(self) -> bool:
        """Whether it had a session before."""
        return self._given is not None and self._given.is_again

    @property
    def mechanism(self) -> str:
        return "" if self._given is None else self._given.mechanism

    def dispatch(self, connection: BrokerConnection, frame: memoryview) -> bool:
        """Answers the request, or ends its connection. What follows the last token in one burst is for the next dispatcher."""
        if connection.pipeline is not self:
            return connection.pipeline.dispatch(connection, frame)
        exchange = self._exchange
        if exchange.state is State.FAILED:
            return True  # it is answered when the delay is over, and closed
        if exchange.state is State.BARE:
            self._on_bare_token(bytes(frame))
            return True
        api_key, version, correlation_id = decode_request_header_start(frame)
        verdict = exchange.judge(_KINDS.get(api_key, Kind.OTHER))  # type: ignore[call-overload]  # an ApiKey is an int
        if verdict is Verdict.VERSIONS:
            self._on_versions(connection, frame)
        elif verdict is Verdict.HANDSHAKE:
            handshake = _decoded(SaslHandshakeRequest, version, frame)
            self.on_handshake(handshake.mechanism, version, self._replying(ApiKey.SASL_HANDSHAKE, version, correlation_id))
        elif verdict is Verdict.TOKEN:
            token = _decoded(SaslAuthenticateRequest, version, frame).auth_bytes
            self._on_token(bytes(token), version, self._replying(ApiKey.SASL_AUTHENTICATE, version, correlation_id))
        elif verdict is Verdict.WRONG_STATE:
            self._on_wrong_state(api_key, version, correlation_id)
        else:
            if exchange.state is State.EXPIRED:
                self._threshold.tally_of(connection.listener).expired += 1
            raise DecodeError(_not_authenticated(api_key, exchange))
        return True

    def _on_versions(self, connection: BrokerConnection, frame: memoryview) -> None:
        errors = self._router.meters[ApiKey.API_VERSIONS].errors
        before = sum(errors.values())
        self._router.dispatch(connection, frame)
        self._exchange.on_versions(is_refused=sum(errors.values()) > before)  # the handler has answered: nothing in it waits

    def on_handshake(self, mechanism: str, version: int, reply: Reply) -> None:
        """Chooses a mechanism, or ends the connection with the answer that says which ones there are."""
        names = self._exchange.mechanisms
        try:
            if self._exchange.on_handshake(mechanism, version):
                if self.is_again:
                    self._threshold.begun_again(self)
                reply(SaslHandshakeResponse(ErrorCode.NONE, names))
                return
        except Refusal as refusal:
            code, reason = ErrorCode.SASL_AUTHENTICATION_FAILED, refusal.message
        else:
            code, reason = ErrorCode.UNSUPPORTED_SASL_MECHANISM, _not_enabled(mechanism, names)
        self._fail(reason, lambda: reply(SaslHandshakeResponse(code, names)))

    def _on_token(self, token: bytes, version: int, reply: Reply) -> None:
        exchange, now_ms = self._exchange, self._threshold.now_ms()
        try:
            answer = exchange.on_token(token, now_ms)
        except Refusal as refusal:
            self._fail(refusal.message, lambda: reply(SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED)))
            return
        session = exchange.session
        if session is not None:
            self._threshold.passed(self, session)
        lifetime_ms = session.ends_ms - now_ms if session is not None and session.ends_ms is not None else 0
        reply(SaslAuthenticateResponse(ErrorCode.NONE, None, answer.token, lifetime_ms))

    def _on_bare_token(self, token: bytes) -> None:
        try:
            answer = self._exchange.on_token(token, self._threshold.now_ms())
        except Refusal as refusal:
            self._fail(refusal.message, lambda: None)
            return
        if self._exchange.session is not None:
            self._threshold.passed(self, self._exchange.session)
        self._send([len(answer.token).to_bytes(4, "big") + answer.token])

    def _on_wrong_state(self, api_key: int, version: int, correlation_id: int) -> None:
        api = APIS.get(api_key)
        response: Any = None if api is None else api.response()
        if api is None or not api.version_min <= version <= api.version_max or not hasattr(response, "error_code"):
            raise DecodeError(f"API key {api_key} where a token of {self.mechanism} is due")
        response.error_code = ErrorCode.ILLEGAL_SASL_STATE
        reply = self._replying(api_key, version, correlation_id)
        self._exchange.state = State.FAILED
        self._fail("another request where a token is due", lambda: reply(response))

    def _replying(self, api_key: int, version: int, correlation_id: int) -> Reply:
        api = APIS[api_key]
        self._router.meters[api_key].requests[version] += 1

        def reply(response: Response) -> None:
            self._send(encode_answer(api, version, correlation_id, response))

        return reply

    def _send(self, answer: Sequence[Any]) -> None:
        self.connection.complete(self.connection.enter(), answer)

    def _fail(self, reason: str, answer: Callable[[], None]) -> None:
        transport = self.connection.transport

        def end() -> None:
            if not transport.is_closed:
                answer()
                transport.close()

        self._threshold.failed(self, reason, end)

    def close_overdue(self) -> None:
        """Closes the connection: the time to authenticate again is over."""
        if self.connection.pipeline is self and not self.connection.transport.is_closed:
            self._threshold.tally_of(self.connection.listener).overdue += 1
            self.connection.transport.abort()

    # -- the rest is the router's

    def begin_burst(self) -> int:
        return self._router.begin_burst()

    def end_burst(self) -> bool:
        return self._router.end_burst()

    def close_burst(self) -> None:
        self._router.close_burst()
        if self.connection.pipeline is self:
            self._threshold.held(self, self.connection.share.received)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._router.call_soon(callback)

    def end_large(self, connection: BrokerConnection) -> None:
        self._router.end_large(connection)

    def reply_in_steps(self, context: RequestContext, response: Response) -> None:
        self._router.reply_in_steps(context, response)

    def forget(self, connection: BrokerConnection) -> None:
        self._threshold.left(self)
        self._router.forget(connection)


def _not_enabled(mechanism: str, enabled: Sequence[str]) -> str:
    """Returns the reason for the log, which has nothing that a client made up."""
    named = mechanism if mechanism in NAMED else "a mechanism of another name"
    return f"{named} is not enabled: the listener has {', '.join(enabled)}"


def _not_authenticated(api_key: int, exchange: Exchange) -> str:
    """Returns what the log says of a request that comes too early: of a client that does not know of SASL, that there is."""
    api = APIS.get(api_key)
    name = f"API key {api_key}" if api is None else api.name
    text = f"{name} of a connection in the state {exchange.state.name}, which has not authenticated"
    if api is None or exchange.is_again or exchange.state not in (State.FIRST, State.ASKED):
        return text
    return f"{text}: the listener has SASL ({', '.join(exchange.mechanisms)}), and the client's security.protocol may have none"


def _decoded(kind: type[Request], version: int, frame: memoryview) -> Any:
    """Returns the request. DecodeError for a version that there is not."""
    api = API_OF_REQUEST[kind]
    if not api.version_min <= version <= api.version_max:
        raise DecodeError(f"{api.name} v{version} is not served ({api.version_min} to {api.version_max} are)")
    _, position = decode_request_header(frame, is_flexible=version >= api.flexible)
    return decode_from(kind, version, frame, position)[0]

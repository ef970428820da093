"""A connection before it is authenticated: which requests are taken, and what follows them (KIP-43, KIP-152, KIP-368).

``TABLE`` says it all: for each state and each kind of request, what is done with it. A request that is not in the row of its state ends the
connection. States change by what came of the request: ``on_versions``, ``on_handshake``, ``on_token``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from ottla.security.mechanism import Answer, Offer, Refusal, ServerMechanism
from ottla.security.principal import USER, Principal

AGAIN_MS_MIN: Final = 1_000
"""A session authenticates again at most so often."""


class State(Enum):
    FIRST = auto()
    """Nothing was asked."""
    ASKED = auto()
    """ApiVersions was answered."""
    ASKED_IN_VAIN = auto()
    """ApiVersions was refused: it may be asked once more."""
    BARE = auto()
    """A mechanism was chosen by SaslHandshake 0: each frame is a token."""
    FRAMED = auto()
    """A mechanism was chosen by SaslHandshake 1: tokens come by SaslAuthenticate."""
    FAILED = auto()
    AUTHENTICATED = auto()
    EXPIRED = auto()
    """The session has lasted for as long as it may."""
    AGAIN = auto()
    """A session authenticates again: as ``FRAMED``."""


class Kind(Enum):
    """The kind of a request."""

    VERSIONS = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    OTHER = auto()


class Verdict(Enum):
    VERSIONS = auto()
    """ApiVersions is answered, as for every client."""
    HANDSHAKE = auto()
    """A mechanism is chosen."""
    TOKEN = auto()
    """The mechanism goes on."""
    WRONG_STATE = auto()
    """Answered ILLEGAL_SASL_STATE in the request's own form; then the connection ends."""
    CLOSE = auto()
    PASS = auto()
    """A request of who has authenticated."""


TABLE: Final[Mapping[State, Mapping[Kind, Verdict]]] = {
    State.FIRST: {Kind.VERSIONS: Verdict.VERSIONS, Kind.HANDSHAKE: Verdict.HANDSHAKE},
    State.ASKED: {Kind.HANDSHAKE: Verdict.HANDSHAKE},
    State.ASKED_IN_VAIN: {Kind.VERSIONS: Verdict.VERSIONS, Kind.HANDSHAKE: Verdict.HANDSHAKE},
    State.BARE: dict.fromkeys(Kind, Verdict.TOKEN),
    State.FRAMED: {**dict.fromkeys(Kind, Verdict.WRONG_STATE), Kind.AUTHENTICATE: Verdict.TOKEN},
    State.FAILED: {},
    State.AUTHENTICATED: dict.fromkeys(Kind, Verdict.PASS),
    State.EXPIRED: {Kind.HANDSHAKE: Verdict.HANDSHAKE},
    State.AGAIN: {Kind.AUTHENTICATE: Verdict.TOKEN},
}


class Session(Struct, frozen=True):
    """The session of an authenticated client. ``again_ms`` is the start of its last reauthentication, None before the first."""

    principal: Principal
    mechanism: str
    again_ms: int | None
    ends_ms: int | None
    """None without a limit."""
    token_id: str = ""
    """Of the delegation token that it was opened with: it ends with that."""

    def may_begin_again(self, now_ms: int) -> bool:
        """True when a handshake is one, and not a request out of place (KIP-368)."""
        return self.ends_ms is not None and (self.again_ms is None or now_ms - self.again_ms >= AGAIN_MS_MIN)


class Exchange:
    """One connection's. With a ``session`` it is authenticated again, since ``again_ms``; from its last token on, where that is unknown."""

    def __init__(self, offer: Offer, session: Session | None = None, *, is_expired: bool = False, again_ms: int | None = None) -> None:
        self._offer = offer
        self._before = session
        self._again_ms = again_ms
        self._mechanism = ""
        self._server: ServerMechanism | None = None
        self.session: Session | None = None
        """Once it is authenticated."""
        self.state = State.FIRST
        if session is not None:
            self.state = State.EXPIRED if is_expired else State.AUTHENTICATED

    @property
    def is_again(self) -> bool:
        """Whether there was a session before."""
        return self._before is not None

    @property
    def mechanisms(self) -> list[str]:
        return list(self._offer.mechanisms)

    @property
    def mechanism(self) -> str:
        """The mechanism that the client has chosen; empty before."""
        return self._mechanism

    def judge(self, kind: Kind) -> Verdict:
        return TABLE[self.state].get(kind, Verdict.CLOSE)

    def on_versions(self, *, is_refused: bool) -> None:
        """Notes that ApiVersions was answered."""
        asked_once = self.state is State.FIRST
        self.state = State.ASKED_IN_VAIN if is_refused and asked_once else State.ASKED

    def on_handshake(self, mechanism: str, version: int) -> bool:
        """Chooses the mechanism; False, and the exchange has failed, when it is not offered.

        Refusal when a session would change its mechanism, or its messages' form.
        """
        before = self._before
        if before is not None and (mechanism != before.mechanism or version == 0):
            self.state = State.FAILED
            raise Refusal("a session that authenticates again by another mechanism, or by bare tokens")
        if mechanism not in self._offer.mechanisms:
            self.state = State.FAILED
            return False
        self._mechanism = mechanism
        self._server = self._offer.begin(mechanism)
        if before is not None:
            self.state = State.AGAIN
        else:
            self.state = State.BARE if version == 0 else State.FRAMED
        return True

    def on_token(self, token: bytes, now_ms: int) -> Answer:
        """Returns the server's next token; ``session`` is there when it was the last. Refusal, and the exchange has failed, if wrong."""
        assert self._server is not None, "a mechanism was chosen"
        try:
            answer = self._server.step(token)
            if answer.name is not None:
                self._begin_session(Principal(USER, answer.name, bool(answer.token_id)), answer, now_ms)
        except Refusal:
            self.state = State.FAILED
            raise
        return answer

    def _begin_session(self, principal: Principal, answer: Answer, now_ms: int) -> None:
        if self._before is not None and str(principal) != str(self._before.principal):  # by a token or not: as in Kafka
            raise Refusal("a session that authenticates again as another principal")
        limits = [limit for limit in (self._offer.session_ms(self._mechanism),) if limit > 0]
        if answer.lifetime_ms is not None:
            limits.append(answer.lifetime_ms)
        again_ms = now_ms if self._again_ms is None and self._before is not None else self._again_ms
        self.session = Session(principal, self._mechanism, again_ms, now_ms + min(limits) if limits else None, answer.token_id)
        self.state = State.AUTHENTICATED

"""What is taken of a connection that has not authenticated: the table, row by row, and what follows each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from ottla.security.exchange import TABLE, Exchange, Kind, Session, State, Verdict
from ottla.security.mechanism import Answer, Refusal, ServerMechanism
from ottla.security.principal import Principal

ALICE: Final = Principal("User", "alice")
ALICE_BY_TOKEN: Final = Principal("User", "alice", by_token=True)
CLOSED: Final = Verdict.CLOSE

ROWS: Final = {  # state: what is done with ApiVersions, SaslHandshake, SaslAuthenticate, and any other request
    State.FIRST: (Verdict.VERSIONS, Verdict.HANDSHAKE, CLOSED, CLOSED),
    State.ASKED: (CLOSED, Verdict.HANDSHAKE, CLOSED, CLOSED),
    State.ASKED_IN_VAIN: (Verdict.VERSIONS, Verdict.HANDSHAKE, CLOSED, CLOSED),
    State.BARE: (Verdict.TOKEN, Verdict.TOKEN, Verdict.TOKEN, Verdict.TOKEN),
    State.FRAMED: (Verdict.WRONG_STATE, Verdict.WRONG_STATE, Verdict.TOKEN, Verdict.WRONG_STATE),
    State.FAILED: (CLOSED, CLOSED, CLOSED, CLOSED),
    State.AUTHENTICATED: (Verdict.PASS, Verdict.PASS, Verdict.PASS, Verdict.PASS),
    State.EXPIRED: (CLOSED, Verdict.HANDSHAKE, CLOSED, CLOSED),
    State.AGAIN: (CLOSED, CLOSED, Verdict.TOKEN, CLOSED),
}


class _Two:
    """A mechanism of two tokens: ``hello``, then the name."""

    def __init__(self) -> None:
        self._has_begun = False

    def step(self, token: bytes) -> Answer:
        if not self._has_begun:
            self._has_begun = True
            return Answer(b"who")
        if token == b"mallory":
            raise Refusal("mallory")
        name, _, token_id = token.decode().partition(" by ")
        return Answer(b"welcome", name, token_id=token_id)


class _Offer:
    def __init__(self, lifetime_ms: int = 0) -> None:
        self._lifetime_ms = lifetime_ms

    @property
    def mechanisms(self) -> Sequence[str]:
        return ["TWO", "OTHER"]

    def begin(self, mechanism: str) -> ServerMechanism:
        return _Two()

    def session_ms(self, mechanism: str) -> int:
        return self._lifetime_ms


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", Kind)
def test_each_row_of_the_table(state: State, kind: Kind) -> None:
    exchange = Exchange(_Offer())
    exchange.state = state
    assert exchange.judge(kind) is ROWS[state][list(Kind).index(kind)]
    assert TABLE.keys() == ROWS.keys() == set(State)


@pytest.mark.parametrize(("refused", "state"), [(False, State.ASKED), (True, State.ASKED_IN_VAIN)])
def test_versions_are_asked_once_and_once_more_after_a_refusal(refused: bool, state: State) -> None:
    exchange = Exchange(_Offer())
    exchange.on_versions(is_refused=refused)
    assert exchange.state is state
    exchange.on_versions(is_refused=refused)
    assert exchange.state is State.ASKED, "and no third time"


@pytest.mark.parametrize(("version", "state"), [(0, State.BARE), (1, State.FRAMED)])
def test_a_mechanism_is_chosen_and_ends_with_a_session(version: int, state: State) -> None:
    exchange = Exchange(_Offer())
    assert exchange.on_handshake("TWO", version)
    assert exchange.state is state
    assert exchange.on_token(b"hello", 100) == Answer(b"who")
    begun: tuple[State, Session | None] = (exchange.state, exchange.session)
    assert begun == (state, None), "not before the last token"
    assert exchange.on_token(b"alice", 200).token == b"welcome"
    assert (exchange.state, exchange.session) == (State.AUTHENTICATED, Session(ALICE, "TWO", None, None))


def test_a_mechanism_that_is_not_offered_ends_it() -> None:
    exchange = Exchange(_Offer())
    assert not exchange.on_handshake("GSSAPI", 1)
    assert exchange.state is State.FAILED


def test_a_wrong_token_ends_it() -> None:
    exchange = Exchange(_Offer())
    exchange.on_handshake("TWO", 1)
    exchange.on_token(b"hello", 0)
    with pytest.raises(Refusal):
        exchange.on_token(b"mallory", 0)
    assert (exchange.state, exchange.session) == (State.FAILED, None)


def test_a_session_ends_when_its_time_is_over() -> None:
    exchange = Exchange(_Offer(lifetime_ms=5000))
    exchange.on_handshake("TWO", 1)
    exchange.on_token(b"hello", 0)
    exchange.on_token(b"alice", 1000)
    assert exchange.session == Session(ALICE, "TWO", None, 6000)


@pytest.mark.parametrize(
    ("ends_ms", "now_ms", "may"), [(None, 10_000, False), (9_000, 1_999, False), (9_000, 2_000, True), (9_000, 8_000, True)]
)
def test_a_session_with_an_end_begins_again_at_any_time_and_then_once_a_second(ends_ms: int | None, now_ms: int, may: bool) -> None:
    assert Session(ALICE, "TWO", 1_000, ends_ms).may_begin_again(now_ms) is may
    assert Session(ALICE, "TWO", None, ends_ms).may_begin_again(now_ms) is (ends_ms is not None)


@pytest.mark.parametrize("is_expired", [False, True])
def test_a_session_begins_again_by_the_same_mechanism_as_the_same_principal(is_expired: bool) -> None:
    exchange = Exchange(_Offer(5000), Session(ALICE, "TWO", 0, 5000), is_expired=is_expired)
    assert exchange.judge(Kind.HANDSHAKE) is (Verdict.HANDSHAKE if is_expired else Verdict.PASS)
    assert exchange.on_handshake("TWO", 1)
    assert exchange.state is State.AGAIN
    exchange.on_token(b"hello", 3000)
    exchange.on_token(b"alice", 3000)
    assert exchange.session == Session(ALICE, "TWO", 3000, 8000)


@pytest.mark.parametrize(("before", "shown", "now"), [(ALICE, b"alice by t1", ALICE_BY_TOKEN), (ALICE_BY_TOKEN, b"alice", ALICE)])
def test_a_session_begins_again_by_its_principals_token_or_password(before: Principal, shown: bytes, now: Principal) -> None:
    exchange = Exchange(_Offer(5000), Session(before, "TWO", 0, 5000))
    exchange.on_handshake("TWO", 1)
    exchange.on_token(b"hello", 3000)
    exchange.on_token(shown, 3000)
    assert exchange.session == Session(now, "TWO", 3000, 8000, "t1" if now.by_token else "")


@pytest.mark.parametrize(("mechanism", "version"), [("OTHER", 1), ("TWO", 0), ("GSSAPI", 1)])
def test_another_mechanism_or_bare_tokens_end_a_session(mechanism: str, version: int) -> None:
    exchange = Exchange(_Offer(), Session(ALICE, "TWO", 0, 5000))
    with pytest.raises(Refusal):
        exchange.on_handshake(mechanism, version)
    assert exchange.state is State.FAILED


def test_another_principal_ends_a_session() -> None:
    exchange = Exchange(_Offer(), Session(ALICE, "TWO", 0, 5000))
    exchange.on_handshake("TWO", 1)
    exchange.on_token(b"hello", 0)
    with pytest.raises(Refusal):
        exchange.on_token(b"bob", 0)
    assert (exchange.state, exchange.session) == (State.FAILED, None)

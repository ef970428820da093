"""PLAIN and SCRAM: golden exchanges, the laws of an honest one, and what is refused."""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.mechanism import Refusal
from ottla.security.plain import PlainServer, plain_token
from ottla.security.scram import CLIENT_ITERATIONS_MAX, ScramClient, ScramCredential, ScramMechanism, ScramServer
from ottla.types import Secret

SHA_256, SHA_512 = ScramMechanism
PASSWORDS: Final = {"alice": Secret("wonder"), "bob": Secret("")}


def plain(token: bytes) -> str | None:
    return PlainServer(PASSWORDS.get).step(token).name


def test_plain_takes_a_name_and_its_password() -> None:
    assert plain(b"\0alice\0wonder") == plain(b"alice\0alice\0wonder") == plain(plain_token("alice", Secret("wonder"))) == "alice"


@pytest.mark.parametrize(
    "token",
    [
        b"", b"\0", b"\0\0", b"alice\0wonder", b"\0alice\0wonde", b"\0alice\0wonder\0", b"\0alice\0wonder!", b"\0Alice\0wonder",
        b"\0bob\0", b"\0carol\0\0", b"\0carol\0wonder", b"bob\0alice\0wonder", b"\0alice\0\xff", b"\0\0wonder", b"\0" * 500_000,
    ],
)  # fmt: skip
def test_plain_refuses(token: bytes) -> None:
    with pytest.raises(Refusal):
        plain(token)


def credential(mechanism: ScramMechanism, password: str, salt: bytes = b"0123456789", iterations: int = 4096) -> ScramCredential:
    return ScramCredential.of_salted(mechanism, mechanism.salted(Secret(password), salt, iterations), salt, iterations)


def server(mechanism: ScramMechanism = SHA_256, nonce: str = "SERVER") -> ScramServer:
    return ScramServer(mechanism, {"alice": _ALICE[mechanism]}.get, nonce=nonce, decoy_key=b"decoy")


_ALICE: Final = {mechanism: credential(mechanism, "wonder") for mechanism in ScramMechanism}


def test_the_exchange_of_rfc_7677() -> None:
    salt, nonce = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    known = credential(SHA_256, "pencil", salt)
    side = ScramServer(SHA_256, {"user": known}.get, nonce=nonce, decoy_key=b"")
    client = ScramClient(SHA_256, "user", Secret("pencil"), nonce="rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = side.step(client.first()).token
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    challenge = client.challenge(first)
    final = client.final(challenge, client.salted(challenge))
    proof = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert final == proof
    last = side.step(final)
    assert (last.token, last.name) == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")
    client.verify(last.token)


@pytest.mark.parametrize("mechanism", ScramMechanism)
@given(name=st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text and text.isprintable()), password=st.text(max_size=9))
@settings(max_examples=25, deadline=None)
def test_the_right_password_lets_a_user_of_any_name_in(mechanism: ScramMechanism, name: str, password: str) -> None:
    side = ScramServer(mechanism, {name: credential(mechanism, password)}.get, nonce="S", decoy_key=b"d")
    client = ScramClient(mechanism, name, Secret(password), nonce="C")
    challenge = client.challenge(side.step(client.first()).token)
    last = side.step(client.final(challenge, client.salted(challenge)))
    assert last.name == name
    client.verify(last.token)


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("mallory", "wonder")])
def test_an_unknown_user_takes_the_same_steps_as_a_wrong_password(mechanism: ScramMechanism, name: str, password: str) -> None:
    client = ScramClient(mechanism, name, Secret(password), nonce="C")
    side = server(mechanism)
    challenge = client.challenge(side.step(client.first()).token)
    with pytest.raises(
        Refusal, match="a wrong password of user 'alice'" if name == "alice" else "an unknown user, whose name is not logged"
    ):
        side.step(client.final(challenge, client.salted(challenge)))


def test_an_unknown_user_has_the_same_salt_each_time() -> None:
    tokens = {server().step(b"n,,n=mallory,r=C").token for _ in range(3)}
    assert len(tokens) == 1
    assert tokens != {server().step(b"n,,n=trudy,r=C").token}


@pytest.mark.parametrize(
    "first",
    [
        b"", b"n,,", b"n", b"n,,n=alice", b"n,,r=C", b"n,,r=C,n=alice", b"n,,n=,r=C", b"n,,n=alice,r=", b"n,,n=alice,r=C,r=D",
        b"n,,m=x,n=alice,r=C", b"n,,n=alice,r=C,m=x", b"n,,n=alice,r=C,x=1", b"n,,n=al=ice,r=C", b"p=tls-unique,,n=alice,r=C",
        b"n,a=bob,n=alice,r=C", b"n,,n=alice,r=\x7f", b"n,,n=\xff,r=C", b"n,,n=" + b"a" * 20_000,
        b"n,a=,n=alice,r=C", b"n,,n=alice,r=C,", b"n=alice,r=C",
    ],
)  # fmt: skip
def test_scram_refuses_a_first_message(first: bytes) -> None:
    with pytest.raises(Refusal):
        server().step(first)


@pytest.mark.parametrize("header", [b"n,,", b"y,,", b"n,a=alice,"])
def test_scram_takes_each_header_without_a_channel_binding(header: bytes) -> None:
    side, mechanism = server(), SHA_256
    text = side.step(header + b"n=alice,r=C").token.decode()
    salted = mechanism.salted(Secret("wonder"), b"0123456789", 4096)
    without_proof = f"c={base64.b64encode(header).decode()},r=CSERVER"
    key = mechanism.mac(salted, b"Client Key")
    signature = mechanism.mac(hashlib.sha256(key).digest(), f"n=alice,r=C,{text},{without_proof}".encode())
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature))).decode()
    assert side.step(f"{without_proof},p={proof}".encode()).name == "alice"


def finals() -> dict[str, str]:
    """Final messages with one mistake each; the proof is right for what is sent, where it can be."""
    found = {}
    for case, binding, nonce in [
        ("no nonce of the server", "biws", "C"),
        ("a nonce that ends like it", "biws", "XCSERVER"),
        ("a nonce that begins like it", "biws", "CSERVERX"),
        ("the server's nonce alone", "biws", "SERVER"),
        ("another header", "eSws", "CSERVER"),
        ("no header", "", "CSERVER"),
        ("a channel binding", base64.b64encode(b"p=tls-unique,,data").decode(), "CSERVER"),
    ]:
        found[case] = f"c={binding},r={nonce}"
    return found


@pytest.mark.parametrize("case", finals())
def test_scram_refuses_a_final_message_with_a_right_proof(case: str) -> None:
    side, mechanism = server(), SHA_256
    text = side.step(b"n,,n=alice,r=C").token.decode()
    salted = mechanism.salted(Secret("wonder"), b"0123456789", 4096)
    key = mechanism.mac(salted, b"Client Key")
    signature = mechanism.mac(hashlib.sha256(key).digest(), f"n=alice,r=C,{text},{finals()[case]}".encode())
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature))).decode()
    with pytest.raises(Refusal):
        side.step(f"{finals()[case]},p={proof}".encode())


@pytest.mark.parametrize(
    "final", ["", "c=biws", "c=biws,r=CSERVER", "c=biws,r=CSERVER,p=", "c=biws,r=CSERVER,p=AAAA", "c=biws,r=CSERVER,p=!",
              "r=CSERVER,c=biws,p=AAAA",
              "c=biws,r=CSERVER,x=1,p=AAAA", "c=biws,c=biws,r=CSERVER,p=AAAA", "n,,n=alice,r=C"],
)  # fmt: skip
def test_scram_refuses_a_final_message(final: str) -> None:
    side = server()
    side.step(b"n,,n=alice,r=C")
    with pytest.raises(Refusal):
        side.step(final.encode())


@pytest.mark.parametrize(
    "challenge",
    [
        "", "r=C,s=AAAA,i=4096", "r=XS,s=AAAA,i=4096", "r=CS,s=AAAA,i=1", "r=CS,s=AAAA,i=4095", "r=CS,s=AAAA,i=-4096", "r=CS,s=AAAA,i=x",
        f"r=CS,s=AAAA,i={CLIENT_ITERATIONS_MAX + 1}", "r=CS,s=AAAA,i=99999999999999", "r=CS,s=!,i=4096", "r=CS,i=4096,s=AAAA",
        "m=x,r=CS,s=AAAA,i=4096",
        "r=CS,s=AAAA,i=4096,x=1", "e=other-error",
    ],
)  # fmt: skip
def test_a_client_refuses_a_server(challenge: str) -> None:
    with pytest.raises(Refusal):
        ScramClient(SHA_256, "alice", Secret("wonder"), nonce="C").challenge(challenge.encode())


@pytest.mark.parametrize("token", [b"", b"v=", b"v=AAAA", b"e=invalid-proof", b"\xff"])
def test_a_client_refuses_a_server_that_does_not_know_the_user(token: bytes) -> None:
    client = ScramClient(SHA_256, "alice", Secret("wonder"), nonce="C")
    with pytest.raises(Refusal):
        client.verify(token)
    client.final(challenge := client.challenge(b"r=CS,s=AAAA,i=4096"), client.salted(challenge))
    with pytest.raises(Refusal):
        client.verify(token)


@given(st.lists(st.binary(max_size=60) | st.text("n,=arcpm=yCSERVER", max_size=30).map(str.encode), max_size=3))
def test_whatever_comes_is_an_answer_or_a_refusal(tokens: list[bytes]) -> None:
    side = server()
    with suppress(Refusal):
        for token in tokens:
            assert side.step(token).name is None, "nobody is let in by chance"


def test_nothing_secret_is_shown() -> None:
    assert "wonder" not in f"{Secret('wonder')} {Secret('wonder')!r} {[Secret('wonder')]} {_ALICE}"
    assert repr(_ALICE[SHA_256]) == "ScramCredential(salt=b'0123456789', iterations=4096)"

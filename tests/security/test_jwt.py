"""Signed tokens: what is taken, and everything else that claims to be one."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.security import issuer
from tests.security.issuer import AUDIENCE, ISSUER, ec_jwk, ec_key, key_set, rsa_jwk, rsa_key, signed, text_of

from ottla.errors import ErrorCode, KafkaError
from ottla.security.jwt import Expected, UnknownKeyError, parse_key_set, verified
from ottla.security.mechanism import Refusal
from ottla.security.oauthbearer import OAuthServer, oauth_token
from ottla.types import Secret

EXPECTED = Expected(audiences=["other", AUDIENCE], issuer=ISSUER)
KEYS = parse_key_set(key_set())
NOW = 1_800_000_000
"""Seconds: the time of all tokens here, whenever the tests run."""
RS, ES = {"alg": "RS256", "kid": "rsa"}, {"alg": "ES256", "kid": "ec"}


def now_ms() -> int:
    return NOW * 1000


def claims(**more: Any) -> dict[str, Any]:
    return issuer.claims(NOW, **more)


def check(token: str, expected: Expected = EXPECTED) -> str:
    return verified(token, KEYS, expected, now_ms()).subject


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (RS, None),
        (ES, ec_key()),
        ({"alg": "RS256"}, None),
        ({"alg": "ES256"}, ec_key()),
        (RS | {"typ": "JWT", "x5u": "https://evil"}, None),
    ],
)
def test_a_token_that_a_key_has_signed_is_its_subjects(header: dict[str, Any], key: Any) -> None:
    found = verified(signed(claims(), header, key), KEYS, EXPECTED, now_ms())
    assert found.subject == "alice"
    assert 3_500_000 < found.ends_ms - now_ms() <= 3_600_000


@pytest.mark.parametrize(
    "more",
    [
        {"aud": ["x", AUDIENCE]}, {"aud": "other"}, {"exp": NOW - 20}, {"iat": NOW + 20}, {"nbf": NOW - 5}, {"scope": "a b"},
        {"scope": ["a", "b"]}, {"exp": NOW + 10.5}, {"extra": {"deep": [1]}},
    ],
)  # fmt: skip
def test_claims_that_are_good(more: dict[str, Any]) -> None:
    assert check(signed(claims(**more))) == "alice"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"exp": None}, "without a time in exp"), ({"iat": None}, "without a time in iat"), ({"exp": NOW - 60}, "has expired"),
        ({"exp": str(NOW + 60)}, "without a time in exp"), ({"exp": True}, "without a time in exp"), ({"exp": 1e300}, "without a time"),
        ({"iat": NOW + 60}, "not good yet"), ({"nbf": NOW + 60}, "not good yet"), ({"iss": None}, "another issuer"),
        ({"iss": ISSUER + "/"}, "another issuer"), ({"iss": [ISSUER]}, "another issuer"), ({"aud": None}, "another audience"),
        ({"aud": "kafka"}, "another audience"), ({"aud": ["x", "y"]}, "another audience"), ({"aud": {AUDIENCE: 1}}, "another audience"),
        ({"aud": [[AUDIENCE]]}, "another audience"), ({"sub": None}, "without a subject"), ({"sub": ""}, "without a subject"),
        ({"sub": "\ud800"}, "is no text"), ({"sub": "x" * 1001}, "more than 1000 characters"),
        ({"sub": " "}, "without a subject"), ({"sub": 7}, "without a subject"), ({"scope": 7}, "scope"), ({"scope": ["a", 1]}, "scope"),
    ],
)  # fmt: skip
def test_claims_that_are_not(more: dict[str, Any], says: str) -> None:
    with pytest.raises(Refusal, match=says):
        check(signed(claims(**more)))


def none_token() -> str:
    return f"{text_of(json.dumps({'alg': 'none'}).encode())}.{text_of(json.dumps(claims()).encode())}."


PUBLIC = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    "token",
    [
        none_token(),
        none_token() + "AA",
        none_token()[:-1],
        signed(claims(), {"alg": "none", "kid": "rsa"}),
        signed(claims(), {"alg": "HS256", "kid": "rsa"}, PUBLIC),
        signed(claims(), {"alg": "HS256"}, PUBLIC),
        signed(claims(), RS, PUBLIC),
        signed(claims(), {"alg": "ES256", "kid": "rsa"}),
        signed(claims(), {"alg": "RS256", "kid": "ec"}, ec_key()),
        signed(claims(), {"alg": "RS512", "kid": "rsa"}),
        signed(claims(), {"kid": "rsa"}),
        signed(claims(), ES, ec.generate_private_key(ec.SECP256R1())),
        signed(claims(), {"alg": "ES256", "kid": "ec", "jwk": ec_jwk(ec.generate_private_key(ec.SECP256R1()))}, rsa_key()),
        signed(claims(), {"alg": "RS256", "kid": ["rsa"]}),
        signed(claims(), RS | {"crit": ["exp"]}),
        signed(b"[]", RS),
        signed(b"7", RS),
        signed(b"[" * 50_000, RS),
        signed(b"{", RS),
        signed(json.dumps(claims()).encode()[:-1] + b',"sub":"admin"}', RS),
        signed(b"\xff", RS),
        signed(claims()) + "A",
        signed(claims())[:-4],
        signed(claims()).replace(".", "..", 1),
        signed(claims()) + ".x",
        signed(claims()) + "=",
        "a.b.c",
        "",
        "..",
        "x" * 70_000,
    ],
)
def test_what_none_of_the_keys_has_signed_is_refused(token: str) -> None:
    with pytest.raises(Refusal):
        check(token)


def test_an_unknown_key_has_an_error_of_its_own() -> None:
    with pytest.raises(UnknownKeyError) as caught:
        check(signed(claims(), {"alg": "RS256", "kid": "new"}))
    assert caught.value.key_id == "new"
    assert "new" not in caught.value.message


def test_a_signature_is_of_this_content() -> None:
    one, other = signed(claims()).split("."), signed(claims(sub="admin")).split(".")
    with pytest.raises(Refusal, match="signature"):
        check(".".join((one[0], other[1], one[2])))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b"[]", b'{"keys":{}}', b'{"keys":[]}', b'{"keys":[7]}', b"\xff", b"[" * 50_000,
        json.dumps({"keys": [{"kty": "oct", "k": "AAAA"}]}).encode(),
        json.dumps({"keys": [rsa_jwk(rsa_key(), use="enc")]}).encode(),
        json.dumps({"keys": [rsa_jwk(rsa_key(), alg="PS256")]}).encode(),
        json.dumps({"keys": [rsa_jwk(rsa_key(1024))]}).encode(),
        json.dumps({"keys": [ec_jwk(ec_key()) | {"crv": "P-521"}]}).encode(),
        json.dumps({"keys": [ec_jwk(ec_key()) | {"x": "AAAA"}]}).encode(),
        json.dumps({"keys": [rsa_jwk(rsa_key()) | {"e": "Ag"}]}).encode(),
        json.dumps({"keys": [rsa_jwk(rsa_key())] * 101}).encode(),
    ],
)  # fmt: skip
def test_a_set_without_a_usable_key_is_refused(data: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        parse_key_set(data)
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_keys_of_other_kinds_are_passed_over() -> None:
    found = parse_key_set(key_set({"kty": "oct", "k": "AAAA", "kid": "rsa"}, rsa_jwk(rsa_key(), kid=7)))
    assert [(key.key_id, key.algorithm) for key in found] == [("rsa", "RS256"), ("ec", "ES256")]


def server() -> OAuthServer:
    return OAuthServer(lambda token: verified(token, KEYS, EXPECTED, now_ms()), now_ms)


def test_the_message_of_a_client() -> None:
    token = signed(claims())
    answer = server().step(oauth_token(Secret(token)))
    assert (answer.token, answer.name, answer.token_id) == (b"", "alice", "")
    assert answer.lifetime_ms is not None
    assert 3_500_000 < answer.lifetime_ms <= 3_600_000
    for message in (f"n,a=alice,\x01auth=Bearer {token}\x01\x01", f"n,,\x01ext=a b\x01auth=bearer {token}\x01other=\x01\x01"):
        assert server().step(message.encode()).name == "alice"
    ending = server().step(oauth_token(Secret(signed(claims(exp=NOW - 10)))))
    assert ending.lifetime_ms == 1, "within the skew, and to authenticate again at once"


@pytest.mark.parametrize(
    "message",
    [
        "", "\x01", "n,,", "n,,\x01\x01", "n,,\x01auth=Bearer \x01\x01", "n,,\x01auth=Bearer {}\x01", "n,,\x01auth=Bearer {}",
        "auth=Bearer {}\x01\x01", "p=x,,\x01auth=Bearer {}\x01\x01", "n,a=admin,\x01auth=Bearer {}\x01\x01", "n,,\x01auth={}\x01\x01",
        "n,,\x01auth=Basic {}\x01\x01", "n,,\x01auth=Bearer {}\x01auth=Bearer {}\x01\x01", "n,,\x01auth=Bearer {}\x01x\x01\x01",
        "n,,\x01auth=Bearer {}\x01a1=x\x01\x01", "n,,\x01auth=Bearer {}\x01auth=x\x01\x01", "n,,\x01auth=Bearer {}\x01\x01x", "\xff",
        "n,,\x01auth=Bearer {} x\x01\x01", "n,,\x01auth=Bearer {}\x01x=\0\x01\x01",
    ],
)  # fmt: skip
def test_no_other_message(message: str) -> None:
    with pytest.raises(Refusal):
        server().step(message.format(*[signed(claims())] * 2).encode("latin-1"))


def test_no_damage_ends_in_another_error() -> None:
    rng = random.Random(11)
    good = oauth_token(Secret(signed(claims())))
    for _ in range(400):
        changed = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        with contextlib.suppress(Refusal):
            assert server().step(bytes(changed)).name == "alice", "a letter of Bearer, or of the last digit, may have changed"

"""An issuer of OAuth tokens for tests: its keys, as a key set, and what it signs."""

from __future__ import annotations

import base64
import functools
import json
import time
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "kafka-cluster"


def text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def number(value: int) -> str:
    return text_of(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@functools.cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@functools.cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def rsa_jwk(key: rsa.RSAPrivateKey, **more: Any) -> dict[str, Any]:
    numbers = key.public_key().public_numbers()
    return {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)} | more


def ec_jwk(key: ec.EllipticCurvePrivateKey, **more: Any) -> dict[str, Any]:
    numbers = key.public_key().public_numbers()
    return {"kty": "EC", "crv": "P-256", "x": text_of(numbers.x.to_bytes(32, "big")), "y": text_of(numbers.y.to_bytes(32, "big"))} | more


def key_set(*more: dict[str, Any]) -> bytes:
    return json.dumps({"keys": [rsa_jwk(rsa_key(), kid="rsa", alg="RS256"), ec_jwk(ec_key(), kid="ec", use="sig"), *more]}).encode()


def claims(now: int | None = None, /, **more: Any) -> dict[str, Any]:
    """Of a token that is good for an hour from ``now`` in seconds; None leaves a claim out."""
    now = int(time.time()) if now is None else now
    found = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 3600} | more
    return {name: value for name, value in found.items() if value is not None}


def signed(content: dict[str, Any] | bytes, header: dict[str, Any] | None = None, key: Any = None) -> str:
    """By the RSA key unless another one is given; ``header`` says what it likes."""
    chosen = header if header is not None else {"alg": "RS256", "kid": "rsa"}
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    message = f"{text_of(json.dumps(chosen).encode())}.{text_of(body)}"
    return f"{message}.{text_of(signature(message.encode(), key or rsa_key()))}"


def signature(message: bytes, key: Any) -> bytes:
    if isinstance(key, bytes):  # a secret: HS256
        import hmac

        return hmac.digest(key, message, "sha256")
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(message, padding.PKCS1v15(), SHA256())
    one, other = decode_dss_signature(key.sign(message, ec.ECDSA(SHA256())))
    return one.to_bytes(32, "big") + other.to_bytes(32, "big")

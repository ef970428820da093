"""Signed tokens of OAuth: a key set (JWKS), and what a token that one of its keys has signed says (RFC 7515, 7517, 7519).

RS256 and ES256 are taken, and nothing else: which of the two holds is the key's to say, and a token that names another is refused before
its signature is looked at. Nothing in a token names a key that is not in the set, nor a place to find one. Signatures are verified by
``cryptography``, of the extra ``ottla[security]``.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct

from ottla.errors import ErrorCode, KafkaError
from ottla.security.mechanism import Refusal

TOKEN_LENGTH_MAX: Final = 64 << 10
SUBJECT_LENGTH_MAX: Final = 1_000
KEY_SET_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 100
TRIED_MAX: Final = 4
"""Keys that a token without a key's id is tried with."""
RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192
_HALF: Final = 32
"""Of a signature by P-256: bytes of each of its two numbers."""
_PART: Final = re.compile(r"[A-Za-z0-9_-]+")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
"""Half of a character, which JSON can have, and no message."""
MISSING: Final = "OAUTHBEARER needs the extra ottla[security]: pip install 'ottla[security]'"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """One key of a set; ``key_id`` is None without one."""

    key_id: str | None
    algorithm: str
    public: Any = field(repr=False)

    def has_signed(self, signature: bytes, message: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            if self.algorithm == "RS256":
                self.public.verify(signature, message, PKCS1v15(), SHA256())
            else:
                if len(signature) != 2 * _HALF:
                    return False
                numbers = (int.from_bytes(signature[:_HALF], "big"), int.from_bytes(signature[_HALF:], "big"))
                self.public.verify(encode_dss_signature(*numbers), message, ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


def parse_key_set(data: bytes) -> list[SigningKey]:
    """Returns the keys of a JWKS that can have signed tokens; others are passed over. INVALID_CONFIG for no key set, or an empty one."""
    try:
        found = json.loads(data)
        listed = found["keys"]
        if not isinstance(listed, list) or len(listed) > KEYS_MAX:
            raise ValueError
        keys = [key for one in listed if isinstance(one, dict) and (key := _key_of(one)) is not None]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"it is no key set (JWKS) of {KEYS_MAX} keys at most") from None
    if not keys:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "it has no key of RS256, of 2048 bits at least, and none of ES256")
    return keys


def _key_of(jwk: Mapping[str, Any]) -> SigningKey | None:
    try:
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicNumbers
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
    except ImportError:
        raise KafkaError(ErrorCode.INVALID_CONFIG, MISSING) from None
    kind, key_id = jwk.get("kty"), jwk.get("kid")
    algorithm = {"RSA": "RS256", "EC": "ES256"}.get(kind) if isinstance(kind, str) else None
    if algorithm is None or jwk.get("use", "sig") != "sig" or jwk.get("alg", algorithm) != algorithm:
        return None
    if key_id is not None and not isinstance(key_id, str):
        return None
    try:
        if algorithm == "RS256":
            modulus = _number(jwk["n"])
            if not RSA_BITS_MIN <= modulus.bit_length() <= RSA_BITS_MAX:
                return None
            public: Any = RSAPublicNumbers(_number(jwk["e"]), modulus).public_key()
        elif jwk.get("crv") == "P-256":
            public = EllipticCurvePublicNumbers(_number(jwk["x"]), _number(jwk["y"]), SECP256R1()).public_key()
        else:
            return None
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None
    return SigningKey(key_id, algorithm, public)


class Expected(Struct, frozen=True):
    """The claims that tokens must have. Without audiences, or an issuer, any will do."""

    audiences: Sequence[str] = ()
    issuer: str | None = None
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    skew_ms: int = 30_000


class Claims(Struct, frozen=True):
    """Whose a token is, and until when: milliseconds of the wall clock."""

    subject: str
    ends_ms: int


class UnknownKeyError(Refusal):
    """The token names a key that is not in the set: the set may have a newer version. ``key_id`` is what the client sent, for no log."""

    def __init__(self, key_id: str) -> None:
        super().__init__("a token of a key that is not in the key set")
        self.key_id = key_id


def verified(token: str, keys: Sequence[SigningKey], expected: Expected, now_ms: int) -> Claims:
    """Returns what the token says. Refusal when no key has signed it, or it is not valid now, not for this cluster, or names no user."""
    if len(token) > TOKEN_LENGTH_MAX:
        raise Refusal(f"a token of {len(token)} characters")
    parts = token.split(".")
    if len(parts) != 3 or not all(map(_PART.fullmatch, parts)):
        raise Refusal("a token that is not signed, or is no JWT in its compact form")
    header, claims = _object(parts[0], "header"), _object(parts[1], "claims")
    message, signature = f"{parts[0]}.{parts[1]}".encode(), _decoded(parts[2], "signature")
    if "crit" in header:
        raise Refusal("a token whose header has an extension that must be understood")
    if not any(key.has_signed(signature, message) for key in _candidates(header, keys)):
        raise Refusal("a token whose signature is not that of its key")
    return _claims(claims, expected, now_ms)


def _candidates(header: Mapping[str, Any], keys: Sequence[SigningKey]) -> Sequence[SigningKey]:
    algorithm, key_id = header.get("alg"), header.get("kid")
    if key_id is None:
        fitting = [key for key in keys if key.algorithm == algorithm][:TRIED_MAX]
        if not fitting:
            raise Refusal("a token whose algorithm is that of no key")
        return fitting
    named = [key for key in keys if key.key_id == key_id][:TRIED_MAX]
    if not named:
        raise UnknownKeyError(str(key_id))
    if any(key.algorithm != algorithm for key in named):
        raise Refusal("a token that names another algorithm than its key's")
    return named


def _claims(claims: Mapping[str, Any], expected: Expected, now_ms: int) -> Claims:
    ends_ms, issued_ms = _time(claims, "exp"), _time(claims, "iat")
    begins_ms = _time(claims, "nbf") if "nbf" in claims else issued_ms
    if ends_ms + expected.skew_ms <= now_ms:
        raise Refusal("a token that has expired")
    if max(begins_ms, issued_ms) > now_ms + expected.skew_ms:
        raise Refusal("a token that is not good yet")
    if expected.issuer is not None and claims.get("iss") != expected.issuer:
        raise Refusal("a token of another issuer")
    if expected.audiences:
        named = claims.get("aud")
        audiences = [named] if isinstance(named, str) else named
        if not isinstance(audiences, list) or not any(audience in expected.audiences for audience in audiences):
            raise Refusal("a token for another audience")
    scope = claims.get(expected.scope_claim, "")
    if not isinstance(scope, str) and not (isinstance(scope, list) and all(isinstance(one, str) for one in scope)):
        raise Refusal("a token whose scope is neither a text nor a list of texts")
    subject = claims.get(expected.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise Refusal("a token without a subject")
    if len(subject) > SUBJECT_LENGTH_MAX or _SURROGATE.search(subject) is not None:
        raise Refusal(f"a token whose subject is no text, or has more than {SUBJECT_LENGTH_MAX} characters")
    return Claims(subject, ends_ms)


def _time(claims: Mapping[str, Any], name: str) -> int:
    """Returns the seconds of a claim, as milliseconds."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise Refusal(f"a token without a time in {name}")
    return int(value * 1000)


def _object(part: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(_decoded(part, what), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise Refusal(f"a token whose {what} cannot be read") from None
    if not isinstance(found, dict):
        raise Refusal(f"a token whose {what} cannot be read")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name that is there twice")
    return found


def _decoded(part: str, what: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(f"a token whose {what} is not base64url") from None


def _number(text: object) -> int:
    if not isinstance(text, str) or _PART.fullmatch(text) is None:
        raise ValueError("a number that is not base64url")
    return int.from_bytes(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_"), "big")

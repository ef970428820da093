"""SCRAM-SHA-256 and SCRAM-SHA-512: who has the password proves it, and the server proves that it has what was made of it.

Only what the exchange so far demands is accepted: the final nonce equals the nonce that was sent, ``c=`` is the header of the first
message, an authorization id is the name. Attributes that are repeated, mandatory extensions (``m=``) and extensions other
than ``tokenauth`` are refused. An unknown user gets a salt and an iteration count too, and fails at the proof.

Source: RFC 5802, RFC 7677, KIP-84, KIP-48 (tokenauth).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from msgspec import Struct

from ottla.security.mechanism import Answer, Refusal, not_shown
from ottla.types import Secret

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
"""What a cluster takes for a user, as Kafka's does."""
CLIENT_ITERATIONS_MAX: Final = 100_000
"""A server that asks a client for more would only keep it busy."""
SALT_BYTES: Final = 16
TOKEN_AUTH: Final = "tokenauth"
_MESSAGE_BYTES_MAX: Final = 16384
_GS2: Final = re.compile(r"(?:n|y),(?:a=(?P<authzid>(?:[^=,\0]|=2C|=3D)+))?,")
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")


class ScramMechanism(Enum):
    """Name, number in the metadata log and the wire, and hash."""

    SHA_256 = ("SCRAM-SHA-256", 1, "sha256")
    SHA_512 = ("SCRAM-SHA-512", 2, "sha512")

    def __init__(self, text: str, number: int, hash_name: str) -> None:
        self.text = text
        self.number = number
        self.hash_name = hash_name

    @classmethod
    def named(cls, text: str) -> ScramMechanism | None:
        return next((one for one in cls if one.text == text), None)

    @classmethod
    def numbered(cls, number: int) -> ScramMechanism | None:
        return next((one for one in cls if one.number == number), None)

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)

    def salted(self, password: Secret, salt: bytes, iterations: int) -> bytes:
        """Returns ``Hi`` of the RFC: milliseconds of work; OpenSSL's, which lets other threads run."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.reveal().encode(), salt, iterations)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The part of a password that a server keeps."""

    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted(cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        stored_key = mechanism.digest(mechanism.mac(salted, b"Client Key"))
        return cls(salt, stored_key, mechanism.mac(salted, b"Server Key"), iterations)


class ScramTokenUser(Protocol):
    """The principal of a delegation token."""

    @property
    def credential(self) -> ScramCredential: ...
    @property
    def name(self) -> str: ...
    @property
    def remaining_ms(self) -> int:
        """How long the token is still good."""
        ...


class ScramServer:
    """A ``ServerMechanism``. ``find`` gives a user's credential; ``nonce`` is random text; ``decoy_key`` this process's own secret.

    ``find_token`` returns the user that a delegation token stands for, by the token's id.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Callable[[str], ScramCredential | None],
        *,
        nonce: str,
        decoy_key: bytes,
        find_token: Callable[[str], ScramTokenUser | None] = lambda token_id: None,
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._find_token = find_token
        self._server_nonce = nonce
        self._decoy_key = decoy_key
        self._first: _ClientFirst | None = None
        self._server_first = ""
        self._nonce = ""
        self._credential: ScramCredential | None = None
        self._is_known = False

    def step(self, token: bytes) -> Answer:
        text = _text_of(token)
        return self._on_first(text) if self._first is None else self._on_final(text, self._first)

    def _on_first(self, text: str) -> Answer:
        self._first = first = _ClientFirst.parse(text)
        if first.authorization_id not in ("", first.name):
            raise Refusal("a SCRAM message whose authorization id is not its name")
        if first.by_token:
            user = self._find_token(first.name)
            known = None if user is None else user.credential
        else:
            known = self._find(first.name)
        self._is_known = known is not None
        self._credential = credential = self._decoy(first.name) if known is None else known
        self._nonce = first.nonce + self._server_nonce
        self._server_first = f"r={self._nonce},s={_base64(credential.salt)},i={credential.iterations}"
        return Answer(self._server_first.encode())

    def _on_final(self, text: str, first: _ClientFirst) -> Answer:
        credential, mechanism = self._credential, self._mechanism
        assert credential is not None, "there was a first message"
        without_proof, separator, proof_text = text.rpartition(",p=")
        attributes = _attributes(without_proof)
        if not separator or [name for name, _ in attributes] != ["c", "r"]:
            raise Refusal("a final SCRAM message that does not have the attributes c, r and p alone")
        (_, binding), (_, nonce) = attributes
        proof = _decoded(proof_text, "p")
        message = ",".join((first.bare, self._server_first, without_proof)).encode()
        signature = mechanism.mac(credential.stored_key, message)
        if len(proof) != len(signature):
            raise Refusal(f"a SCRAM proof of {len(proof)} bytes where there are {len(signature)}")
        client_key = bytes(one ^ other for one, other in zip(proof, signature))
        is_right = hmac.compare_digest(mechanism.digest(client_key), credential.stored_key)
        if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            raise Refusal("a final SCRAM message with another nonce")
        if _decoded(binding, "c") != first.header.encode():
            raise Refusal("a final SCRAM message with another channel binding")
        if not is_right or not self._is_known:
            raise not_shown(first.name if self._is_known else None)
        last = b"v=" + _base64(mechanism.mac(credential.server_key, message)).encode()
        if not first.by_token:
            return Answer(last, first.name)
        user = self._find_token(first.name)  # it may have ended since the first message
        if user is None:
            raise Refusal("a delegation token that has ended meanwhile")
        return Answer(last, user.name, first.name, user.remaining_ms)

    def _decoy(self, name: str) -> ScramCredential:
        """Returns a decoy, the same for the same name, until the process ends."""
        seed = hmac.digest(self._decoy_key, name.encode(), "sha512")
        length = hashlib.new(self._mechanism.hash_name).digest_size
        key = (hmac.digest(seed, b"key", "sha512"))[:length]
        return ScramCredential(seed[:SALT_BYTES], key, key, ITERATIONS_MIN)


class ScramClient:
    """The other side. ``first``, then ``final`` with the server's first message, then ``verify`` with its last.

    Of the password only what PBKDF2 makes of it is needed in ``final``: it takes milliseconds, and is for a thread.
    """

    def __init__(self, mechanism: ScramMechanism, name: str, password: Secret, *, nonce: str, by_token: bool = False) -> None:
        self.mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={_escaped(name)},r={nonce}" + (f",{TOKEN_AUTH}=true" if by_token else "")
        self._server_signature = b""

    def first(self) -> bytes:
        return b"n,," + self._bare.encode()

    def challenge(self, token: bytes) -> ScramChallenge:
        """Returns what the server asks for. Refusal when it is no answer to ``first``, or asks for too much."""
        text = _text_of(token)
        attributes = _attributes(text)
        if [name for name, _ in attributes] != ["r", "s", "i"]:
            raise Refusal("the server's first SCRAM message does not have the attributes r, s and i alone")
        nonce, salt_text, iterations_text = (value for _, value in attributes)
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise Refusal("the server's SCRAM nonce does not begin with this client's")
        if not iterations_text.isascii() or not iterations_text.isdigit() or len(iterations_text) > 9:
            raise Refusal("the server's SCRAM iterations are no number")
        iterations = int(iterations_text)
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise Refusal(f"the server asks for {iterations} SCRAM iterations; {ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX} are allowed")
        return ScramChallenge(text, nonce, _decoded(salt_text, "s"), iterations)

    def salted(self, challenge: ScramChallenge) -> bytes:
        return self.mechanism.salted(self._password, challenge.salt, challenge.iterations)

    def final(self, challenge: ScramChallenge, salted: bytes) -> bytes:
        """Returns the proof. From now on ``verify`` knows what the server must answer."""
        mechanism = self.mechanism
        without_proof = f"c={_base64(b'n,,')},r={challenge.nonce}"
        message = ",".join((self._bare, challenge.text, without_proof)).encode()
        client_key = mechanism.mac(salted, b"Client Key")
        signature = mechanism.mac(mechanism.digest(client_key), message)
        self._server_signature = mechanism.mac(mechanism.mac(salted, b"Server Key"), message)
        proof = bytes(one ^ other for one, other in zip(client_key, signature))
        return f"{without_proof},p={_base64(proof)}".encode()

    def verify(self, token: bytes) -> None:
        """Checks that the server knows the password's keys. Refusal when it does not."""
        text = _text_of(token)
        found = _decoded(text[2:], "v") if text.startswith("v=") else b""
        if not self._server_signature or not hmac.compare_digest(found, self._server_signature):
            raise Refusal("the server has not shown that it knows the user: it is not the one that was meant")


class ScramChallenge(Struct, frozen=True):
    """The server's first message."""

    text: str
    nonce: str
    salt: bytes
    iterations: int


class _ClientFirst(Struct, frozen=True):
    header: str
    bare: str
    authorization_id: str
    name: str
    nonce: str
    by_token: bool

    @classmethod
    def parse(cls, text: str) -> _ClientFirst:
        header = _GS2.match(text)
        if header is None:
            raise Refusal("a first SCRAM message without a header, or with a channel binding")
        bare = text[header.end() :]
        attributes = _attributes(bare)
        if [key for key, _ in attributes[:2]] != ["n", "r"]:
            raise Refusal("a first SCRAM message that does not begin with the attributes n and r")
        (_, name), (_, nonce), *extensions = attributes
        if not name or _NONCE.fullmatch(nonce) is None:
            raise Refusal("a first SCRAM message without a name, or with a nonce that is not printable")
        if any(key != TOKEN_AUTH for key, _ in extensions):
            raise Refusal("a SCRAM message with an extension that is not known")
        by_token = any(value.lower() == "true" for _, value in extensions)
        return cls(header[0], bare, _unescaped(header["authzid"] or ""), _unescaped(name), nonce, by_token)


def _text_of(token: bytes) -> str:
    if len(token) > _MESSAGE_BYTES_MAX:
        raise Refusal(f"a SCRAM message of {len(token)} bytes")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise Refusal(f"a SCRAM message of {len(token)} bytes that is not UTF-8") from None


def _attributes(text: str) -> list[tuple[str, str]]:
    """Returns name and value of each, in order; none comes twice."""
    found = []
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if not separator:
            raise Refusal("a SCRAM message with an attribute that has no value")
        found.append((name, value))
    if len({name for name, _ in found}) != len(found):
        raise Refusal("a SCRAM message with an attribute that is listed twice")
    return found


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(f"a SCRAM message whose attribute {name} is not base64") from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    if re.search(r"=(?!2C|3D)", name) or "\0" in name:
        raise Refusal("a SCRAM message with a name that is not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")

"""Java's key and trust stores, opened to PEM text: JKS by its own format, PKCS12 (RFC 7292) by the extra ``ottla[security]``.

The first bytes of a file say which of the two it is. How often a PKCS12 store wants its password hashed is bounded before it is opened.
INVALID_CONFIG, without anything of the store or its password, for one that cannot be read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.security.distinguished_name import Der
from ottla.types import Secret

JKS, PKCS12 = "JKS", "PKCS12"
ITERATIONS_MAX: Final = 1_000_000
"""Of hashing in a PKCS12 store; keytool's has 10,000, OpenSSL's 2,048."""
ENTRIES_MAX: Final = 10_000
DEPTH_MAX: Final = 24
_MAGIC_JKS: Final = b"\xfe\xed\xfe\xed"
_SEQUENCE, _OCTETS, _INTEGER, _CONSTRUCTED = 0x30, 0x04, 0x02, 0x20
_JKS_KEY, _JKS_TRUSTED = 1, 2
_JKS_KEY_ALGORITHM: Final = bytes.fromhex("2b060104012a02110101")  # 1.3.6.1.4.1.42.2.17.1.1
_DIGEST: Final = hashlib.sha1().digest_size


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """PEM texts. ``chain`` is that of the key, its own certificate first; ``trusted`` are the other certificates."""

    key: str | None = field(repr=False)
    chain: str
    trusted: str


def kind_of(data: bytes) -> str | None:
    """Returns JKS or PKCS12; None for text, which PEM is."""
    if data.startswith(_MAGIC_JKS):
        return JKS
    return PKCS12 if data[:1] == b"\x30" else None


def open_store(data: bytes, password: Secret | None, key_password: Secret | None) -> OpenedStore:
    """Opens a file for which ``kind_of`` is not None. ``key_password`` is the key's where it is not the store's."""
    try:
        if data.startswith(_MAGIC_JKS):
            return _Jks(data, password, key_password).opened()
        return _of_pkcs12(data, password)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from None


def _of_pkcs12(data: bytes, password: Secret | None) -> OpenedStore:
    for count in _iterations(data, 0):
        if count > ITERATIONS_MAX:
            raise DecodeError(f"it wants {count if count < 1 << 64 else 'too many'} iterations of hashing; {ITERATIONS_MAX} are allowed")
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "PKCS12 stores need the extra ottla[security]: pip install 'ottla[security]'") from None
    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.reveal().encode())
    except Exception:  # noqa: BLE001 - whatever it says may have parts of the store
        raise DecodeError("it cannot be read as a PKCS12 store, or its password is wrong") from None

    def pem(certificate: Any) -> str:
        text: str = certificate.certificate.public_bytes(Encoding.PEM).decode()
        return text

    others = [pem(certificate) for certificate in found.additional_certs]
    if found.key is None:
        own = [] if found.cert is None else [pem(found.cert)]
        return OpenedStore(None, "", "".join([*own, *others]))
    if found.cert is None:
        raise DecodeError("it has a private key, and no certificate of it")
    try:
        key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    except Exception:  # noqa: BLE001 - a kind of key that has no such form
        raise DecodeError("its private key is of a kind that TLS does not have") from None
    return OpenedStore(key, "".join([pem(found.cert), *others]), "".join([pem(found.cert), *others]))


def _iterations(data: bytes, depth: int) -> Iterator[int]:
    """Yields numbers that follow a salt, wherever they are: all that PKCS12 has of the kind, as far as it is not encrypted itself."""
    if depth > DEPTH_MAX:
        raise DecodeError("it is nested too deeply")
    values, after_salt = Der(data), False
    while not values.is_empty:
        try:
            tag, contents, _ = values.any()
        except DecodeError:
            return  # bytes that are no DER
        if tag == _INTEGER and after_salt:
            yield int.from_bytes(contents, "big")
        if tag & _CONSTRUCTED or (tag == _OCTETS and contents[:1] == b"\x30"):
            yield from _iterations(contents, depth + 1)
        after_salt = tag == _OCTETS


class _Jks:
    """A reader of one file: Sun's format, versions 1 and 2. What a password protects is verified by it."""

    def __init__(self, data: bytes, password: Secret | None, key_password: Secret | None) -> None:
        if password is not None:
            digest = hashlib.sha1(_utf16(password) + b"Mighty Aphrodite" + data[:-_DIGEST]).digest()
            if not hmac.compare_digest(digest, data[-_DIGEST:]):
                raise DecodeError("it is a damaged JKS store, or its password is wrong")
        self._data = data[:-_DIGEST]
        self._position = len(_MAGIC_JKS)
        self._version = self._number(4)
        self._password = key_password or password

    def opened(self) -> OpenedStore:
        if self._version not in (1, 2):
            raise DecodeError(f"it is a JKS store of version {self._version}; 1 and 2 are read")
        keys: list[str] = []
        chain: list[str] = []
        trusted: list[str] = []
        count = self._number(4)
        if count > ENTRIES_MAX:
            raise DecodeError(f"it has {count} entries; {ENTRIES_MAX} are read")
        for _ in range(count):
            kind = self._number(4)
            self._take(self._number(2))  # the alias
            self._take(8)  # when it was made
            if kind == _JKS_KEY:
                keys.append(_pem("PRIVATE KEY", self._key(self._take(self._number(4)))))
                chain = [self._certificate() for _ in range(self._counted())]
            elif kind == _JKS_TRUSTED:
                trusted.append(self._certificate())
            else:
                raise DecodeError("it has an entry that is neither a key nor a certificate")
        if len(keys) > 1:
            raise DecodeError(f"it has {len(keys)} private keys; one is expected")
        return OpenedStore(keys[0] if keys else None, "".join(chain), "".join([*chain, *trusted]))

    def _counted(self) -> int:
        count = self._number(4)
        if count > ENTRIES_MAX:
            raise DecodeError(f"it has a chain of {count} certificates")
        return count

    def _certificate(self) -> str:
        if self._version == 2:
            self._take(self._number(2))  # its type
        return _pem("CERTIFICATE", self._take(self._number(4)))

    def _key(self, protected: bytes) -> bytes:
        """Removes Sun's own protection: a stream of SHA-1 over password and salt, and a SHA-1 of the key."""
        if self._password is None:
            raise DecodeError("its key needs ssl.keystore.password")
        fields = Der(Der(protected).take(_SEQUENCE))
        if Der(fields.take(_SEQUENCE)).take(0x06) != _JKS_KEY_ALGORITHM:
            raise DecodeError("its key is protected in another way than JKS does")
        data, password = fields.take(_OCTETS), _utf16(self._password)
        salt, sealed, check = data[:_DIGEST], data[_DIGEST:-_DIGEST], data[-_DIGEST:]
        stream, block = b"", salt
        while len(stream) < len(sealed):
            block = hashlib.sha1(password + block).digest()
            stream += block
        key = bytes(one ^ other for one, other in zip(sealed, stream))
        if not hmac.compare_digest(hashlib.sha1(password + key).digest(), check):
            raise DecodeError("the password of its key is wrong: set ssl.key.password")
        return key

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise DecodeError("it is a JKS store that is cut")
        taken, self._position = self._data[self._position : end], end
        return taken


def _pem(label: str, data: bytes) -> str:
    text = base64.b64encode(data).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


def _utf16(password: Secret) -> bytes:
    return password.reveal().encode("utf-16-be", "surrogatepass")

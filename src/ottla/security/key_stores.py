"""Java's key and trust stores, opened to PEM text: JKS by its own format, PKCS12 (RFC 7292) by the extra ``ottla[security]``.

The first bytes of a file say which of the two it is. How often a PKCS12 store wants its password hashed is bounded before it is opened.
Trusted are entries of their own, which have a name of their own, and the certificate of a key, but not the authorities of its chain.
INVALID_CONFIG, without anything of the store or its password, for one that cannot be read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.security.distinguished_name import Der, subject_of
from ottla.types import Secret

JKS, PKCS12 = "JKS", "PKCS12"
ITERATIONS_MAX: Final = 1_000_000
"""Of hashing in a PKCS12 store; keytool's has 10,000, OpenSSL's 2,048."""
ENTRIES_MAX: Final = 10_000
DEPTH_MAX: Final = 24
_MAGIC_JKS: Final = b"\xfe\xed\xfe\xed"
_SEQUENCE, _OCTETS, _INTEGER, _OID, _CONSTRUCTED = 0x30, 0x04, 0x02, 0x06, 0x20
_KEY_BAGS: Final = (bytes.fromhex("2a864886f70d010c0a0101"), bytes.fromhex("2a864886f70d010c0a0102"))  # 1.2.840.113549.1.12.10.1.1 and 2
_JKS_KEY, _JKS_TRUSTED = 1, 2
_JKS_KEY_ALGORITHM: Final = bytes.fromhex("2b060104012a02110101")  # 1.3.6.1.4.1.42.2.17.1.1
_OLD_CIPHERS: Final = frozenset(
    [bytes.fromhex(f"2a864886f70d0105{last}") for last in ("01", "03", "04", "06", "0a", "0b")]  # PKCS5: DES and RC2
    + [bytes.fromhex(f"2a864886f70d010c01{last}") for last in ("01", "02", "05", "06")]  # PKCS12: RC4 and RC2
)
_DIGEST: Final = hashlib.sha1().digest_size


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """PEM texts. ``chain`` is that of the key, its own certificate first; ``trusted`` are those that a trust store of it has."""

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
    for tag, contents, follows_salt in _values(data, 0):
        count = int.from_bytes(contents, "big") if tag == _INTEGER and follows_salt else 0
        if count > ITERATIONS_MAX:
            raise DecodeError(f"it wants {count if count < 1 << 64 else 'too many'} iterations of hashing; {ITERATIONS_MAX} are allowed")
    key_count = sum(tag == _OID and contents in _KEY_BAGS for tag, contents, _ in _values(data, 0))
    if key_count > 1:
        raise DecodeError(f"it has {key_count} private keys; one is expected")
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "PKCS12 stores need the extra ottla[security]: pip install 'ottla[security]'") from None
    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.reveal().encode())
    except Exception:  # noqa: BLE001 - whatever it says may have parts of the store
        raise DecodeError("it cannot be read as a PKCS12 store, or its password is wrong") from None

    def pem(certificates: Iterable[Any]) -> str:
        return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)

    own = [] if found.cert is None else [found.cert.certificate]
    others = [added.certificate for added in found.additional_certs]
    if found.key is None:
        return OpenedStore(None, "", pem([*own, *others]))
    if not own:
        raise DecodeError("it has a private key, and no certificate of it")
    try:
        chain = _chain(own[0], others)
        entries = [added.certificate for added in found.additional_certs if _is_entry(added, Encoding.DER)]
    except ValueError:
        raise DecodeError("a name of its certificates cannot be read") from None
    try:
        key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    except Exception:  # noqa: BLE001 - a kind of key that has no such form
        raise DecodeError("its private key is of a kind that TLS does not have") from None
    return OpenedStore(key, pem(chain), pem([*own, *entries]))


def _chain(own: Any, others: Sequence[Any]) -> list[Any]:
    """Returns the certificate, its issuer's, and so on, as far as the others have them."""
    chain = [own]
    while chain[-1].issuer != chain[-1].subject:
        above = next((one for one in others if one.subject == chain[-1].issuer and one not in chain), None)
        if above is None:
            break
        chain.append(above)
    return chain


def _is_entry(added: Any, der: Any) -> bool:
    """Returns whether it is an entry of its own, and has the entry's name. One of a key's chain has none, or its subject's (Java)."""
    name = added.friendly_name
    return name is not None and name.decode(errors="replace") != subject_of(added.certificate.public_bytes(der))


def _values(data: bytes, depth: int) -> Iterator[tuple[int, bytes, bool]]:
    """Yields tag and contents of each value, wherever it is, and whether it follows a salt; what is encrypted is one value."""
    if depth > DEPTH_MAX:
        raise DecodeError("it is nested too deeply")
    values, after_salt = Der(data), False
    while not values.is_empty:
        try:
            tag, contents, _ = values.any()
        except DecodeError:
            return  # bytes that are no DER
        yield tag, contents, after_salt
        if tag & _CONSTRUCTED or (tag == _OCTETS and contents[:1] == b"\x30"):
            yield from _values(contents, depth + 1)
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
        return OpenedStore(keys[0] if keys else None, "".join(chain), "".join([*chain[:1], *trusted]))

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


def has_old_cipher(key: str) -> bool:
    """Returns whether a PEM key is encrypted by DES, RC2 or RC4 (PBES1), which OpenSSL 3 has only with its legacy provider."""
    body = key.partition("ENCRYPTED PRIVATE KEY-----")[2].partition("-----")[0]
    try:
        algorithm = Der(Der(Der(base64.b64decode(body)).take(_SEQUENCE)).take(_SEQUENCE)).take(_OID)
    except (ValueError, DecodeError):
        return False
    return algorithm in _OLD_CIPHERS


def _pem(label: str, data: bytes) -> str:
    text = base64.b64encode(data).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


def _utf16(password: Secret) -> bytes:
    return password.reveal().encode("utf-16-be", "surrogatepass")

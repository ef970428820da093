"""What a certificate that replaces another one may change while a node runs: neither whose it is, nor for fewer names (KIP-978).

And it has to be valid now.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.security.distinguished_name import Der, subject_of
from ottla.security.validity import fault_of
from ottla.tls import TlsKeys

DN_CHANGES, SAN_CHANGES = "ssl.allow.dn.changes", "ssl.allow.san.changes"
_WAY_OUT: Final = "=true in the node's file would allow it"
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _INTEGER, _OID, _BOOLEAN, _OCTETS, _VERSION, _EXTENSIONS = 0x30, 0x02, 0x06, 0x01, 0x04, 0xA0, 0xA3
_UNIQUE_IDS: Final = (0x81, 0x82)
_ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")  # 2.5.29.17


def check_change(old: TlsKeys, new: TlsKeys, *, may_change_subject: bool, may_lose_names: bool) -> None:
    """Raises INVALID_CONFIG, with the key that would allow it, when the new certificate has another subject, or fewer names."""
    if may_change_subject and may_lose_names:
        return
    try:
        before, after = _first(old.chain), _first(new.chain)
        subjects, names = (subject_of(before), subject_of(after)), (alternative_names(before), alternative_names(after))
    except (DecodeError, binascii.Error) as error:
        raise _refused(f"the certificate cannot be compared with the one before: {error}") from None
    if not may_change_subject and subjects[0] != subjects[1]:
        raise _refused(f"the new certificate is of {subjects[1]}, and the one before of {subjects[0]}: {DN_CHANGES}{_WAY_OUT}")
    if not may_lose_names and not names[0] <= names[1]:
        raise _refused(f"the new certificate lacks alternative names of the one before: {SAN_CHANGES}{_WAY_OUT}")


def check_validity(new: TlsKeys, *, now_ms: int) -> None:
    """Raises INVALID_CONFIG for a certificate that is not valid now: no client would connect, and none could set another one."""
    fault = fault_of(new.chain, now_ms)
    if fault is not None:
        raise _refused(f"the new certificate {fault}: put a valid one into the store first")


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """Returns the subject's alternative names of an X.509 certificate in DER, each as it is encoded. DecodeError for what is none."""
    fields = Der(Der(Der(certificate).take(_SEQUENCE)).take(_SEQUENCE))
    if fields.tag == _VERSION:
        fields.take(_VERSION)
    fields.take(_INTEGER)
    for _ in range(5):  # the signature's algorithm, the issuer, the time, the subject and its key
        fields.take(_SEQUENCE)
    while fields.tag in _UNIQUE_IDS:
        fields.any()
    if fields.tag != _EXTENSIONS:
        return frozenset()
    extensions = Der(Der(fields.take(_EXTENSIONS)).take(_SEQUENCE))
    while not extensions.is_empty:
        extension = Der(extensions.take(_SEQUENCE))
        kind = extension.take(_OID)
        if extension.tag == _BOOLEAN:
            extension.any()
        if kind == _ALTERNATIVE_NAMES:
            names = Der(Der(extension.take(_OCTETS)).take(_SEQUENCE))
            found = set()
            while not names.is_empty:
                found.add(names.any()[2])
            return frozenset(found)
    return frozenset()


def _first(chain: str) -> bytes:
    found = _PEM.search(chain)
    if found is None:
        raise DecodeError("there is no certificate in PEM form")
    return base64.b64decode(found[1])


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)

"""From when and until when a certificate is valid (RFC 5280, 4.1.2.5)."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Final

from ottla.errors import DecodeError
from ottla.security.distinguished_name import Der

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _INTEGER, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0x02, 0xA0, 0x17, 0x18
_SECOND: Final = 1000


def ends_ms(chain: str) -> int | None:
    """Returns the wall-clock milliseconds at which the first certificate of a PEM text expires; None where none can be read."""
    found = span_ms(chain)
    return None if found is None else found[1]


def span_ms(chain: str) -> tuple[int, int] | None:
    """Returns from and until which wall-clock milliseconds the first certificate of a PEM text is valid; None where none can be read."""
    found = _PEM.search(chain)
    if found is None:
        return None
    try:
        return validity_ms(base64.b64decode(found[1]))
    except (binascii.Error, DecodeError):
        return None


def fault_of(chain: str, now_ms: int) -> str | None:
    """Returns what is wrong with the first certificate of a PEM text at that time, as the end of a sentence; None for a valid one."""
    found = span_ms(chain)
    if found is None or found[0] <= now_ms < found[1]:
        return None
    if found[1] <= now_ms:
        return f"expired at {_shown(found[1])}"
    return f"is not valid before {_shown(found[0])}, and it is {_shown(now_ms)} here"


def _shown(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / _SECOND, UTC):%Y-%m-%dT%H:%M:%SZ}"


def validity_ms(certificate: bytes) -> tuple[int, int]:
    """Returns from when and until when an X.509 certificate in DER is valid. DecodeError for what is none."""
    fields = Der(Der(Der(certificate).take(_SEQUENCE)).take(_SEQUENCE))
    if fields.tag == _VERSION:
        fields.take(_VERSION)
    fields.take(_INTEGER)
    fields.take(_SEQUENCE)  # the signature's algorithm
    fields.take(_SEQUENCE)  # the issuer
    times = Der(fields.take(_SEQUENCE))
    return _time(times), _time(times)


def _time(times: Der) -> int:
    tag, value, _ = times.any()
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}.get(tag)
    try:
        if form is None:
            raise ValueError
        return int(datetime.strptime(value.decode("ascii"), form).replace(tzinfo=UTC).timestamp()) * _SECOND
    except (ValueError, OverflowError):
        raise DecodeError("a certificate whose validity cannot be read") from None

"""The subject of a certificate, as Java prints it (``X500Principal.getName()``, RFC 2253): what principals of TLS clients are made of.

The order is reversed, nine attributes have names, others are dotted with their encoding in hex; values are read as UTF-8 whatever their
type, and ``,+"\\<>;#=`` and outer spaces are escaped.
"""

from __future__ import annotations

from typing import Final

from ottla.errors import DecodeError

_NAMES: Final = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SEQUENCE, _SET, _OID, _INTEGER, _VERSION = 0x30, 0x31, 0x06, 0x02, 0xA0
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})


def subject_of(certificate: bytes) -> str:
    """Returns the subject of an X.509 certificate in DER. DecodeError for what is none."""
    body = Der(Der(certificate).take(_SEQUENCE)).take(_SEQUENCE)
    fields = Der(body)
    if fields.tag == _VERSION:
        fields.take(_VERSION)
    fields.take(_INTEGER)  # the serial number
    for _ in range(3):  # the signature's algorithm, the issuer, and from when until when it is valid
        fields.take(_SEQUENCE)
    return name_of(fields.take(_SEQUENCE))


def name_of(encoded: bytes) -> str:
    """Returns the text of a Name's contents in DER."""
    sets = []
    names = Der(encoded)
    while not names.is_empty:
        parts = []
        members = Der(names.take(_SET))
        while not members.is_empty:
            pair = Der(members.take(_SEQUENCE))
            kind = _oid(pair.take(_OID))
            parts.append(_attribute(kind, *pair.any()))
        sets.append("+".join(parts))
    return ",".join(reversed(sets))


def _attribute(kind: str, tag: int, value: bytes, encoded: bytes) -> str:
    name = _NAMES.get(kind)
    if name is None or tag not in _STRINGS:
        return f"{name or kind}=#{encoded.hex()}"
    text = value.decode(errors="replace")
    first = len(text) - len(text.lstrip(" \r"))
    last = len(text.rstrip(" \r"))
    return f"{name}=" + "".join(
        f"\\{character}" if character in _ESCAPED or not first <= at < last else "\\00" if character == "\0" else character
        for at, character in enumerate(text)
    )


def _oid(data: bytes) -> str:
    """Returns the dotted form."""
    numbers: list[int] = []
    value = 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if value >= 1 << 64:
            raise DecodeError("an object identifier with a number above 64 bits")
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers or data[-1] & 0x80:
        raise DecodeError("an object identifier that is cut")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


class Der:
    """A sequence of DER values. DecodeError for a length beyond the end, or an unexpected tag."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_empty(self) -> bool:
        return self._position >= len(self._data)

    @property
    def tag(self) -> int:
        return -1 if self.is_empty else self._data[self._position]

    def take(self, tag: int) -> bytes:
        """Returns the contents of the next value."""
        if self.tag != tag:
            raise DecodeError(f"a DER value of tag {self.tag} where {tag} is due")
        return self.any()[1]

    def any(self) -> tuple[int, bytes, bytes]:
        """Takes the next value, and returns its tag, its contents and all its bytes."""
        data, begin = self._data, self._position
        if begin + 2 > len(data):
            raise DecodeError("a DER value that is cut")
        length, position = data[begin + 1], begin + 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4 or position + count > len(data):
                raise DecodeError("a DER value with a length of another form")
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + length
        if end > len(data):
            raise DecodeError("a DER value that is longer than what there is")
        self._position = end
        return data[begin], data[position:end], data[begin:end]

"""The field for which a message cannot be encoded, in words: for errors, after the encoder has failed."""

from __future__ import annotations

import struct
from typing import Any, Final

from ottla.wire.primitives import STRING_BYTES_MAX
from ottla.wire.schema import DECLARATIONS, FIELDS, FIXED_FORMATS, Field, Message

_RANGES: Final = {"b": 2**7, "h": 2**15, "i": 2**31, "q": 2**63}
SHOWN_MAX: Final = 60


def mistake_of(message: Message, version: int) -> str | None:
    """Returns which field has what it cannot hold, and what it can; None where the search finds none."""
    return _of_struct(message, type(message), version, "", is_flexible=version >= DECLARATIONS[type(message)].flexible)


def _of_struct(given: Any, kind: type, version: int, path: str, *, is_flexible: bool) -> str | None:
    if not isinstance(given, kind):
        return f"{path.rstrip('.')} is {_shown(given)}: {kind.__name__} is expected"
    for name, field in FIELDS[kind].items():
        if field.is_in(version):
            found = _of_value(getattr(given, name), field, version, path + name, is_flexible=is_flexible)
            if found is not None:
                return found
    return None


def _of_value(given: Any, field: Field, version: int, path: str, *, is_flexible: bool) -> str | None:
    if given is None:
        may_be_null = field.is_nullable_in(version) or field.kind == "records" or (is_flexible and field.is_tagged_in(version))
        return None if may_be_null else f"{path} is None, which it may not be"
    if field.kind == "array":
        return _of_items(given, field, version, path, is_flexible=is_flexible)
    if field.kind == "struct":
        return _of_struct(given, field.element, version, f"{path}.", is_flexible=is_flexible)
    return _of_primitive(given, field.kind, path)


def _of_items(given: Any, field: Field, version: int, path: str, *, is_flexible: bool) -> str | None:
    if not isinstance(given, list | tuple):
        return f"{path} is {_shown(given)}: a list is expected"
    for index, item in enumerate(given):
        at = f"{path}[{index}]"
        if isinstance(field.element, Field):
            found = _of_value(item, field.element, version, at, is_flexible=is_flexible)
        elif isinstance(item, bytes):  # of encode_part
            found = None
        else:
            found = _of_struct(item, field.element, version, f"{at}.", is_flexible=is_flexible)
        if found is not None:
            return found
    return None


def _of_primitive(given: Any, kind: str, path: str) -> str | None:
    if kind == "string":
        return _of_text(given, path)
    code = FIXED_FORMATS[kind][0] if kind in FIXED_FORMATS else None
    if code is None or kind in ("uuid", "boolean"):
        return None
    try:
        struct.pack(code, given)
    except struct.error:
        end = _RANGES.get(code.lower())
        if end is None:
            return f"{path} is {_shown(given)}: a number is expected"
        low, high = (-end, end - 1) if code.islower() else (0, 2 * end - 1)
        return f"{path} is {_shown(given)}: a whole number from {low} to {high} is expected"
    return None


def _of_text(given: Any, path: str) -> str | None:
    if not isinstance(given, str):
        return f"{path} is {_shown(given)}: a string is expected"
    try:
        size = len(given.encode())
    except UnicodeEncodeError:
        return f"{path} is {_shown(given)}: it has characters that UTF-8 does not have"
    return f"{path} is a string of {size} bytes: at most {STRING_BYTES_MAX} can be sent" if size > STRING_BYTES_MAX else None


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."

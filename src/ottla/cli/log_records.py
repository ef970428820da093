"""Records of a segment file as a reader sees them: text where they are text, and the topics of brokers' own decoded.

What a topic holds is known by the name of its partition's directory. A key or value that is not UTF-8 is base64, and named so.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import msgspec

from ottla.errors import DecodeError
from ottla.records.iteration import Record
from ottla.types import CLUSTER_METADATA_TOPIC, GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, uuid_text

HIDDEN: Final = "[hidden]"


class Kind(Enum):
    """Whose records a file has."""

    APPLICATION = ""
    METADATA = CLUSTER_METADATA_TOPIC
    OFFSETS = GROUP_METADATA_TOPIC
    TRANSACTIONS = TRANSACTION_STATE_TOPIC


def kind_of(path: str) -> Kind:
    """Returns the kind by the partition's directory; snapshots of the metadata are anywhere."""
    topic = os.path.basename(os.path.dirname(os.path.abspath(path))).rpartition("-")[0]
    if path.endswith(".checkpoint"):
        return Kind.METADATA
    return next((kind for kind in Kind if kind.value and kind.value == topic), Kind.APPLICATION)


def described(record: Record, kind: Kind, *, show_secrets: bool) -> dict[str, Any]:
    """Returns the record as a JSON object; what cannot be decoded is shown as it is, with the reason."""
    head: dict[str, Any] = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
    decode = _DECODERS.get(kind)
    if decode is not None:
        try:
            return head | decode(record, show_secrets)
        except DecodeError as error:
            head["problem"] = error.message
            if kind is Kind.METADATA and not show_secrets:  # what cannot be read may hold anything
                return head | {"value": HIDDEN}
    for name, data in (("key", record.key), ("value", record.value)):
        head |= _text(name, data)
    if record.headers:
        head["headers"] = [{"key": name} | _text("value", content) for name, content in record.headers]
    return head


def line_of(item: dict[str, Any]) -> str:
    """Returns the object as one line; texts are written as JSON writes them, so that none of them has a second line."""
    return " ".join(f"{name}={value if isinstance(value, int) else msgspec.json.encode(value).decode()}" for name, value in item.items())


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: bytes(data).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _plain(value: Any) -> Any:
    """Returns structures as objects, ids as Kafka writes them, other bytes as base64."""
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return uuid_text(bytes(value)) if len(value) == 16 else base64.b64encode(value).decode()
    return value


def _metadata(record: Record, show_secrets: bool) -> dict[str, Any]:
    from ottla.metadata import redaction
    from ottla.metadata.records import decode_record

    value = bytes(record.value or b"")
    found = decode_record(value)
    is_hidden = not show_secrets and redaction.shown(value) == redaction.HIDDEN
    return {"type": type(found).__name__, "value": HIDDEN if is_hidden else _plain(found)}


def _offsets(record: Record, _: bool) -> dict[str, Any]:
    from ottla.groups.records import decode_record

    found = decode_record(bytes(record.key or b""), None if record.value is None else bytes(record.value))
    if found is None:
        raise DecodeError("a record of another kind of group")
    return {"type": type(found.key).__name__.removesuffix("Key"), "key": _plain(found.key), "value": _plain(found.value)}


def _transactions(record: Record, _: bool) -> dict[str, Any]:
    from ottla.messages.transaction_records import TransactionLogValue
    from ottla.transactions.records import decode_record
    from ottla.transactions.transaction import TransactionState

    found = decode_record(bytes(record.key or b""), None if record.value is None else bytes(record.value))
    if found is None:
        raise DecodeError("a record of a type that came later")
    value = _plain(found.value)
    if isinstance(found.value, TransactionLogValue):
        value["transaction_status"] = TransactionState(found.value.transaction_status).name
    return {"type": "TransactionLog", "key": _plain(found.key), "value": value}


_DECODERS: Final[dict[Kind, Callable[[Record, bool], dict[str, Any]]]] = {
    Kind.METADATA: _metadata,
    Kind.OFFSETS: _offsets,
    Kind.TRANSACTIONS: _transactions,
}

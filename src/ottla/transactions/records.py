"""Records of ``__transaction_state`` as bytes: a 2-byte record type before the key's body, a 2-byte version before the value's.

Values have version 0 at transaction.version 0, which has no tagged fields: producer ids of before and after, and the client's last epoch,
are forgotten at a failover. From level 1 on they have version 1. Both are read. Source: KIP-98, KIP-890.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.errors import DecodeError
from ottla.machine import StoredRecord
from ottla.messages.transaction_records import TransactionLogKey, TransactionLogValue
from ottla.transactions.transaction import TransactionState
from ottla.wire.compiler import decode, encode
from ottla.wire.primitives import STRING_BYTES_MAX
from ottla.wire.schema import DECLARATIONS

_PREFIX: Final = struct.Struct(">h")
_STATES: Final = frozenset(map(int, TransactionState))


def encode_record(record: StoredRecord, *, transaction_version: int) -> tuple[bytes, bytes | None]:
    """Returns key and value, for that finalized level; the value None for a tombstone."""
    assert isinstance(record.key, TransactionLogKey), "every record has the transactional id as its key"
    key = _PREFIX.pack(0) + encode(record.key, 0)
    if record.value is None:
        return key, None
    version = min(transaction_version, 1)
    return key, _PREFIX.pack(version) + encode(record.value, version)


def decode_record(key: bytes, value: bytes | None) -> StoredRecord | None:
    """Returns the record; None for a foreign record type. DecodeError for damaged bytes, and versions and states of the future."""
    record_type, key_body = _prefixed(key)
    if record_type != 0:
        return None
    decoded_key = decode(TransactionLogKey, 0, key_body)
    if value is None:
        return StoredRecord(decoded_key, None)
    version, value_body = _prefixed(value)
    low, high = DECLARATIONS[TransactionLogValue].versions
    if not low <= version <= high:
        raise DecodeError(f"TransactionLogValue has versions {low} to {high}, not {version}")
    found = decode(TransactionLogValue, version, value_body)
    if found.transaction_status not in _STATES:
        raise DecodeError(f"transaction {decoded_key.transactional_id!r} has the state {found.transaction_status}, which does not exist")
    return StoredRecord(decoded_key, found)


def fits_record(transactional_id: str) -> bool:
    """True when the id fits a record, whose strings have at most 32,767 bytes."""
    return len(transactional_id.encode()) <= STRING_BYTES_MAX


def _prefixed(data: bytes) -> tuple[int, bytes]:
    if len(data) < _PREFIX.size:
        raise DecodeError(f"{len(data)} bytes are too few for a record type or version")
    return _PREFIX.unpack_from(data)[0], data[_PREFIX.size :]

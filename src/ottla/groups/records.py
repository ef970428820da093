"""Records of ``__consumer_offsets`` as bytes.

A key is a 2-byte record type and a body, a value a 2-byte version and a body. Type 0 is the oldest form of an offset
commit, with the same body as type 1. Types 3 to 8 and 16 belong to consumer groups; types of share and streams groups are not read here.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.errors import DecodeError
from ottla.machine import StoredRecord
from ottla.messages import consumer_group_records as consumer
from ottla.messages.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from ottla.wire.compiler import decode, encode
from ottla.wire.primitives import STRING_BYTES_MAX
from ottla.wire.schema import DECLARATIONS, Stored

VALUE_VERSION: Final = 3
"""What every broker since 2.1 reads."""
EXPIRING_VERSION: Final = 1
"""Of offset commits only: the one version that has a time to expire, which clients before Kafka 2.1 choose."""
KEY_VERSION: Final = 0
_TYPES: Final[dict[int, tuple[type[Stored], type[Stored]]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (consumer.ConsumerGroupMetadataKey, consumer.ConsumerGroupMetadataValue),
    4: (consumer.ConsumerGroupPartitionMetadataKey, consumer.ConsumerGroupPartitionMetadataValue),
    5: (consumer.ConsumerGroupMemberMetadataKey, consumer.ConsumerGroupMemberMetadataValue),
    6: (consumer.ConsumerGroupTargetAssignmentMetadataKey, consumer.ConsumerGroupTargetAssignmentMetadataValue),
    7: (consumer.ConsumerGroupTargetAssignmentMemberKey, consumer.ConsumerGroupTargetAssignmentMemberValue),
    8: (consumer.ConsumerGroupCurrentMemberAssignmentKey, consumer.ConsumerGroupCurrentMemberAssignmentValue),
    16: (consumer.ConsumerGroupRegularExpressionKey, consumer.ConsumerGroupRegularExpressionValue),
}
_PREFIX: Final = struct.Struct(">h")


def encode_record(record: StoredRecord) -> tuple[bytes, bytes | None]:
    """Returns key and value; the value None for a tombstone."""
    assert record.key is not None, "records of a compacted topic have keys"
    key = _PREFIX.pack(DECLARATIONS[type(record.key)].code) + encode(record.key, KEY_VERSION)
    if record.value is None:
        return key, None
    expires = isinstance(record.value, OffsetCommitValue) and record.value.expire_timestamp >= 0
    highest = DECLARATIONS[type(record.value)].versions[1]
    version = EXPIRING_VERSION if expires else min(VALUE_VERSION, highest)
    return key, _PREFIX.pack(version) + encode(record.value, version)


def decode_record(key: bytes, value: bytes | None) -> StoredRecord | None:
    """Returns the record; None for a foreign record type. DecodeError for damaged bytes and versions of the future."""
    record_type, key_body = _prefixed(key)
    if record_type not in _TYPES:
        return None
    key_class, value_class = _TYPES[record_type]
    decoded_key = decode(key_class, KEY_VERSION, key_body)
    if value is None:
        return StoredRecord(decoded_key, None)
    version, value_body = _prefixed(value)
    low, high = DECLARATIONS[value_class].versions
    if not low <= version <= high:
        raise DecodeError(f"{value_class.__name__} has versions {low} to {high}, not {version}")
    return StoredRecord(decoded_key, decode(value_class, version, value_body))


def fits_record(text: str | None) -> bool:
    """True when the text fits a record, whose strings have at most 32,767 bytes."""
    return text is None or len(text) <= STRING_BYTES_MAX // 4 or len(text.encode()) <= STRING_BYTES_MAX


def _prefixed(data: bytes) -> tuple[int, bytes]:
    if len(data) < _PREFIX.size:
        raise DecodeError(f"{len(data)} bytes are too few for a record type or version")
    return _PREFIX.unpack_from(data)[0], data[_PREFIX.size :]

"""Records of the metadata log as they may be shown: without what proves an identity.

SCRAM credentials, delegation tokens and configuration values that are passwords are secret from all who read the log.
"""

from __future__ import annotations

from typing import Final

from ottla.config import BROKER_KEYS, find_broker_key
from ottla.errors import DecodeError
from ottla.messages.metadata_records import ConfigRecord, DelegationTokenRecord, UserScramCredentialRecord
from ottla.metadata.image import RESOURCE_BROKER
from ottla.metadata.records import decode_record

HIDDEN: Final = b"[hidden]"


def shown(value: bytes) -> bytes:
    """The record's bytes; ``HIDDEN`` where something in them is secret, or may be: what cannot be read is not shown either."""
    try:
        record = decode_record(value)
    except DecodeError:
        return HIDDEN
    match record:
        case UserScramCredentialRecord() | DelegationTokenRecord():
            return HIDDEN
        case ConfigRecord() if record.resource_type == RESOURCE_BROKER and _is_secret(record.name):
            return HIDDEN
    return value


def _is_secret(name: str) -> bool:
    """A key that is not known may be one of another broker's, and hold anything."""
    key = BROKER_KEYS.get(name) or find_broker_key(name)
    return key is None or key.is_sensitive

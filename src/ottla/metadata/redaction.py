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
    """Returns the record's bytes, or ``HIDDEN`` where something in them is or may be secret. What cannot be read is hidden, too."""
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
    """True unless the key is known as one that is not secret: an unknown key may be another broker's, and hold anything."""
    key = BROKER_KEYS.get(name) or find_broker_key(name)
    return key is None or key.is_sensitive

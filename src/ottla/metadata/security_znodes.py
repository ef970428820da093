"""The znodes of who may what: ACLs, SCRAM users and delegation tokens, as Apache Kafka 3.9 writes and reads them in ZooKeeper mode.

What is encoded here is byte for byte what Kafka would write. What is decoded never opens anything: a user or a token that cannot be read
is none, and an ACL that cannot be understood grants nothing. What it may have denied is not known, so its resource is *closed*, by one
ACL that denies everything to every user; with it gone, by a tool or by DeleteAcls, the znode is repaired.

ACLs have no ids there. Their ids are made of their contents: every controller makes the same. Source: Kafka 3.9's ZkData, AclEntry,
ScramCredentialUtils and DelegationTokenManagerZk, from which the test's golden vectors come.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ottla.errors import DecodeError
from ottla.messages.acl_codes import ANYBODY, WILDCARD, Operation, PatternType, Permission, ResourceType
from ottla.messages.metadata_records import AccessControlEntryRecord, DelegationTokenRecord, UserScramCredentialRecord
from ottla.metadata.acls import Pattern
from ottla.metadata.znodes import Reading, can_be_named, encode_json, json_object, sanitized, unsanitized

LITERAL_ACLS: Final = "/kafka-acl"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
ACL_ROOTS: Final[Mapping[PatternType, str]] = {PatternType.LITERAL: LITERAL_ACLS, PatternType.PREFIXED: PREFIXED_ACLS}
LITERAL_CHANGES: Final = "/kafka-acl-changes"
PREFIXED_CHANGES: Final = "/kafka-acl-extended-changes"
ACL_CHANGE: Final = "acl_changes_"
TOKENS: Final = "/delegation_token/tokens"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"
TOKEN_CHANGE: Final = "token_change_"
SCRAM: Final[Mapping[str, tuple[int, int]]] = {"SCRAM-SHA-256": (1, 32), "SCRAM-SHA-512": (2, 64)}
"""The keys of a user's configuration that are credentials: number of the mechanism, and the bytes of its hash."""
ITERATIONS_MIN: Final = 4096
"""A credential with fewer is none, as in Kafka."""
_INT_MAX: Final = 2**31 - 1
_VERSION: Final = 1
_TOKEN_VERSION: Final = 3


def _in_words(name: str) -> str:
    """Turns ``TRANSACTIONAL_ID`` into ``TransactionalId``."""
    return "".join(part.capitalize() for part in name.split("_"))


_CONCRETE: Final = 2  # what is below is of filters alone
TYPE_NAMES: Final[Mapping[ResourceType, str]] = {kind: _in_words(kind.name) for kind in ResourceType if kind >= _CONCRETE}
_TYPES: Final = {name: kind for kind, name in TYPE_NAMES.items()}
_OPERATIONS: Final = {_in_words(one.name).upper(): one for one in Operation if one >= _CONCRETE}
_PERMISSIONS: Final = {one.name: one for one in Permission if one >= _CONCRETE}
_TYPE_OF: Final = {int(kind): name for kind, name in TYPE_NAMES.items()}
_ROOT_OF: Final = {int(kind): root for kind, root in ACL_ROOTS.items()}
_WORDS_OF: Final = {int(one): _in_words(one.name) for one in Operation}  # looked up by number: members of enums are slow to make
_PERMISSION_OF: Final = {int(one): _in_words(one.name) for one in Permission}
ACL_BYTES: Final = 100
"""What an ACL takes in its znode beside its principal and host."""
PERSISTENT_OF_ACLS: Final = (
    *(f"{root}/{name}" for root in ACL_ROOTS.values() for name in TYPE_NAMES.values()),
    *(LITERAL_CHANGES, PREFIXED_CHANGES),
)
"""What there is, with the parents of each, once a broker goes by ACLs."""
PERSISTENT_OF_TOKENS: Final = (TOKENS, TOKEN_CHANGES)
"""The same for delegation tokens."""


# -- ACLs


def acl_path(pattern: Pattern) -> str:
    """Returns the path of the znode that holds the pattern's ACLs."""
    pattern_type, resource_type, name = pattern
    return f"{_ROOT_OF[pattern_type]}/{_TYPE_OF[resource_type]}/{name}"


def pattern_at(path: str) -> Pattern | None:
    """Returns the pattern whose ACLs are at the path; None for a path that Kafka does not look at."""
    for pattern_type, root in ACL_ROOTS.items():
        kind, _, name = path.removeprefix(f"{root}/").partition("/")
        if path.startswith(f"{root}/") and name and kind in _TYPES:
            return int(pattern_type), int(_TYPES[kind]), name
    return None


def acl_change(pattern: Pattern) -> tuple[str, bytes]:
    """Returns the notice of a change: the path's prefix, as the znode is sequential, and its data."""
    pattern_type, resource_type, name = pattern
    kind = ResourceType(resource_type).name
    if pattern_type == PatternType.LITERAL:
        return f"{LITERAL_CHANGES}/{ACL_CHANGE}", f"{kind}:{name}".encode()
    data = {"version": _VERSION, "resourceType": kind, "name": name, "patternType": PatternType(pattern_type).name}
    return f"{PREFIXED_CHANGES}/{ACL_CHANGE}", encode_json(data)


def decode_acl_change(data: bytes, path: str) -> Pattern:
    """Returns the pattern whose ACLs have changed, from a notice at that path. DecodeError for one that cannot be read."""
    with Reading(path):
        if path.startswith(f"{LITERAL_CHANGES}/"):
            kind, _, name = data.decode().partition(":")
            pattern_type = PatternType.LITERAL
        else:
            found = json_object(data, path)
            if found["version"] > _VERSION:
                raise ValueError(f"version {found['version']}")
            kind, name = found["resourceType"], found["name"]
            pattern_type = PatternType[found["patternType"].upper()]
        resource_type = ResourceType[kind.upper()]
        if not can_be_named(name) or resource_type not in TYPE_NAMES or pattern_type not in ACL_ROOTS:
            raise ValueError("no such resource")
        return int(pattern_type), int(resource_type), name
    raise AssertionError("it returns or raises")


class Acls(NamedTuple):
    """The ACLs of one znode. ``kept`` are entries that were not understood, and stay as they are. ``problem`` says what was wrong."""

    acls: Sequence[AccessControlEntryRecord]
    kept: Sequence[Any] = ()
    problem: str | None = None


def encode_acls(acls: Iterable[tuple[str, str, int, int]], kept: Sequence[Any] = ()) -> bytes:
    """Encodes the ACLs of one pattern: principal, host, operation and permission of each."""
    found: list[Any] = [
        {
            "principal": principal,
            "permissionType": _PERMISSION_OF[permission],
            "host": host,
            "operation": _WORDS_OF[operation],
        }
        for principal, host, operation, permission in acls
    ]
    return encode_json({"acls": [*found, *kept], "version": _VERSION})


def size_of(acls: Iterable[tuple[str, str, int, int]]) -> int:
    """Returns an upper bound of such a znode's size in bytes: no character of a name takes more than six."""
    return ACL_BYTES + sum(ACL_BYTES + 6 * (len(principal) + len(host)) for principal, host, _, _ in acls)


def says(data: bytes, pattern: Pattern, acls: Iterable[tuple[str, str, int, int]]) -> bool:
    """True when a controller that reads this finds exactly these ACLs."""
    return {acl.id for acl in decode_acls(data, pattern).acls} == {acl_record(pattern, *acl).id for acl in acls}


def decode_acls(data: bytes, pattern: Pattern) -> Acls:
    """Decodes the znode of the pattern; no data is no ACL. Raises nothing: an entry that is not understood grants nothing."""
    if not data:
        return Acls(())
    path = acl_path(pattern)
    try:
        with Reading(path):
            found = json_object(data, path)
            if found["version"] != _VERSION:
                raise ValueError(f"version {found['version']!r:.20}, where {_VERSION} is known")
            entries = found["acls"]
            if not isinstance(entries, list):
                raise TypeError("acls is no list")
    except DecodeError as error:
        return Acls((_closing(pattern),), (), error.message)
    acls: dict[bytes, AccessControlEntryRecord] = {}
    kept: list[Any] = []
    is_closed = False
    for entry in entries:
        acl = _acl(entry, pattern)
        if acl is not None:
            acls[acl.id] = acl
            continue
        kept.append(entry)
        is_closed = is_closed or not _is_allowing(entry)
    if kept and (is_closed or not acls):  # without any, the operator may have said that everyone may
        closing = _closing(pattern)
        acls[closing.id] = closing
    return Acls(tuple(acls.values()), tuple(kept), f"{path}: {len(kept)} of its ACLs cannot be understood" if kept else None)


def _acl(entry: Any, pattern: Pattern) -> AccessControlEntryRecord | None:
    """Returns the ACL of the entry, None for an entry that is not understood."""
    try:
        principal, host = entry["principal"], entry["host"]
        operation, permission = _OPERATIONS[entry["operation"].upper()], _PERMISSIONS[entry["permissionType"].upper()]
        kind, colon, name = principal.partition(":")
    except (TypeError, KeyError, AttributeError):
        return None
    if not (kind and colon and name and isinstance(host, str)):
        return None
    return acl_record(pattern, principal, host, operation, permission)


def _is_allowing(entry: Any) -> bool:
    said = entry.get("permissionType") if isinstance(entry, dict) else None
    return isinstance(said, str) and said.upper() == Permission.ALLOW.name


def _closing(pattern: Pattern) -> AccessControlEntryRecord:
    return acl_record(pattern, ANYBODY, WILDCARD, Operation.ALL, Permission.DENY)


def acl_record(pattern: Pattern, principal: str, host: str, operation: int, permission: int) -> AccessControlEntryRecord:
    """Returns an ACL whose id is derived from its contents."""
    pattern_type, resource_type, name = pattern
    contents = msgspec.json.encode([resource_type, name, pattern_type, principal, host, int(operation), int(permission)])
    acl_id = hashlib.sha256(contents).digest()[:16]
    return AccessControlEntryRecord(acl_id, resource_type, name, pattern_type, principal, host, int(operation), int(permission))


# -- SCRAM users


def encode_credential(record: UserScramCredentialRecord) -> tuple[str, str]:
    """Returns the key and the value of the user's configuration."""
    key = next(key for key, (mechanism, _) in SCRAM.items() if mechanism == record.mechanism)
    salt, stored_key, server_key = (_base64(data) for data in (record.salt, record.stored_key, record.server_key))
    return key, f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={record.iterations}"


def decode_credential(user: str, key: str, text: str) -> UserScramCredentialRecord:
    """Decodes a credential. DecodeError, whose text has nothing of the value, for a value that is none."""
    mechanism, length = SCRAM[key]
    parts = [part.partition("=") for part in text.split(",")]
    values = {name: value for name, _, value in parts}
    if len(parts) != len(values) or values.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise DecodeError(f"{key} has not a salt, a stored key, a server key and iterations, each once")
    try:
        salt, stored_key, server_key = (base64.b64decode(values[name], validate=True) for name in ("salt", "stored_key", "server_key"))
        iterations = int(values["iterations"])
    except (binascii.Error, ValueError):
        raise DecodeError(f"{key} has a value that cannot be read") from None
    if not salt or len(stored_key) != length or len(server_key) != length or not ITERATIONS_MIN <= iterations <= _INT_MAX:
        raise DecodeError(f"{key} has keys of another length than {length}, no salt, or fewer than {ITERATIONS_MIN} iterations")
    return UserScramCredentialRecord(user, mechanism, salt, stored_key, server_key, iterations)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# -- delegation tokens


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def decode_token_change(data: bytes, path: str) -> str:
    """Returns the path of the token that has changed. DecodeError for data that is no token id."""
    with Reading(path):
        token_id = data.decode()
        if not can_be_named(token_id):
            raise ValueError("no znode can have that name")
        return token_path(token_id)
    raise AssertionError("it returns or raises")


def encode_token(record: DelegationTokenRecord) -> bytes:
    """Encodes all about the token but its HMAC, which is in no znode."""
    return encode_json(
        {
            "issueTimestamp": record.issue_timestamp,
            "renewers": [sanitized(renewer) for renewer in record.renewers],
            "tokenRequester": sanitized(record.requester),
            "tokenId": record.token_id,
            "owner": sanitized(record.owner),
            "expiryTimestamp": record.expiration_timestamp,
            "maxTimestamp": record.max_timestamp,
            "version": _TOKEN_VERSION,
        }
    )


def decode_token(data: bytes, token_id: str) -> DelegationTokenRecord:
    """Decodes the token. DecodeError for data that is no token, or is a token with another id than its znode's name says."""
    path = token_path(token_id)
    found = json_object(data, path)
    with Reading(path):
        if not 1 <= found["version"] <= _TOKEN_VERSION or found["tokenId"] != token_id:
            raise ValueError(f"version {found['version']!r:.20}, or the id of another token")
        owner = _principal(found["owner"])
        requester = _principal(found["tokenRequester"]) if found["version"] >= _TOKEN_VERSION else owner
        issued, last, expires = (_time(found[name]) for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp"))
        return DelegationTokenRecord(owner, requester, list(map(_principal, found["renewers"])), issued, last, expires, token_id)
    raise AssertionError("it returns or raises")


def _time(found: Any) -> int:
    if type(found) is not int or not 0 <= found < 1 << 63:
        raise ValueError("a time that is none")
    return found


def _principal(text: str) -> str:
    principal = unsanitized(text)
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        raise ValueError("a principal without a type and a name")
    return principal

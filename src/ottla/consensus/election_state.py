"""The file ``quorum-state``: the epoch that a replica is in, whom it voted for, and who leads.

JSON, as Kafka writes it: ``data_version`` 0 for static voters, 1 with directory ids (KIP-853). It is replaced as one piece, and fsynced
before anything of it is announced. A damaged file must not count as absent: a replica that forgets a vote may vote twice.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

import msgspec

from ottla.errors import StorageError
from ottla.types import NO_LEADER
from ottla.wire.schema import ZERO_UUID

FILE_NAME: Final = "quorum-state"
NO_VOTE: Final = -1


class ElectionState(msgspec.Struct, frozen=True, gc=False):
    """The facts that a replica must remember through a restart."""

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted_id: int = NO_VOTE
    voted_directory: bytes = ZERO_UUID


def encode(election: ElectionState, *, voters: tuple[int, ...] | None = None) -> bytes:
    """Returns the file's bytes: version 0 with static ``voters``, version 1 without. ``decode`` never refuses them."""
    assert 0 <= election.epoch < 2**31, "an epoch that cannot be read is not persisted"
    assert -1 <= election.leader_id < 2**31, "nor is a leader that cannot be"
    assert -1 <= election.voted_id < 2**31, "nor a vote"
    known: dict[str, Any] = {
        "leaderId": election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": election.voted_id,
    }
    if voters is None:
        known |= {"votedDirectoryId": _text(election.voted_directory), "data_version": 1}
    else:
        known = {"clusterId": "", **known, "appliedOffset": 0, "currentVoters": [{"voterId": voter} for voter in voters], "data_version": 0}
    return json.dumps(known, separators=(",", ":")).encode()


def decode(data: bytes) -> ElectionState:
    """Decodes the file. StorageError, with what is wrong, when the bytes are not such a file."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise _damaged(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _damaged("is not a JSON object")
    version = _number(found, "data_version", 0)
    if version > 1:
        raise _damaged(f"has data_version {version}; 0 and 1 are known")
    election = ElectionState(
        _number(found, "leaderEpoch", 0),
        _number(found, "leaderId", NO_LEADER),
        _number(found, "votedId", NO_VOTE, default=NO_VOTE),
        _directory(found.get("votedDirectoryId", _text(ZERO_UUID))) if version == 1 else ZERO_UUID,
    )
    if election.voted_id == NO_VOTE and election.voted_directory != ZERO_UUID:
        raise _damaged("has a votedDirectoryId without a votedId")
    return election


def _number(found: dict[str, Any], key: str, low: int, *, default: int | None = None) -> int:
    value = found.get(key, default)
    if type(value) is not int or not low <= value < 2**31:
        raise _damaged(f"has {key}={value!r}, which is not a number from {low} on")
    return value


def _text(directory_id: bytes) -> str:
    return base64.urlsafe_b64encode(directory_id).decode().rstrip("=")


def _directory(text: Any) -> bytes:
    try:
        directory_id = base64.b64decode(f"{text}==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        directory_id = b""
    if len(directory_id) != 16:
        raise _damaged(f"has votedDirectoryId={text!r}, which is not an id of 22 characters")
    return directory_id


def _damaged(what: str) -> StorageError:
    return StorageError(f"{FILE_NAME} {what}; restore it, or remove this voter from the quorum and add it again with an empty directory")

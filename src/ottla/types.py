"""The nouns that every layer shares.

Offsets are exclusive ends where they end something (``end_offset``), and -1 means "unknown" on the wire.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Never

Headers = tuple[tuple[str, bytes | None], ...]
"""A record's headers: names, which may come more than once, and values, in their order."""

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
NO_LEADER: Final = -1

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""The name of the metadata log; no topic can have it."""

LATE_TRANSACTION_MS: Final = 300_000
"""After transaction.max.timeout.ms an open transaction is late: its coordinator should have aborted it by now."""

TOPIC_NAME_LENGTH_MAX: Final = 249


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic."""

    topic: str
    """The topic's name."""
    partition: int
    """The number of the partition, from 0."""

    def __init__(self, topic: str, partition: int, *positional: Never) -> None:
        if positional:
            raise TypeError('a TopicPartition has a topic and a number; an offset is given in a dict: {TopicPartition("orders", 0): 5}')
        object.__setattr__(self, "topic", topic)
        object.__setattr__(self, "partition", partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_text(uuid: bytes) -> str:
    """Returns 16 bytes as Kafka writes ids: base64 for URLs, without padding, 22 characters."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def topic_name_problem(name: str) -> str | None:
    """Returns why Kafka refuses the name, in words; None when it is legal (1-249 of ``[a-zA-Z0-9._-]``, not ``.`` or ``..``)."""
    if not name:
        return "the name is empty"
    if name in (".", ".."):
        return f"the name may not be {name!r}"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the name has {len(name)} characters, the limit is {TOPIC_NAME_LENGTH_MAX}"
    for character in name:
        if not (character.isascii() and (character.isalnum() or character in "._-")):
            return f"the character {character!r} is not one of ASCII letters, digits, '.', '_' and '-'"
    return None


def topic_text(name: str, *, is_absent: bool = False) -> str:
    """Returns the topic as errors name it, with what is wrong with its name, if anything is; else that it does not exist."""
    problem = topic_name_problem(name)
    return f"topic {name!r}" + (f": {problem}" if problem else " does not exist" if is_absent else "")


def uuid_bytes(text: str) -> bytes:
    """Returns the inverse of ``uuid_text``. ValueError for what is no such text."""
    decoded = base64.urlsafe_b64decode(text + "==")
    if len(decoded) != 16:
        raise ValueError(f"{text!r} is not an id of 22 characters")
    return decoded


class NamedInt(IntEnum):
    """A number of the protocol that is its name wherever it is printed, unless the format asks for the number (``:d``)."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(int(self) if spec.endswith("d") else self.name, spec)


class Secret:
    """A password or a key: shown as ``[hidden]`` wherever it is printed, logged or formatted; compared in constant time.

    Settings take a string in its place.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Returns the text itself."""
        return self._text

    def __repr__(self) -> str:
        return "[hidden]"

    def __format__(self, spec: str) -> str:
        return format("[hidden]", spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode("utf-8", "surrogatepass"), other._text.encode("utf-8", "surrogatepass"))

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        raise TypeError("a secret is not pickled")

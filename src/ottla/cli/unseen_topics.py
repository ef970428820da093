"""Topics that a command was not shown, because its user may not describe them: brokers leave them out, and answer without an error.

A name that no topic has is asked for: who may describe all topics is answered that there is none, and who may not is refused. The log
directories, which DESCRIBE on the cluster shows, list partitions of all topics: so what a broker holds can be counted all the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ottla.cli.client_settings import principal_of
from ottla.cli.missing_rights import UNNAMED
from ottla.errors import ErrorCode, KafkaError
from ottla.types import CLUSTER_METADATA_TOPIC, TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import LogDir
    from ottla.sync import Admin

TRIED_MAX: Final = 20
"""So many topics that were held and not listed are asked for by name; each may have been created or deleted between two answers."""


class Unseen(Struct, frozen=True):
    """The topics that were not looked at. ``partitions`` are those that brokers have, as far as they said; there may be more."""

    partitions: frozenset[TopicPartition]

    @property
    def problem(self) -> str:
        """What the user does not see, as a sentence."""
        topics = len({key.topic for key in self.partitions})
        count = len(self.partitions)
        others = f": {count} partition{'s'[: count != 1]} of {topics} other topic{'s'[: topics != 1]} {'is' if count == 1 else 'are'} there"
        return f"only the topics that {principal_of() or UNNAMED} may describe were looked at{others if count else ''}"

    @property
    def remedy(self) -> str:
        """The right with which all is seen."""
        allow = f"`ottla acl allow {principal_of() or 'User:NAME'} -o describe -o describe-configs --topic '*' --yes`"
        return f"who may alter the cluster allows it by {allow}, unless an ACL denies it (`ottla acl list`)"

    @property
    def text(self) -> str:
        """Both, on one line."""
        return f"{self.problem}; {self.remedy}"


def unseen_topics(admin: Admin, seen: Collection[str], held: Collection[TopicPartition] = ()) -> Unseen | None:
    """Returns what the user may not see; None where the user may describe all topics, and none that a broker holds is missing."""
    hidden = [key for key in held if key.topic not in seen and key.topic != CLUSTER_METADATA_TOPIC]
    if not _may_describe(admin, f"ottla-no-topic-{secrets.token_hex(8)}"):
        return Unseen(frozenset(hidden))
    denied = {name for name in sorted({key.topic for key in hidden})[:TRIED_MAX] if not _may_describe(admin, name)}
    return Unseen(frozenset(key for key in hidden if key.topic in denied)) if denied else None


def unseen_text(admin: Admin, seen: Collection[str]) -> str | None:
    """Returns the line for a command that has looked at all topics; None where these were all."""
    unseen = unseen_topics(admin, seen)
    return None if unseen is None else unseen.text


def held_by(directories: Collection[LogDir]) -> set[TopicPartition]:
    """Returns the partitions whose replicas these directories have."""
    return {replica.partition for found in directories for replica in found.replicas}


def _may_describe(admin: Admin, name: str) -> bool:
    try:
        admin.describe_topic(name)
    except KafkaError as error:
        return error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return True

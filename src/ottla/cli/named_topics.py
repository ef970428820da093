"""The topics and partitions that a command names, beside those that there are."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from ottla.cli.client_settings import user_of
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.cluster_metadata import TopicMetadata
    from ottla.sync import Admin


def chosen(names: Sequence[str], known: Mapping[str, TopicMetadata]) -> list[str]:
    """Returns the names, each once, with the topics that match in the place of an expression: internal ones never.

    UNKNOWN_TOPIC_OR_PARTITION where none matches.
    """
    found: dict[str, None] = {}
    for name in names:
        if not name.startswith("^"):
            found[name] = None
            continue
        try:
            expression = re.compile(f"(?:{name}).*")
        except re.error as error:
            raise click.UsageError(f"{name}: no regular expression: {error}") from None
        matching = [each for each, topic in sorted(known.items()) if not topic.is_internal and expression.fullmatch(each)]
        if not matching:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic{among_shown()} matches {name}; `ottla topic list` shows the topics"
            )
        found |= dict.fromkeys(matching)
    return list(found)


def among_shown() -> str:
    """Returns which topics an expression is tried on, where the command has a user: a list leaves out what that user may not see."""
    user = user_of()
    return "" if user is None else f" that {user} may describe"


def found_topic(admin: Admin, name: str, known: Mapping[str, TopicMetadata]) -> TopicMetadata:
    """Returns the topic. One that is not in the list of all topics is asked for by its name: a list leaves out what the user may not see.

    UNKNOWN_TOPIC_OR_PARTITION where it does not exist, TOPIC_AUTHORIZATION_FAILED without DESCRIBE on it.
    """
    return known[name] if name in known else admin.describe_topic(name)


def check_partitions(topic: str, wanted: Collection[int], there: Collection[int]) -> None:
    """Raises UNKNOWN_TOPIC_OR_PARTITION for the first of these partitions that the topic does not have."""
    for index in sorted(set(wanted) - set(there)):
        text = f"topic {topic!r} has no partition {index}; it has {len(there)}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)

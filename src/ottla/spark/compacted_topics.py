"""Topics that keep the newest record of each key, made where they are not there yet."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.admin import NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.lookup import Lookup
from ottla.spark.options import invalid
from ottla.types import topic_text


def topic_exists(lookup: Lookup, name: str) -> bool:
    return id_of(lookup, name) is not None


def id_of(lookup: Lookup, name: str) -> bytes | None:
    """Returns the topic's id, all zeros of brokers older than ids; None where there is no such topic."""
    cluster = lookup.link.cluster

    async def look() -> bytes | None:
        await cluster.refresh([name])
        code = cluster.topic_errors.get(name, ErrorCode.NONE)
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise KafkaError(code, topic_text(name))
        found = cluster.topics.get(name)
        return None if found is None else bytes(found.topic_id)

    return lookup.ask(look)


def ensure_compacted(lookup: Lookup, name: str, configs: Mapping[str, str], *, partition_count: int = -1) -> None:
    """Creates the topic, compacted, if it is missing. KafkaError INVALID_CONFIG for one of that name that would not keep each key."""
    admin = lookup.link.admin

    async def create() -> None:
        problem = (await admin.create_topics([NewTopic(name, partition_count, configs=configs)]))[name]
        if problem is not None and problem.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise problem

    if not topic_exists(lookup, name):
        lookup.ask(create)
    policy = config_of(lookup, name, "cleanup.policy")
    if policy != "compact":
        raise invalid(f"topic {name!r} has cleanup.policy={policy}, and needs compact to keep each key: delete the topic, or alter it")


def config_of(lookup: Lookup, name: str, key: str) -> str | None:
    """Returns the value of the topic's configuration key."""
    admin = lookup.link.admin

    async def describe() -> str | None:
        return (await admin.describe_config_of_topics([name], key)).get(name)

    return lookup.ask(describe)

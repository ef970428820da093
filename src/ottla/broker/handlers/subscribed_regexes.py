"""Which topics the regular expressions of a consumer group match, of those that the member may know of.

They are matched while the heartbeat that asks for it waits, in slices. Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.handlers.patterns import matcher
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.tasks.slices import Slices
from ottla.errors import KafkaError
from ottla.groups.consumer.commands import ResolveRegexes
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.metadata.image import ClusterImage


async def resolve(parts: Parts, context: RequestContext, group_id: str, regexes: tuple[str, ...], image: ClusterImage) -> None:
    """Lets the group know what the expressions match."""
    resolved = await _matched(parts, context, regexes, image)
    await parts.groups.ask(group_id, lambda token: ResolveRegexes(token, group_id, resolved, image))


async def _matched(parts: Parts, context: RequestContext, regexes: tuple[str, ...], image: ClusterImage) -> Mapping[str, frozenset[str]]:
    matchers = {regex: _matcher(regex) for regex in regexes}
    found: dict[str, set[str]] = {regex: set() for regex in regexes}
    async for name in Slices(parts.world.clock).over(tuple(image.topics)):
        matching = [regex for regex in regexes if matchers[regex](name)]
        if matching and context.may_quietly(Operation.DESCRIBE, ResourceType.TOPIC, name):
            for regex in matching:
                found[regex].add(name)
    return {regex: frozenset(names) for regex, names in found.items()}


def _matcher(regex: str) -> Callable[[str], Any]:
    """Returns the matcher. An expression that another coordinator took, and this one does not, matches nothing."""
    try:
        return matcher(regex)
    except KafkaError:
        return lambda name: None

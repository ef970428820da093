"""Changes of configuration on their way from a request to the controller, and back as one result for each resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.slices import Slices
from ottla.controller.configs import ConfigAlteration
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage

if TYPE_CHECKING:
    from ottla.broker.node import Broker

Alteration = Callable[[ClusterImage], ConfigAlteration]
CONFIGS_MAX: Final = 1000
"""Of one resource in one request: more than there are."""
Result = tuple[int, str | None, int, str]
"""Error code and message, resource type and name."""


async def alter_each(
    broker: Broker, resources: Sequence[tuple[int, str, Alteration | KafkaError]], slices: Slices, *, validate_only: bool
) -> AsyncIterator[Result]:
    """Each resource is changed as its alteration decides, or refused; one that is there twice is refused both times."""
    counts: Counter[tuple[int, str]] = Counter()
    async for kind, name, _ in slices.over(resources):
        counts[kind, name] += 1
    decisions = (_refusing(_twice(name)) if counts[kind, name] > 1 else _deciding(change) for kind, name, change in resources)
    outcomes = await broker.controller.decide(decisions, validate_only=validate_only)
    async for (kind, name, _), outcome in slices.over(zip(resources, outcomes, strict=True)):
        yield (outcome.code, outcome.message or None, kind, name) if isinstance(outcome, KafkaError) else (ErrorCode.NONE, None, kind, name)


def too_many_configs(count: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{count} configs of one resource; {CONFIGS_MAX} is the most")


def _twice(name: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{name[:200]!r} stands twice in the request")


def _deciding(change: Alteration | KafkaError) -> Alteration:
    return _refusing(change) if isinstance(change, KafkaError) else change


def _refusing(error: KafkaError) -> Alteration:
    def refuse(_: ClusterImage) -> ConfigAlteration:
        raise error

    return refuse

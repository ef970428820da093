"""Changes of configuration on their way from a request to the controller, and back as one result for each resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.controller.decided import Recorded
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage

if TYPE_CHECKING:
    from ottla.broker.node import Broker

Alteration = Callable[[ClusterImage], Recorded]
Result = tuple[int, str | None, int, str]
"""Error code and message, resource type and name."""


async def alter_each(broker: Broker, resources: Sequence[tuple[int, str, Alteration | KafkaError]], *, validate_only: bool) -> list[Result]:
    """Each resource is changed as its alteration decides, or refused; one that is there twice is refused both times."""
    counts = Counter((kind, name) for kind, name, _ in resources)
    decisions = [_refusing(_twice(name)) if counts[kind, name] > 1 else _deciding(change) for kind, name, change in resources]
    outcomes = await broker.controller.decide(decisions, validate_only=validate_only)
    return [
        (outcome.code, outcome.message or None, kind, name) if isinstance(outcome, KafkaError) else (ErrorCode.NONE, None, kind, name)
        for (kind, name, _), outcome in zip(resources, outcomes, strict=True)
    ]


def _twice(name: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{name[:200]!r} stands twice in the request")


def _deciding(change: Alteration | KafkaError) -> Alteration:
    return _refusing(change) if isinstance(change, KafkaError) else change


def _refusing(error: KafkaError) -> Alteration:
    def refuse(_: ClusterImage) -> Recorded:
        raise error

    return refuse

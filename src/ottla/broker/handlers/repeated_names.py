"""Names that a request lists more than once: each is refused, wherever it is listed, as Kafka does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final, TypeVar

from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError

N = TypeVar("N", bound=Hashable)

NAME_SHOWN_MAX: Final = 200
"""Characters of a name in the refusal: the client chose it, and is answered once for each time that it is listed."""


async def count_names(slices: Slices, names: Iterable[N]) -> Counter[N]:
    """Returns how often each name is listed."""
    return Counter([name async for name in slices.over(names)])


def refused_as_repeated(kind: str, name: str, count: int) -> KafkaError | None:
    """Returns INVALID_REQUEST for a name that is listed more than once; None for one that is not."""
    if count <= 1:
        return None
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{kind} {name[:NAME_SHOWN_MAX]!r} is listed {count} times in the request")

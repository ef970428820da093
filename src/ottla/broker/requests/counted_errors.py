"""The errors in a response: the one at its top, and the errors of its topics, partitions, groups and the like.

Kafka counts each of them (its ErrorsPerSec). Where a declaration has error codes is found once for each API, when its first answer
leaves. Elements that are encoded already (topics of Metadata) are passed over, and so are all after the first ``LOOKED_AT_MAX``: an answer
of a hundred thousand must not hold the loop. Produce and Fetch are not looked through for that: their handlers know of each error, and
most answers have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple

from ottla.errors import error_of
from ottla.messages.fetch import FetchResponse
from ottla.messages.produce import ProduceResponse
from ottla.metrics import RequestMeters
from ottla.types import uuid_text
from ottla.wire.schema import FIELDS, Response, Struct

COUNTED_BY_THEIR_HANDLERS: Final = frozenset({ProduceResponse, FetchResponse})
LOOKED_AT_MAX: Final = 1_000
_CODE: Final = "error_code"
_TOPIC: Final = ("topic", "topic_name", "name")
_PARTITION: Final = ("partition_index", "partition", "partition_id", "index")


class ErrorOf(NamedTuple):
    """An error, and the topic and the partition that it is of, where it is of one. ``topic`` is an id where the version has no names."""

    code: int
    topic: str | bytes | None = None
    partition: int | None = None


class _Place(NamedTuple):
    """The places of error codes in a declaration: at its own level, and in the structs of these fields."""

    has_code: bool
    below: tuple[tuple[str, bool, _Place], ...]  # the field, whether it is an array, and what its structs have
    topic: str | None
    partition: str | None


def meters_of(response: type[Response], version_max: int) -> RequestMeters:
    """Returns meters for the API that answers with it; whether it has errors further down is found with the first answer."""
    nested = None if response in COUNTED_BY_THEIR_HANDLERS else _codes_below
    return RequestMeters(version_max, has_error_code=_CODE in FIELDS[response], nested=nested)


def errors_in(response: Response) -> Iterator[ErrorOf]:
    """Yields each error of the response, the one at its top first."""
    for value, place, topic in islice(_structs(response, _place_of(type(response)), None), LOOKED_AT_MAX):
        if place.has_code and value.error_code:
            yield ErrorOf(value.error_code, topic, None if place.partition is None else getattr(value, place.partition))


def told_errors(response: Response, topic_names: Mapping[bytes, str]) -> dict[str, object]:
    """Returns what a log line says of them: the first, and the number of others."""
    found = errors_in(response)
    first = next(found, None)
    if first is None:
        return {}
    told: dict[str, object] = {"error": error_of(first.code).name}
    if first.topic is not None:
        told["topic"] = first.topic if isinstance(first.topic, str) else topic_names.get(first.topic) or uuid_text(first.topic)
    if first.partition is not None:
        told["partition"] = first.partition
    more = sum(1 for _ in found)
    return told | ({"more_errors": more} if more else {})


def _codes_below(response: Response) -> list[int]:
    place = _place_of(type(response))
    if not place.below:
        return []
    looked_at = islice(_structs(response, place, None), 1, LOOKED_AT_MAX)
    return [value.error_code for value, of, _ in looked_at if of.has_code and value.error_code]


def _structs(value: Any, place: _Place, topic: str | bytes | None) -> Iterator[tuple[Any, _Place, str | bytes | None]]:
    """Yields the struct and those below it, each with its place and its topic."""
    if place.topic is not None:
        topic = getattr(value, place.topic) or getattr(value, "topic_id", None) or topic
    yield value, place, topic
    for name, is_array, below in place.below:
        held = getattr(value, name)
        for member in (held or ()) if is_array else (held,):
            if isinstance(member, Struct):
                yield from _structs(member, below, topic)


@cache
def _place_of(declared: type) -> _Place:
    fields, below = FIELDS[declared], []
    for name, field in fields.items():
        if field.kind in ("array", "struct") and field.element in FIELDS:
            place = _place_of(field.element)
            if place.has_code or place.below:
                below.append((name, field.kind == "array", place))
    is_of_a_topic = "Topic" in declared.__name__ or "topic" in fields or "topic_id" in fields
    topic = next((name for name in _TOPIC if name in fields), None) if is_of_a_topic else None
    return _Place(_CODE in fields, tuple(below), topic, next((name for name in _PARTITION if name in fields), None))

"""Sentences for calls that Python, or a broker, would refuse in words of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from ottla.errors import ErrorCode, KafkaError

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K")


def with_brokers_first(init: Callable[P, None]) -> Callable[P, None]:
    """Returns a client's ``__init__``; a TypeError for topics among its positional arguments says where they are given."""

    @functools.wraps(init)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        _, *positional = args
        if len(positional) == 1 and positional[0] == kwargs.get("bootstrap_servers"):
            raise TypeError("the brokers' addresses are given twice: as the positional argument and as bootstrap_servers=")
        if len(positional) > 1 or (positional and "bootstrap_servers" in kwargs):
            raise TypeError(
                "the one positional argument is the brokers' addresses, the same as bootstrap_servers=; topics are arguments of a "
                'method: consumer = Consumer("localhost:9092", group_id="app"), then consumer.subscribe(["orders"])'
            )
        init(*args, **kwargs)

    return call


def listed(given: Iterable[T], call: str, kind: str = "names") -> list[T]:
    """Returns the items as a list. TypeError for a string: each of its characters would be an item, and the name of another thing."""
    if isinstance(given, str | bytes):
        raise TypeError(f"{call} takes a list of {kind}, not a {type(given).__name__}: [{given!r}]")
    return list(given)


def named(given: Iterable[str], call: str, kind: str = "names") -> list[str]:
    """Returns the names as a list. TypeError for a string in its place, and for a name that is none."""
    names = listed(given, call, kind)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{call} takes a list of {kind}, and {name!r} is no string")
    return names


def key_of(rest: list[Any]) -> Any:
    """Returns the key of a row of ``send_many``: what follows topic and value. TypeError where more does, which would be dropped."""
    if len(rest) > 1:
        raise TypeError(f"send_many takes (topic, value) or (topic, value, key), and a row ends with {rest!r}: use send for the rest")
    return rest[0]


def mapped(given: Mapping[K, T], call: str, example: str) -> Mapping[K, T]:
    """Returns what was given. TypeError where it is no dict, with an example of one."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{call} takes a dict, such as {example}, and not a {type(given).__name__}")
    return given


def check_count(name: str, count: object) -> None:
    """Raises TypeError for a count that is no whole number."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"{name}={count!r} is no whole number")


def check_milliseconds(timeout_ms: object) -> None:
    """Raises TypeError for a timeout that may be meant as seconds."""
    if not isinstance(timeout_ms, int):
        raise TypeError(f"timeout_ms={timeout_ms!r}: a whole number of milliseconds is expected, such as 1000 for a second")


def check_offset(offset: object) -> None:
    """Raises TypeError for what is no number, and KafkaError INVALID_REQUEST for a negative one."""
    if not isinstance(offset, int):
        raise TypeError(f"offset {offset!r} is no whole number")
    if offset < 0:
        text = f"offset {offset} is negative; seek_to_beginning and seek_to_end go to the first record and to the end"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def check_offsets(offsets: object, call: str = "commit", *kinds: type) -> None:
    """Raises TypeError for offsets to commit that are no dict of numbers, or of these kinds; INVALID_REQUEST for a negative one."""
    if not isinstance(offsets, Mapping):
        text = f"offsets are a record, or a dict of the next offset by partition, and not a {type(offsets).__name__}"
        raise TypeError(f'{text}: {call}(record), or {call}({{("orders", 0): record.offset + 1}})')
    for partition, offset in offsets.items():
        if not isinstance(offset, (int, *kinds)):
            raise TypeError(f"the offset of {partition} is {offset!r}, which is no whole number; give that of the next record to read")
        number: Any = getattr(offset, "offset", offset)
        if number < 0:
            text = f"the offset of {partition} is {offset!r}, which is negative; give that of the next record to read"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)

"""Sentences for calls that Python, or a broker, would refuse in words of their own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.types import EARLIEST_TIMESTAMP

P = ParamSpec("P")
T = TypeVar("T")
_WITHOUT_END: Final = "a program that waits without an end iterates over the consumer, or polls in a loop"
K = TypeVar("K")
OFFSET_MAX: Final = 2**63 - 1


def with_brokers_first(init: Callable[P, None]) -> Callable[P, None]:
    """Returns a client's ``__init__``; a TypeError for topics among its positional arguments says where they are given."""

    @functools.wraps(init)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        _, *positional = args
        if len(positional) == 1 and "bootstrap_servers" in kwargs and positional[0] == kwargs["bootstrap_servers"]:
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
    if not isinstance(given, Iterable):
        raise TypeError(f"{call} takes a list of {kind}, and not {given!r}")
    return list(given)


def members(given: Iterable[T], call: str, kind: type[T]) -> list[T]:
    """Returns the items as a list. TypeError for what is no list, and for an item that is none of the kind, such as another client's."""
    items = listed(given, call, kind.__name__)
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(
                f"{call} takes a list of {kind.__name__} of ottla.aio or ottla.sync, and not of {type(item).__name__}: {item!r}"
            )
    return items


def node_ids_of(given: Iterable[int], call: str) -> list[int]:
    """Returns the ids of brokers as a list. TypeError for what is no list, or no list of numbers."""
    ids = listed(given, call, "node ids")
    for node_id in ids:
        check_count("a node id", node_id)
    return ids


def named(given: Iterable[str], call: str, kind: str = "names") -> list[str]:
    """Returns the names as a list. TypeError for a string in its place, and for a name that is none."""
    names = listed(given, call, kind)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{call} takes a list of {kind}, and {name!r} is no string")
    return names


def cells_of(row: object) -> tuple[Any, Any, Any]:
    """Returns topic, value and key of a row of ``send_many``. TypeError for another row: what follows a key would be dropped."""
    if not isinstance(row, tuple | list) or len(row) < 2:
        raise TypeError(f"send_many takes (topic, value) or (topic, value, key), and a row is {row!r}")
    topic, value, *rest = row
    if len(rest) > 1:
        raise TypeError(f"send_many takes (topic, value) or (topic, value, key), and a row ends with {rest!r}: use send for the rest")
    return topic, value, rest[0] if rest else None


def note_sent(error: Exception, count: int) -> None:
    """Notes on the error of ``send_many`` how many rows were sent before, if any."""
    if count:
        error.add_note(f"send_many has sent {count} row{'s'[: count != 1]} before this one")


def mapped(given: Mapping[K, T], call: str, example: str) -> Mapping[K, T]:
    """Returns what was given. TypeError where it is no dict, with an example of one."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{call} takes a dict, such as {example}, and not a {type(given).__name__}")
    return given


def check_count(name: str, count: object) -> None:
    """Raises TypeError for a count that is no whole number."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"{name}={count!r} is no whole number")


def check_records_max(count: object) -> None:
    """Raises TypeError for a ``max_records`` that is no whole number, and KafkaError INVALID_REQUEST for one that asks for nothing."""
    check_count("max_records", count)
    if isinstance(count, int) and count < 1:
        text = f"max_records={count}: a number from 1 on is expected; leave it out for max_poll_records"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def check_name(what: str, name: object) -> None:
    """Raises TypeError for the name of a topic or a group that is no string."""
    if not isinstance(name, str):
        raise TypeError(f"{what}={name!r}: one name is expected, as a string")


def check_milliseconds(timeout_ms: object, way_out: str = _WITHOUT_END) -> None:
    """Raises TypeError for a timeout that may be meant as seconds, and KafkaError INVALID_REQUEST for one that may be meant as endless."""
    if not isinstance(timeout_ms, int):
        raise TypeError(f"timeout_ms={timeout_ms!r}: a whole number of milliseconds is expected, such as 1000 for a second")
    if timeout_ms < 0:
        text = f"timeout_ms={timeout_ms} is negative; {way_out}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def check_takes(function: Callable[..., object], what: str, *arguments: str) -> None:
    """Raises TypeError for a function that cannot be called with so many arguments by position; one that Python does not know passes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        text = f"{what} is called with {len(arguments)} argument{'s' * (len(arguments) > 1)}, {' and '.join(arguments)}"
        raise TypeError(f"{text}; this one takes {signature}") from None


def check_times(times: Mapping[Any, object]) -> None:
    """Raises TypeError for a time that is no whole number, such as ``time.time()`` or a ``datetime``; INVALID_REQUEST below -2."""
    for partition, time in times.items():
        if not isinstance(time, int):
            text = "whole milliseconds since 1970 are expected, such as int(time.time() * 1000) or int(moment.timestamp() * 1000)"
            raise TypeError(f"the time of {partition} is {time!r}: {text}")
        if not EARLIEST_TIMESTAMP <= time <= OFFSET_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the time of {partition} is {time}: milliseconds since 1970 are expected")


def check_offset(offset: object) -> None:
    """Raises TypeError for what is no number, and KafkaError INVALID_REQUEST for a negative one."""
    if not isinstance(offset, int):
        raise TypeError(f"offset {offset!r} is no whole number")
    if offset < 0:
        text = f"offset {offset} is negative; seek_to_beginning and seek_to_end go to the first record and to the end"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if offset > OFFSET_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"offset {offset} is larger than an offset can be")


def check_offsets(offsets: object, call: str = "commit", *kinds: type) -> None:
    """Raises TypeError for offsets to commit that are no dict of numbers, or of these kinds; INVALID_REQUEST for a negative one."""
    if not isinstance(offsets, Mapping):
        text = f"offsets are a record, or a dict of the next offset by partition, and not a {type(offsets).__name__}"
        raise TypeError(f'{text}: {call}(record), or {call}({{("orders", 0): record.offset + 1}})')
    for partition, offset in offsets.items():
        if not isinstance(offset, (int, *kinds)):
            text = f"the offset of {partition} is {offset!r}, which is no whole number; give that of the next record to read"
            if kinds and hasattr(offset, "metadata"):  # of another client
                text += ", or an OffsetAndMetadata of ottla.aio or ottla.sync"
            raise TypeError(text)
        number: Any = getattr(offset, "offset", offset)
        if number < 0:
            text = f"the offset of {partition} is {offset!r}, which is negative; give that of the next record to read"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if number > OFFSET_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the offset of {partition} is {offset!r}, which is larger than an offset can be")

"""A record on its way out: serialized and checked, before it touches a queue.

What cannot be sent is refused here with a TypeError that says what to write instead; a batch that held such a record would fail entirely.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ottla.errors import ErrorCode, KafkaError
from ottla.types import Headers

Serializer = Callable[[Any], bytes | None]
"""Makes bytes, or None, of a key or a value that ``send`` was given."""
HeadersLike = Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]
"""A record's headers as they may be given: a dict by name, or pairs of name and value where a name occurs more than once."""


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A record that may be sent."""

    topic: str
    partition: int | None  # None: where the partitioner says
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    size_bytes: int  # of key, value and headers


def prepare(
    topic: str,
    value: Any,
    *,
    key: Any,
    partition: int | None,
    headers: HeadersLike,
    timestamp_ms: int,
    key_serializer: Serializer | None,
    value_serializer: Serializer | None,
    size_bytes_max: int,
) -> Outgoing:
    """Returns the record as it is sent. TypeError for a wrong type, MESSAGE_TOO_LARGE for what no request could hold."""
    if type(topic) is not str or not topic:
        raise TypeError("the topic is '': its name must not be empty" if topic == "" else f"the topic is {topic!r}: give its name as a str")
    if key_serializer is not None:
        key = _serialized("key", key_serializer, key)
    if value_serializer is not None:
        value = _serialized("value", value_serializer, value)
    if key is not None and type(key) is not bytes:
        key = _as_bytes("key", key)
    if value is not None and type(value) is not bytes:
        value = _as_bytes("value", value)
    if partition is not None and type(partition) is not int:
        raise TypeError(f"partition={partition!r}: give an int, or None for the partitioner's choice")
    if type(timestamp_ms) is not int or not 0 <= timestamp_ms < 2**63:
        raise TypeError(f"timestamp_ms={timestamp_ms!r}: give milliseconds since 1970 as an int, 0 or more")
    size = len(key or b"") + len(value or b"")
    pairs: Headers = ()
    if headers:
        pairs = _as_pairs(headers)
        size += sum(len(name) + len(content or b"") for name, content in pairs)
    if size > size_bytes_max:
        text = f"a record of {size} bytes is larger than max_request_size={size_bytes_max} of the producer"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{text}; where that is raised, max.message.bytes of topic {topic!r} limits it, too")
    return Outgoing(topic, partition, key, value, pairs, timestamp_ms, size)


def _serialized(what: str, serializer: Serializer, given: object) -> object:
    """Returns what the serializer makes of the key or the value. A note of what it raises names the setting, and not the content."""
    try:
        content: object = serializer(given)
    except Exception as error:
        why = f"; a record without a {what} gives it None" if given is None else ""
        error.add_note(f"{what}_serializer raised this for a {what} of type {type(given).__name__}{why}")
        raise
    if content is None or isinstance(content, bytes | bytearray | memoryview):
        return content
    kind = type(content).__name__
    if inspect.iscoroutine(content):
        content.close()  # else Python warns that it was never awaited
    why = "coroutine: give a plain function, which is not awaited" if kind == "coroutine" else f"{kind}: it is to return bytes or None"
    raise TypeError(f"{what}_serializer returned a {why}")


def _as_bytes(what: str, content: object) -> bytes:
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    way_out = "encode it: headers have no serializer" if what.startswith("header") else f"set {what}_serializer"
    raise TypeError(f"the {what} is of type {type(content).__name__}: give bytes or None, or {way_out}")


def _as_pairs(headers: HeadersLike) -> Headers:
    try:
        pairs = tuple(headers.items()) if isinstance(headers, Mapping) else tuple((name, content) for name, content in headers)
    except (TypeError, ValueError):
        raise TypeError("headers are a dict of names and bytes, or a list of such pairs") from None
    for name, _ in pairs:
        if not isinstance(name, str):
            raise TypeError(f"a header's name is of type {type(name).__name__}: give a str")
    return tuple((name, None if content is None else _as_bytes(f"header {name!r}", content)) for name, content in pairs)

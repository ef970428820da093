"""Records as a history knows them: by key and value, whichever client they come from or go to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_BYTES = (bytes, bytearray, memoryview)


class Seen(NamedTuple):
    """A record that a consumer got, for ``History.polled``. ``value`` is None when a deserializer has hidden what is in the log."""

    topic: str
    partition: int
    offset: int
    value: str | None


def record_text(key: Any, value: Any) -> str:
    """Returns the text that stands for a record in a history. Key and value are bytes, text or None."""
    texts = ["(null)" if part is None else part if isinstance(part, str) else _text(part) for part in (key, value)]
    return texts[1] if key is None else ": ".join(texts)


def sent_text(client: Any, topic: str, key: Any, value: Any) -> str:
    """Returns the same text for what an application gives to its producer, with the serializers found where each client keeps them."""
    return record_text(_serialized(client, "key", topic, key), _serialized(client, "value", topic, value))


def seen_in(polled: Any) -> Iterator[Seen]:
    """Yields the records that a poll returned: a record or none, a list, or lists by partition. Errors are no records."""
    if polled is None:
        return
    if isinstance(polled, Mapping):
        for records in polled.values():
            yield from seen_in(records)
    elif isinstance(polled, list):
        for record in polled:
            yield from seen_in(record)
    elif not callable(polled.topic):
        yield _seen(polled.topic, polled.partition, polled.offset, polled.key, polled.value)
    elif polled.error() is None:  # a message of confluent-kafka
        yield _seen(polled.topic(), polled.partition(), polled.offset(), polled.key(), polled.value())


def _seen(topic: str, partition: int, offset: int, key: Any, value: Any) -> Seen:
    is_raw = all(part is None or isinstance(part, _BYTES) for part in (key, value))
    return Seen(topic, partition, offset, record_text(key, value) if is_raw else None)


def _text(part: Any) -> str:
    return bytes(part).decode(errors="backslashreplace") if isinstance(part, _BYTES) else repr(part)


def _serialized(client: Any, which: str, topic: str, part: Any) -> Any:
    serializer = _serializer(client, f"{which}_serializer")
    if serializer is None:
        return part
    # Serializers of kafka-python are objects; other clients have functions.
    return serializer.serialize(topic, [], part) if hasattr(serializer, "serialize") else serializer(part)


def _serializer(client: Any, name: str) -> Any:
    inner = getattr(client, "_inner", client)  # of ottla.sync
    settings = getattr(inner, "_settings", None)
    if settings is not None:
        return getattr(settings, name, None)
    config = getattr(client, "config", None)
    return config.get(name) if isinstance(config, Mapping) else getattr(client, f"_{name}", None)

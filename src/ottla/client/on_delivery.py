"""The callback that a caller may pass with a record."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

from ottla.client.accumulator import RecordMetadata
from ottla.client.wrong_calls import check_takes
from ottla.errors import KafkaError

log: Final = logging.getLogger("ottla.client")  # as in watch.py
OnDelivery = Callable[[RecordMetadata | None, KafkaError | None], object]
"""A plain function, called once for a record: with (metadata, None) when it was stored, with (None, error) when it was not."""


_CHECKED: dict[str, object] = {}
"""The code of the callback that was looked at last: a program gives the same one, or a lambda of the same line, with each record."""


def check_callback(on_delivery: object) -> None:
    """Raises TypeError for what cannot be called back: the record would be sent, and no one would learn what became of it."""
    if not callable(on_delivery):
        raise TypeError(f"on_delivery={on_delivery!r} is no function: it is called with (metadata, None) or (None, error)")
    code = getattr(on_delivery, "__code__", None)  # of a function, or of a method
    if code is not None and code.co_flags & inspect.CO_COROUTINE:
        raise TypeError("on_delivery is a coroutine function, which would not be awaited: give a plain one, or await the future of send")
    if code is None or code is not _CHECKED.get("code"):
        check_takes(on_delivery, "on_delivery", "the metadata", "the error")
        _CHECKED["code"] = code


def report(done: Any, on_delivery: OnDelivery) -> None:
    """Calls the callback with what the future holds. What it raises is logged: no caller is there to take it."""
    if done.cancelled():
        return
    error = done.exception()
    place = None if error is not None else done.result()
    try:
        on_delivery(place, error)
    except Exception as problem:  # the application's edge
        what = f"was not delivered: {error}" if place is None else f"was stored at {place.topic}-{place.partition} offset {place.offset}"
        log.exception("on_delivery raised %s: %s; the record %s", type(problem).__name__, problem, what)

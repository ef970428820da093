"""The callback that a caller may pass with a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.client.accumulator import RecordMetadata
from ottla.errors import KafkaError

OnDelivery = Callable[[RecordMetadata | None, KafkaError | None], object]
"""Called once for a record, with where it landed or with why it did not."""


def report(done: Any, on_delivery: OnDelivery) -> None:
    """Calls the callback with what the future holds."""
    if done.cancelled():
        return
    error = done.exception()
    if error is None:
        on_delivery(done.result(), None)
    else:
        on_delivery(None, error)

"""What tests of the signals that end a command share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from ottla.runtime.stops import STOPS


@pytest.fixture
def heard_by_default() -> Iterator[None]:
    """A SIGHUP that nothing else hears does not end the tests; the handlers return afterwards."""
    before = {number: signal.getsignal(number) for number in STOPS}
    signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)

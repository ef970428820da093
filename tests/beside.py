"""Work in a thread while a block of a test runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

JOIN_SECONDS_MAX: Final = 120.0


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """``work`` runs until the block is over, which the event says to it; what went wrong in it is raised then."""
    is_over = threading.Event()
    found: list[BaseException] = []

    def run() -> None:
        try:
            work(is_over)
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the block raises it
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(JOIN_SECONDS_MAX)
    assert not thread.is_alive(), "the work beside the block does not end"
    if found:
        raise found[0]

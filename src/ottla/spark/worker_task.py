"""What a task keeps in its Python worker, which has the next one, too.

Spark's daemon collects garbage after each task, while the next one may wait for the worker or for its core. To look at a hundred thousand
objects of modules again takes 30 to 80 ms of processor time, more than a small task's own.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def worker_task() -> Iterator[None]:
    """Takes all objects that are there at the end of the worker's first task out of later collections."""
    yield
    if not gc.get_freeze_count():
        gc.freeze()

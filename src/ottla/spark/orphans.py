"""The driver-side process of a streaming read, which ends with the JVM that has started it.

Spark ends it with its query, but not where that is stopped while the process is asked for the first time: of a pipeline that had ended it
would go on to wait for brokers that are away, for minutes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Final

RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""The program of such a process."""
LOOK_S: Final = 1.0
_WATCHED: Final[set[int]] = set()


def end_with_jvm(runner: str = RUNNER) -> None:
    """Lets this process end with its parent, where it runs that program; others have their own ends."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or spec.name != runner or os.getpid() in _WATCHED:
        return
    _WATCHED.add(os.getpid())
    threading.Thread(target=_watch, args=(os.getppid(),), name="ottla-orphans", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(0)

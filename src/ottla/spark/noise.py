"""What PySpark's own threads say on stderr when their JVM has ended, or a user's function has raised: tracebacks, in a file instead.

py4j logs each call of Python that fails, the server of accumulators prints what its connection raises, and a thread of theirs prints what
ends it. None of it is news: what a query has failed for, or that the JVM has ended, is raised where it was asked for.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Final

PACKAGES: Final = ("py4j", "pyspark")


def keep_in(log_file: Path) -> None:
    """Lets these threads add to the file what they would say on stderr. Other threads, and other loggers, stay as they are."""
    handler = _QuietFile(log_file, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s driver %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("py4j")
    for earlier in [found for found in logger.handlers if isinstance(found, logging.FileHandler)]:
        logger.removeHandler(earlier)
        earlier.close()
    logger.addHandler(handler)
    logger.propagate = False
    before = threading.excepthook

    def note(arguments: threading.ExceptHookArgs) -> None:
        if is_of_pyspark(arguments.exc_traceback):
            add(log_file, "".join(traceback.format_exception(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)))
        else:
            before(arguments)

    threading.excepthook = note
    accumulators = _accumulators()
    if accumulators is not None:
        accumulators.handle_error = lambda *_: add(log_file, traceback.format_exc())


class _QuietFile(logging.FileHandler):
    """A file that leaves out what it has no room for: logging would print that on stderr, with another traceback.

    So does one whose directory is gone, as after the end of a session.
    """

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def add(log_file: Path, text: str) -> None:
    """Adds the text to the file, where there is room for it."""
    with contextlib.suppress(OSError), log_file.open("a", encoding="utf-8") as log:
        log.write(text)


def is_of_pyspark(raised: TracebackType | None) -> bool:
    """Returns whether the thread was one of PySpark's or py4j's: the first code of a package in its traceback is theirs."""
    for frame, _ in traceback.walk_tb(raised):
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in ("threading", "socketserver"):
            return name.partition(".")[0] in PACKAGES
    return False


def _accumulators() -> Any:
    """Returns the server that accumulators of this process's session are sent to; None without one."""
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    return getattr(context, "_accumulatorServer", None)

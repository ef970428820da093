"""Logs of a broker that was started from the command line: one event, one line, on standard error."""

from __future__ import annotations

import contextlib
import logging
import sys
from functools import partial
from typing import TextIO, cast

import structlog
from structlog.types import EventDict, Processor, WrappedLogger

from ottla.loggers import ROOT, drop_below_level, set_levels


class _Lines:
    """A stream that loses what cannot be written, on a closed terminal, on a full disk or without a reader: the broker goes on."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.flush()


def configure_logging(level: str, *, json: bool | None = None, node_id: int | None = None) -> None:
    """Sets up lines for people on a terminal, JSON otherwise; ``json`` decides when it is given.

    With ``node_id`` every line says whose it is: for nodes that write to one place.
    """
    set_levels([(ROOT, {"WARNING": "WARN"}.get(level.upper(), level.upper()))])
    is_terminal = sys.stderr is not None and sys.stderr.isatty()  # None where a shell has closed it
    rendering: list[Processor] = [_what_matters_first, structlog.processors.JSONRenderer()]
    if is_terminal if json is None else not json:
        # What a client names itself is shown by its repr, so that it neither starts a line nor commands a terminal.
        rendering = [_traceback_as_value, structlog.dev.ConsoleRenderer(colors=is_terminal, pad_event_to=0, repr_native_str=True)]
    structlog.configure(
        processors=[
            drop_below_level,
            *([] if node_id is None else [partial(_of_node, node_id)]),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),  # the level is decided logger by logger
        # A line is one write: no end of the process, and no other process at that stream, comes between it and its end.
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Lines(sys.stderr))),
        cache_logger_on_first_use=True,
    )


def _what_matters_first(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Puts time, level and event first: then the rest, as it came."""
    first = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
    return {**first, **event}


def _of_node(node_id: int, _: WrappedLogger, __: str, event: EventDict) -> EventDict:
    event["node"] = node_id
    return event


def _traceback_as_value(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Renames an ``exception``, whose lines the renderer would print as lines."""
    if "exception" in event:
        event["traceback"] = event.pop("exception")
    return event

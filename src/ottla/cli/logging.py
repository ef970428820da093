"""Logs of a broker that was started from the command line: one event, one line, on standard error."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(level: str, *, json: bool | None = None) -> None:
    """Lines for people on a terminal, JSON otherwise; ``json`` decides when it is given."""
    as_json = not sys.stderr.isatty() if json is None else json
    renderer = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(pad_event_to=0)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if as_json else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )

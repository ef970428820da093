"""The broker's loggers by name, and their levels, which change while the broker runs (KIP-412).

A logger is a module's name. It has the level that was set for it, else that of the nearest logger above it (``ottla.broker`` is above
``ottla.broker.upkeep.cleaner``), else that of ``root``. Levels are the process's: a restart forgets what was changed.

Events pass through structlog as the process has configured it, or to a receiver that was put in its place (``send_to``). It is imported for
the first event: most commands have none, and start with an eighth less work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import partial
from typing import Any, Final

ROOT: Final = "root"
LEVELS: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
"""By Kafka's names."""
_LIBRARIES: Final = ("asyncio",)  # which log with the standard library's loggers
_METHODS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "exception": 40, "critical": 50}

Receiver = Callable[[str, str, str, Mapping[str, Any]], None]
"""The logger's name, the method, the event, and its values."""

_receiver: Receiver | None = None
REQUESTS: Final = "kafka.request.logger"
"""Of Kafka's name: it has a line for each request, so it has a level of its own from the start, as in Kafka's log4j file."""
_levels: dict[str, str] = {ROOT: "INFO", REQUESTS: "WARN"}  # as they were set
_chatty: list[Chatty] = []
_names: dict[str, None] = dict.fromkeys(_LIBRARIES)


def get_logger(name: str) -> Any:
    """Returns a module's logger; its events say whose they are."""
    _names[name] = None
    return _Logger(name)


class Chatty:
    """A logger whose debug events cost more to make than they may where no one wants them: ``is_wanted`` says whether one does."""

    __slots__ = ("_name", "is_wanted", "log")

    def __init__(self, name: str) -> None:
        """Makes one for the life of the process: a module's."""
        self._name = name
        self.log = get_logger(name)
        self.look()
        _chatty.append(self)

    def look(self) -> None:
        """Looks at the level that is in force."""
        self.is_wanted = LEVELS[level_of(self._name)] <= LEVELS["DEBUG"]


class _Logger:
    """A module's logger. Its methods are structlog's."""

    __slots__ = ("_name", "_structured")

    def __init__(self, name: str) -> None:
        self._name = name
        self._structured: Any = None

    def __getattr__(self, method: str) -> Any:
        if _receiver is not None:
            return partial(_receive, _receiver, self._name, method)
        if self._structured is None:
            import structlog

            self._structured = structlog.get_logger(logger_name=self._name)
        return getattr(self._structured, method)


def send_to(receiver: Receiver | None) -> None:
    """Sends events that are not below their logger's level to the receiver; with None to structlog again."""
    global _receiver  # noqa: PLW0603 - loggers are the process's, as their levels are
    _receiver = receiver


def _receive(receiver: Receiver, name: str, method: str, event: str, /, **values: Any) -> None:
    if _METHODS.get(method, 50) >= LEVELS[level_of(name)]:
        receiver(name, method, event, values)


def names() -> list[str]:
    """Returns the root first, then every logger and what is above it."""
    found = {".".join(name.split(".")[:count]) for name in _names for count in range(1, name.count(".") + 2)}
    return [ROOT, *sorted(found)]


def level_of(name: str) -> str:
    """Returns the level in force."""
    while name not in _levels:
        name = name.rpartition(".")[0] or ROOT
    return _levels[name]


def set_levels(changes: Iterable[tuple[str, str | None]]) -> None:
    """Sets each logger's level; with None it has that of the logger above it again."""
    for name, level in changes:
        if level is None:
            _levels.pop(name, None)
        else:
            _levels[name] = level
    for chatty in _chatty:
        chatty.look()
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(LEVELS[level_of(library)])


def drop_below_level(_: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Drops events below their logger's level: a processor of structlog."""
    if _METHODS.get(method, 50) < LEVELS[level_of(event.get("logger_name", ROOT))]:
        from structlog import DropEvent

        raise DropEvent
    return event

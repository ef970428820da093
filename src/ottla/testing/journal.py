"""What ottla has logged in this process while test brokers run: kept, and printed only when a test fails.

The first broker that starts takes the events, the last one that stops gives them back to structlog.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from ottla import loggers

LINES_MAX: Final = 20_000


class Journal:
    """The last lines. A position is a count of lines since the process started."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._users = 0
        self._lock = threading.Lock()
        self.position = 0

    def since(self, position: int) -> str:
        """Returns the lines that were written after that position, as far as they are kept."""
        with self._lock:
            lines = list(self._lines)
            count = min(self.position - position, len(lines))
        return "".join(f"{line}\n" for line in lines[len(lines) - count :])

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps events here, without printing them."""
        with self._lock:
            self._users += 1
            loggers.send_to(self._take)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    loggers.send_to(None)

    def _take(self, name: str, method: str, event: str, values: Mapping[str, Any]) -> None:
        time = datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
        texts = [f"{key}={value!r}" for key, value in values.items() if key != "exc_info"]
        line = " ".join([time, f"[{method}]", event, *texts, f"({name.removeprefix('ottla.')})"])
        error = values.get("exc_info")
        if isinstance(error, BaseException):
            line += "\n" + "".join(traceback.format_exception(error)).rstrip()
        with self._lock:
            self._lines.append(line)
            self.position += 1


JOURNAL: Final = Journal()
"""The process's, as its loggers are."""

"""A thread of a test that works until it is asked to stop; what goes wrong in it fails the test."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Final

JOIN_SECONDS_MAX: Final = 60.0


class WorkerThread:
    """Runs until it is asked to stop; what went wrong in it is raised by ``join``."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self.stopping = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self.stopping.set()
        self._thread.join(JOIN_SECONDS_MAX)
        assert not self._thread.is_alive(), f"{self!r} does not end"
        if self._problem is not None:
            raise self._problem

    def abandon(self) -> None:
        """The test has failed: nothing of it goes on once the test is over."""

    def run(self) -> None:
        raise NotImplementedError

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - the thread's edge: join() raises it
            self._problem = error
            self._complain("".join(traceback.format_exception(error)))

"""Descriptors of deleted files are closed on a thread of their own.

The last ``close`` of a file without a name frees what it holds: of a gigabyte in the page cache that takes the kernel a second,
or several. A broker that deletes a segment or a topic would answer no request for as long, and others would elect another
controller.
"""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import Final


class Closer:
    """``close`` may be called by a finalizer, at any moment and on any thread: the queue is one that is made for that."""

    def __init__(self) -> None:
        self._descriptors: SimpleQueue[int] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread that closes files."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._close_all, name="closing", daemon=True)
            self._thread.start()

    def close(self, descriptor: int) -> None:
        """Closes at once, unless the file has lost its name, and there is a thread to which it can be left."""
        if self._thread is None or os.fstat(descriptor).st_nlink > 0:
            os.close(descriptor)
        else:
            self._descriptors.put(descriptor)

    def _close_all(self) -> None:
        while True:
            descriptor = self._descriptors.get()
            os.close(descriptor)


CLOSER: Final = Closer()
"""Of this process."""

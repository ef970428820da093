"""The directory of ``ottla dev``: removed when it ends, and by its successor when it was killed.

A process holds a lock on a file of its directory for as long as it lives, in whatever way it ends. A directory without the file has an
owner that is about to make it, or is of something else: it stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from typing import Final

PREFIX: Final = "ottla-dev-"
OWNER: Final = "owner"


class TemporaryPlace:
    """A new directory, which is this process's."""

    def __init__(self) -> None:
        self._path = tempfile.mkdtemp(prefix=PREFIX)
        being_made = os.path.join(self._path, f"{OWNER}.new")
        self._lock = os.open(being_made, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(being_made, os.path.join(self._path, OWNER))  # it is never there without its lock
        self.data: Final = os.path.join(self._path, "data")
        os.mkdir(self.data)

    def remove(self) -> None:
        """Removes the directory."""
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock)


def remove_leftovers() -> None:
    """Removes the directories that killed processes left. Directories of other users, and of processes that live, stay."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _remove_if_orphaned(entry.path)


def _remove_if_orphaned(path: str) -> None:
    lock = os.open(os.path.join(path, OWNER), os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)

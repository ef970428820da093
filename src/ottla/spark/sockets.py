"""Where the Unix sockets are by which Spark's JVM and its Python processes talk.

Spark makes them in the temporary directory of the JVM. The path of a socket has 107 bytes at most, and with a longer one, or where that
directory takes no sockets, no session starts. Nor does Spark ask for the secret that a connection over TCP has to show. So a session
on one machine has a directory that is the user's alone, in one where a socket can be made, and talks over TCP where there is none.

What cleans temporary directories takes one away that was not used for days: Spark could not talk to its Python processes from then on. So
it is locked, which systemd-tmpfiles respects, and made again before a batch, or the start of a query, that finds it gone.

Executors elsewhere have temporary directories of their own, which the driver does not know: YARN's containers have some that are too long.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.spark.executors import is_local

ENABLED: Final = "spark.python.unix.domain.socket.enabled"
DIRECTORY: Final = "spark.python.unix.domain.socket.dir"
PATH_BYTES_MAX: Final = 61
"""Of a directory of sockets, in Spark."""
NAME: Final = f".{'0' * 36}.sock"
"""As long as the names that Spark gives to sockets."""
_PLACES: Final = ("/tmp", "/var/tmp", "/dev/shm")
_MADE: Final[dict[int, Path]] = {}  # by process: a forked one leaves that of its parent alone
_LOCKS: Final[dict[int, int]] = {}  # descriptors of these directories


def socket_settings(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """Returns a session's settings: Unix sockets in a directory of this process, or TCP where none takes them.

    None with another master than ``local[...]``, and none in place of what was given: sockets or TCP, or a directory.
    """
    if not is_local(master) or ENABLED in given:
        return {}
    if DIRECTORY in given:
        return {ENABLED: "true"}
    directory = _directory()
    return {ENABLED: "false"} if directory is None else {ENABLED: "true", DIRECTORY: str(directory)}


def _directory() -> Path | None:
    """Returns the directory, which is removed when the process ends."""
    made = _MADE.get(os.getpid())
    if made is not None and _takes_sockets(made):
        return made
    for place in (tempfile.gettempdir(), *_PLACES):
        with contextlib.suppress(OSError):
            made = Path(tempfile.mkdtemp(prefix="ottla-spark-", dir=place))
            if _takes_sockets(made):
                _MADE[os.getpid()] = made
                _lock(made)
                atexit.register(_remove, os.getpid(), made)
                return made
            made.rmdir()
    return None


def keep_directory() -> None:
    """Makes this process's directory again where it is gone. PermissionError where another user has made one in its place."""
    made = _MADE.get(os.getpid())
    if made is None:
        return
    with contextlib.suppress(FileNotFoundError):
        found = made.lstat()
        if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
            raise PermissionError(f"{made}, where the sockets of Spark's processes were, is not this user's directory any more")
        return
    made.mkdir(mode=0o700)
    _lock(made)


def _lock(directory: Path) -> None:
    """Locks the directory, shared, for as long as this process lives. Nothing depends on it."""
    held = _LOCKS.pop(os.getpid(), None)
    if held is not None:
        os.close(held)
    with contextlib.suppress(OSError):
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        _LOCKS[os.getpid()] = held
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _takes_sockets(directory: Path) -> bool:
    path = directory / NAME
    if len(os.fsencode(directory)) > PATH_BYTES_MAX:
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.bind(str(path))
        path.unlink()
        return True
    return False


def _remove(process: int, directory: Path) -> None:
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)

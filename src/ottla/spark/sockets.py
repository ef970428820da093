"""Where the Unix sockets are by which Spark's JVM and its Python processes talk.

Spark makes them in the temporary directory of the JVM. The path of a socket has 107 bytes at most, and with a longer one, or where that
directory takes no sockets, no session starts. Nor does Spark ask for the secret that a connection over TCP has to show. So a session
on one machine has a directory that is the user's alone, in one where a socket can be made, and talks over TCP where there is none.

Executors elsewhere have temporary directories of their own, which the driver does not know: YARN's containers have some that are too long.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import socket
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
                atexit.register(_remove, os.getpid(), made)
                return made
            made.rmdir()
    return None


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

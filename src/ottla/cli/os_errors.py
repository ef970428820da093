"""What to try next where the operating system has refused something: a right, a port or an address."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
from typing import Final

_DENIED: Final = re.compile(r"\[Errno 13\] Permission denied: '([^']+)'")
_OF_LOG_DIRECTORY: Final = re.compile(r"/(\.lock|meta\.properties(\.tmp)?)$")
ADMIN_LISTENER: Final = "ottla.admin.listener"
CONSOLE: Final = "the console"
_LISTENING: Final = "cannot listen on"
_IN_USE: Final = (
    "; another process listens there, or an outgoing connection has the port, as ports from 32768 on may be (`ss -tanp`): stop that, or "
    "take another port ({}; 0 picks a free one)"
)
_NOT_HERE: Final = "; `listeners` has addresses of this machine, or 0.0.0.0 for all of them; `advertised.listeners` has what clients reach"
_READ_ONLY: Final = (
    "; it is mounted read-only, or the system made it so after an error of the disk (`dmesg`): mount it writable, or name another "
    "directory (`log.dirs` of a node, `--data` of a command); a container or a unit may forbid writing there, too (`:ro`, ProtectSystem)"
)
_PRIVILEGED: Final = "; a port below 1024 needs a right of root: take another one"


def way_out_of_system(error: BaseException) -> str:
    """Returns the end of the error's sentence; empty where nothing is known."""
    if (denied := _DENIED.search(str(error))) is not None:
        return _of_owner(denied[1])
    if not isinstance(error, OSError):
        return ""
    if error.errno == errno.EROFS:
        return _READ_ONLY
    if error.errno == errno.EADDRINUSE:
        if CONSOLE in str(error):
            return _IN_USE.format("`--port`")
        return _IN_USE.format(f"`--port`, or `{ADMIN_LISTENER if ADMIN_LISTENER in str(error) else 'listeners'}` of the file")
    if _LISTENING in str(error):
        if error.errno == errno.EACCES:
            return _PRIVILEGED
        if error.errno in (errno.EADDRNOTAVAIL, socket.EAI_NONAME):
            return _NOT_HERE
    return ""


def _of_owner(path: str) -> str:
    """Returns whose the path is, or the directory in which it would be, and as whom this process runs.

    No command changes the owner of a directory above it, which may be the system's.
    """
    with contextlib.suppress(OSError):  # a file of another user's in a directory of one's own, as root leaves it
        if os.path.lexists(path) and os.stat(path).st_uid != os.geteuid():
            owner, user = _name_of(os.stat(path).st_uid), _name_of(os.geteuid())
            where = _OF_LOG_DIRECTORY.sub("", path)
            return f"; {path} belongs to {owner}, and this process runs as {user}: run it as {owner}, or `chown -R {user} {where}`"
    wanted = found = _OF_LOG_DIRECTORY.sub("", path)
    while not os.path.exists(found) and os.path.dirname(found) != found:
        found = os.path.dirname(found)
    try:
        owner, user = _name_of(os.stat(found).st_uid), _name_of(os.geteuid())
    except OSError:
        return ""
    if owner == user:
        return f"; {found} belongs to {owner}, as whom this process runs: its mode forbids it (`ls -ld {found}`)"
    way = f"`chown -R {user} {found}`" if found == wanted else f"have {wanted} made for {user}"
    return f"; {found} belongs to {owner}, and this process runs as {user}: run it as {owner}, or {way}"


def _name_of(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)

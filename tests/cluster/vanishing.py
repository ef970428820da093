"""Nodes whose connections vanish with them, as when a machine loses its power: nothing says so to those who have the other ends.

What comes on such a connection later is answered with a reset, as by the kernel of a machine that has started again. The sockets of the
stopped process are duplicated (pidfd_getfd), told to be silent (TCP_REPAIR), and closed after it. It takes root.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from pathlib import Path

from tests.foreign_clients.broker_process import BrokerProcess

_TCP_REPAIR = 19
_PIDFD_GETFD = 438
_ESTABLISHED = 1


class VanishingNode(BrokerProcess):
    """``kill`` is as the loss of power to its peers; its disk has everything."""

    def kill(self) -> None:
        self.send_signal(signal.SIGSTOP)
        held = _connections(self.pid)
        for connection in held:
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
        super().kill()
        for connection in held:
            connection.close()


def _connections(pid: int) -> list[socket.socket]:
    """Duplicates of the process's TCP connections."""
    process, libc = os.pidfd_open(pid), ctypes.CDLL(None, use_errno=True)
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if not os.readlink(link).startswith("socket:"):
            continue
        descriptor = libc.syscall(_PIDFD_GETFD, process, int(link.name), 0)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        duplicate = socket.socket(fileno=descriptor)
        is_tcp = duplicate.family in (socket.AF_INET, socket.AF_INET6) and duplicate.type == socket.SOCK_STREAM
        if is_tcp and duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED:
            found.append(duplicate)
        else:
            duplicate.close()
    os.close(process)
    return found

"""What the addresses of a cluster do that no client gets into: take a connection, refuse it, or neither.

A node binds its ports before it serves, and a kernel takes connections for a process that does not: what listens and does not answer may be
a node that starts, one that waits for its quorum, or one that is stopped. An address that refuses has no process.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from typing import Final

from msgspec import Struct

ADDRESSES_MAX: Final = 16
WAIT_S: Final = 1.0
"""For all addresses together."""
HOW_TO_START: Final = "`ottla broker start FILE`, `ottla cluster start`"
NOT_SERVING: Final = (
    "the node there starts, or waits for a majority of the controllers (node_waits in its log says for which), or its process is stopped "
    "(SIGSTOP) or hangs"
)


class Tried(Struct, frozen=True):
    """Addresses by what they did."""

    taking: list[str]
    refusing: list[str]
    silent: list[str]

    def said(self, *, asked: int) -> str:
        """Returns what they do and what to do about it, as the end of a sentence. ``asked`` is how many addresses were given."""
        said = []
        if self.taking:
            said.append(f"{_listed(self.taking, 'takes', 'take')} connections, and no client gets an answer: {NOT_SERVING}")
        if self.refusing:
            said.append(f"{_listed(self.refusing, 'refuses', 'refuse')} connections: start the node there ({HOW_TO_START})")
        if self.silent:
            said.append(f"{_listed(self.silent, 'does not answer', 'do not answer')}: a firewall or a wrong address is in the way")
        if asked == 1 and self.taking:
            said.append("-B with the addresses of all brokers says which of them refuse")
        return "; ".join(said)


def try_addresses(addresses: list[tuple[str, int]]) -> Tried:
    """Tries to connect to each, the first ``ADDRESSES_MAX`` at the same time, and sends nothing."""
    tried = Tried([], [], [])
    open_now: dict[socket.socket, str] = {}
    with selectors.DefaultSelector() as selector:
        for host, port in addresses[:ADDRESSES_MAX]:
            name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            try:
                family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
                connecting = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
            except OSError:
                tried.silent.append(name)
                continue
            connecting.setblocking(False)
            open_now[connecting] = name
            code = connecting.connect_ex(place)
            if code in (0, errno.EINPROGRESS):
                selector.register(connecting, selectors.EVENT_WRITE)
            else:
                _note(tried, open_now.pop(connecting), code)
                connecting.close()
        ends_at = time.monotonic() + WAIT_S
        while open_now and (left := ends_at - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                done = key.fileobj
                assert isinstance(done, socket.socket), "sockets are registered"
                selector.unregister(done)
                _note(tried, open_now.pop(done), done.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
                done.close()
    for waiting, name in open_now.items():
        tried.silent.append(name)
        waiting.close()
    for names in (tried.taking, tried.refusing, tried.silent):
        names.sort()
    return tried


def _note(tried: Tried, name: str, code: int) -> None:
    (tried.taking if code == 0 else tried.refusing if code == errno.ECONNREFUSED else tried.silent).append(name)


def _listed(names: list[str], one: str, many: str) -> str:
    return f"{', '.join(names)} {one if len(names) == 1 else many}"

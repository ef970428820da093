"""The hosts of ``zookeeper.connect``, looked at before kazoo does: it says nothing of a name that does not resolve."""

from __future__ import annotations

import asyncio
import socket
from typing import Final


def hosts_of(servers: str) -> list[tuple[str, int]]:
    """Returns hosts and ports, without the chroot. ValueError for what can be no host or port."""
    from kazoo.hosts import collect_hosts

    hosts, _ = collect_hosts(servers)
    for host, _ in hosts:
        try:
            host.encode("idna")  # what getaddrinfo does first
        except UnicodeError:
            raise ValueError(f"{host!r} cannot be the name of a host: its parts have 1 to 63 characters each") from None
    return list(hosts)


_UNKNOWN: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


async def unknown_names(servers: str) -> str | None:
    """Returns what the system says of the names when it knows none of them; None when it knows one, or cannot say.

    ValueError as ``hosts_of``.
    """
    loop, problems = asyncio.get_running_loop(), []
    for host, port in hosts_of(servers):
        try:
            await loop.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)
        except OSError as error:
            if error.errno not in _UNKNOWN:  # a network that comes up, perhaps
                return None
            problems.append(f"{host}: {error.strerror or error}")
        else:
            return None
    return f"no name is known to this machine ({'; '.join(problems)})"

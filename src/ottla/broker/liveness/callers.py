"""Connections that other nodes have made to this one, by which a controller knows that they live though it does not reach them.

A firewall on one side refuses what one node sends, and not what comes from the other. Each node says who it is in the first request of a
connection; a client that says it is one achieves that the session timeout judges that broker, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.ports import Connection

OPEN_MAX: Final = 8
"""So many connections of one node are remembered, the newest; a node makes six at most."""
NODES_MAX: Final = 1000


class Callers:
    """``are_expected`` says whether a node makes connections to this one as soon as it knows of it, as controllers do."""

    def __init__(self, are_expected: Callable[[int], bool] = lambda node_id: False) -> None:
        self._are_expected = are_expected
        self._calls: dict[int, list[Connection]] = {}

    def note(self, node_id: int, connection: Connection) -> None:
        """Notes that the node has made the connection, or goes on using it."""
        if node_id not in self._calls and len(self._calls) == NODES_MAX:
            del self._calls[next(iter(self._calls))]
        others = [call for call in self._calls.get(node_id, ()) if call is not connection and not call.is_closed]
        self._calls[node_id] = [*others[1 - OPEN_MAX :], connection]

    def probe(self, node_id: int) -> None:
        """Probes the connections: a machine that has lost power since said nothing of them, and they are found ended."""
        for call in self._calls.get(node_id, ()):
            call.probe()

    def hears(self, node_id: int) -> bool:
        """True when a connection of the node is open, or it has yet to make its first one."""
        calls = self._calls.get(node_id)
        if calls is None:
            return self._are_expected(node_id)
        return any(not call.is_closed for call in calls)

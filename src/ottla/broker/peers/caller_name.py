"""What a connection to another node says of itself, in its first request: a client id for logs and quotas, and which node makes it."""

from __future__ import annotations

from typing import NamedTuple

from ottla import __version__
from ottla.messages.api_versions import ApiVersionsRequest


class CallerName(NamedTuple):
    """``node_id`` is -1 for a connection by which its node is not to be known."""

    client_id: str
    node_id: int = -1

    @classmethod
    def of_node(cls, node_id: int, purpose: str) -> CallerName:
        return cls(f"node-{node_id}-{purpose}", node_id)

    def hello(self, *, asks_incarnation: bool = False) -> ApiVersionsRequest:
        """Asks a node what it serves, or only whether it answers."""
        return ApiVersionsRequest("ottla", __version__, asks_incarnation, self.node_id)

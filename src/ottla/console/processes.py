"""Processes of a cluster on this machine, asked of its supervisor: which run, and to kill one or start it again."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from ottla.runtime.supervision.control import NoSupervisor, Order, ask_supervisor

ASK_SECONDS_MAX: Final = 60.0
ORDERS: Final = frozenset({"kill", "restart"})


class RefusedError(Exception):
    """The supervisor has not carried an order out."""


class _Node(msgspec.Struct):
    node_id: int
    state: str


class _State(msgspec.Struct):
    nodes: list[_Node] = []


class Processes:
    """The nodes that a supervisor in ``directory`` runs; none where ``directory`` is None."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory

    @property
    def is_here(self) -> bool:
        return self._directory is not None

    async def states(self) -> dict[int, str]:
        """Returns the state of each node's process; empty without a supervisor."""
        if self._directory is None:
            return {}
        try:
            answer = await asyncio.to_thread(ask_supervisor, self._directory, Order("status"), seconds_max=ASK_SECONDS_MAX)
        except (NoSupervisor, OSError):
            return {}
        return {node.node_id: node.state for node in msgspec.json.decode(answer.state, type=_State).nodes}

    async def order(self, command: str, node_id: int) -> None:
        """Asks the supervisor to carry out the command on the node. RefusedError when it does not."""
        if self._directory is None or command not in ORDERS:
            raise RefusedError("only nodes of `ottla cluster start` on this machine can be killed and started here")
        try:
            answer = await asyncio.to_thread(ask_supervisor, self._directory, Order(command, node_id), seconds_max=ASK_SECONDS_MAX)
        except (NoSupervisor, OSError) as error:
            raise RefusedError(f"the supervisor does not answer: {error}") from error
        if answer.error is not None:
            raise RefusedError(answer.error)

"""The ends of nodes that a command waits for, and processes that SIGSTOP keeps from them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Final

import msgspec

from ottla.cli.node_orders import state_of
from ottla.cli.nodes.place import Place, PlaceState
from ottla.cli.output import complain
from ottla.runtime.supervision.paused import PAUSED, is_paused
from ottla.runtime.supervision.supervisor import STOP_SECONDS_MAX

PATIENCE_SECONDS: Final = 5.0
"""After which a command says which nodes it waits for."""


def shown_of(state: PlaceState) -> PlaceState:
    """Returns the nodes as they are shown: one whose process SIGSTOP has stopped is none that serves."""
    nodes = [msgspec.structs.replace(node, state=PAUSED) if node.pid is not None and is_paused(node.pid) else node for node in state.nodes]
    return msgspec.structs.replace(state, nodes=nodes)


@contextlib.contextmanager
def waiting_for_the_end(place: Place, node_id: int | None) -> Iterator[None]:
    """Says meanwhile what is to be known of nodes that are stopped: who has to be continued for it, and who takes long to end."""
    nodes = [node for node in shown_of(state_of(place)).nodes if node_id in (None, node.node_id)]
    pids = {node.node_id: node.pid for node in nodes if node.pid is not None}
    limit = f"a node that has not ended {STOP_SECONDS_MAX:.0f} s after the order is killed (SIGKILL)"
    for node in nodes:
        if node.state == PAUSED:
            complain(f"process {node.pid} of node {node.node_id} is {PAUSED}: it is continued (SIGCONT), to stop in order; {limit}")

    def say() -> None:
        named = ", ".join(f"node {number} (process {pid})" for number, pid in pids.items() if _lives(pid))
        if named:
            complain(f"still waiting for the end of {named}; {limit}")

    patience = threading.Timer(PATIENCE_SECONDS, say)
    patience.daemon = True
    patience.start()
    try:
        yield
    finally:
        patience.cancel()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True

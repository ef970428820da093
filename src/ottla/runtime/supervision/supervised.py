"""The node's side of its supervisor: what it is to be comes in through standard input, whose end means that the supervisor has ended.

The kernel closes the supervisor's end of the pipe however it dies, kill -9 included, and on every system. A node that is left behind
stops in order, as by SIGTERM, so that its next start needs no recovery; one that cannot is killed after ``ORPHAN_SECONDS_MAX``. A
process that is paused (SIGSTOP) does so when it is continued.

Nodes that stop together first leave the cluster, all of them, and end only then: the last ones would otherwise find no controller that
lets them leave, and be taken for running ones at the next start, until their sessions end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from typing import Final

import msgspec

ORPHAN_SECONDS_MAX: Final = 15.0
LEFT: Final = "left"
CLOSE: Final = b"close\n"
CLOSE_SECONDS_MAX: Final = 10.0
"""How long a node that has left waits for the others."""
STANDARD_INPUT: Final = 0

_may_close = threading.Event()


class NodeOrder(msgspec.Struct, frozen=True):
    """An order of the supervisor to a node: one line of JSON."""

    node_id: int
    properties: dict[str, str]
    log_level: str = "info"
    log_format: str = "text"


def receive_order() -> NodeOrder | None:
    """Returns the order; None when the supervisor has ended. From now on the end of the supervisor is this process's end."""
    received = bytearray()
    while not received.endswith(b"\n"):
        chunk = _read()
        if not chunk:
            return None
        received += chunk
    threading.Thread(target=_watch, name="ottla-supervised", daemon=True).start()
    return msgspec.json.decode(bytes(received), type=NodeOrder)


def report_serving(address: str) -> None:
    """Reports to the supervisor that clients are served there."""
    _report(address)


async def wait_for_others() -> None:
    """Reports that this broker has left its cluster, and waits until the supervisor lets it end."""
    _report(LEFT)
    await asyncio.to_thread(_may_close.wait, CLOSE_SECONDS_MAX)


def _report(line: str) -> None:
    """Reports the line; ``_watch`` notices a supervisor that has ended."""
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        return


def _watch() -> None:
    while _read():
        _may_close.set()  # nothing else is said after the order
    _may_close.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_SECONDS_MAX)
    os.kill(os.getpid(), signal.SIGKILL)


def _read() -> bytes:
    """Reads without ``sys.stdin``, whose lock a waiting thread would hold while the interpreter ends."""
    try:
        return os.read(STANDARD_INPUT, 1 << 16)
    except ConnectionResetError:
        return b""

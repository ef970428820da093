"""The warning of a client that is dropped without ``close``: which one, the line that made it, and how it is closed.

As asyncio's transports do it: a ResourceWarning, which Python shows with ``-X dev`` and, as pytest does, with ``-W default``.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Final

from ottla.client.cluster import Cluster

UNKNOWN: Final = ("<unknown>", 1)


class Unclosed:
    """Held by a client alone: it is dropped with the client, and warns unless the client's cluster is closed by then."""

    def __init__(self, name: str, close: str, cluster: Cluster) -> None:
        self._cluster = cluster
        self._place = called_from()
        place = "" if self._place == UNKNOWN else f", made at {self._place[0]}:{self._place[1]}"
        self._text = f"unclosed {name}{place}: {close}"  # where the warning is an error, its own place is not shown
        self._is_due = True

    def replace(self, name: str, close: str) -> Unclosed:
        """Returns the warning of another object that owns the client: it warns in this one's stead."""
        self._is_due = False
        return Unclosed(name, close, self._cluster)

    def __del__(self, warn: object = warnings.warn_explicit) -> None:
        """Warns. Python may be ending, so nothing of this module is looked up."""
        if self._is_due and not self._cluster.is_closed:
            assert callable(warn), "it is a default, to be there when modules are not"
            warn(self._text, ResourceWarning, *self._place, source=self)


def called_from() -> tuple[str, int]:
    """Returns the file and the line of the application that called into ottla."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "ottla":
        frame = frame.f_back
    return UNKNOWN if frame is None else (frame.f_code.co_filename, frame.f_lineno)

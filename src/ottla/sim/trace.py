"""What happened, in order, as one hash: two runs are the same when their traces are."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final

KEPT: Final = 50


class Trace:
    """Every event goes into the hash; the last ones are kept for the report of a failure."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._last: deque[str] = deque(maxlen=KEPT)
        self.count = 0

    def add(self, event: str) -> None:
        self.count += 1
        self._hash.update(event.encode() + b"\n")
        self._last.append(event)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def tail(self) -> str:
        """Returns the last events, one a line."""
        return "\n".join(self._last)

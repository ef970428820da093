"""What a simulated disk refuses, and when."""

from __future__ import annotations

import errno
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """The next operation of this kind on a path that ends so fails with this errno; with ``lasts``, every one from now on.

    Paths that contain ``spares`` are spared.
    """

    operation: str
    suffix: str
    code: int = errno.EIO
    lasts: bool = False
    spares: str = ""

    def strikes(self, operation: str, path: str) -> bool:
        return self.operation == operation and path.endswith(self.suffix) and not (self.spares and self.spares in path)

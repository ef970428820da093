"""What a simulated disk refuses, and what it takes long for, and when."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

ANY: Final = ""
"""Every operation, reads too: the disk has stopped working."""


def _is_within(path: str, directory: str) -> bool:
    """True when the path is in the directory. A job's name, which is no path, is in none."""
    return not directory or f"{path}/".startswith(f"{directory}/")


@dataclass(frozen=True, slots=True)
class Slow:
    """The next operation of this kind on a path that ends so takes so long before it changes anything; with ``lasts``, every one.

    Only paths in the directory ``within`` are meant, where one is given.
    """

    operation: str
    suffix: str
    delay_ms: float
    lasts: bool = False
    within: str = ""

    def strikes(self, operation: str, path: str) -> bool:
        return self.operation in (ANY, operation) and path.endswith(self.suffix) and _is_within(path, self.within)


def delay_of(slow: list[Slow], operation: str, path: str) -> float:
    """Returns the delay in milliseconds that the first matching fault adds; one that does not last is removed."""
    for one in slow:
        if one.strikes(operation, path):
            if not one.lasts:
                slow.remove(one)
            return one.delay_ms
    return 0.0


@dataclass(frozen=True, slots=True)
class Fault:
    """The next operation of this kind on a path that ends so fails with this errno; with ``lasts``, every one from now on.

    Only paths in the directory ``within`` are meant, where one is given; paths that contain ``spares`` are spared.
    """

    operation: str
    suffix: str
    code: int = errno.EIO
    lasts: bool = False
    spares: str = ""
    within: str = ""

    def strikes(self, operation: str, path: str) -> bool:
        is_meant = self.operation in (ANY, operation) and path.endswith(self.suffix) and _is_within(path, self.within)
        return is_meant and not (self.spares and self.spares in path)

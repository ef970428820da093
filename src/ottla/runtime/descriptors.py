"""Open files of this process: how many there may be, and how many are kept for what must not fail.

Partitions leave some to connections, connections to what logs open later, and logs to checkpoints, worker processes and the like:
a broker that has too many of one kind refuses another of it and continues.
"""

from __future__ import annotations

import os
import resource
from typing import Final

KEPT_FROM_LOGS: Final = 32
KEPT_FROM_CONNECTIONS: Final = 96
KEPT_FROM_PARTITIONS: Final = 256


def raise_limit() -> None:
    """Raises the limit of open files to what the system allows without privileges (the hard limit)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS calls the hard limit unlimited and allows less
            return


def limit() -> int:
    """Returns how many files may be open at once. As descriptors are the lowest free numbers, each is below it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def usable(kept: int) -> int:
    """Returns the first descriptor that is kept. Of few descriptors, less is kept: half of them at most."""
    allowed = limit()
    return allowed - min(kept, allowed // 2 * kept // KEPT_FROM_PARTITIONS)


def lowest_free() -> int:
    """Returns the next descriptor there will be: about how many are open."""
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return limit()
    os.close(descriptor)
    return descriptor

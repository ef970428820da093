"""Which way bytes take to and from files.

The default is the way that was measured to be the cheapest for their number. ``OTTLA_PATHS`` forces others, by words with commas
between them: for a file system on which one of them does not do what it should, and for the tests, which have to pass on each.

========  ==========================================  ========  ===========================================
sendfile  whatever is sent from a file leaves by it   copy      nothing does: all is read, and then sent
offload   every append is written by a thread         inline    every append is written on the loop
cold      nothing counts as cached before a worker    warm      everything counts as cached; the kernel is
          has read it; the kernel is not asked                  not asked
========  ==========================================  ========  ===========================================
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Final

VARIABLE: Final = "OTTLA_PATHS"
_CHOICES: Final = ({"sendfile", "copy"}, {"offload", "inline"}, {"cold", "warm"})
_HAS_SENDFILE: Final = hasattr(os, "sendfile") and os.uname().sysname == "Linux"


@dataclass(slots=True)
class Paths:
    """Looked up whenever a way is chosen."""

    sendfile_bytes_min: float
    """Smaller regions are read and sent with the data around them, which is cheaper below 64 KiB (docs/decisions/0002)."""
    inline_append_bytes_max: float
    """Appends of this size and above would hold up every other connection while the kernel finds fresh pages for them."""
    paced_append_bytes_max: float
    """Appends between the two sizes are written where the last ones say (``append_pace.py``)."""
    nowait: int | None
    """The flag with which the kernel reports what is cached; None where it is not asked, and all counts as cached."""
    counts_as_cold: bool
    """Nothing counts as cached, and the kernel is not asked."""


def chosen(text: str) -> Paths:
    """Returns the paths by the words of the variable. ValueError for others, and for two that exclude each other."""
    words = frozenset(filter(None, text.split(",")))
    known: set[str] = set().union(*_CHOICES)
    if words - known:
        raise ValueError(f"{VARIABLE}={text}: {', '.join(sorted(words - known))} is none of {', '.join(sorted(known))}")
    for choice in _CHOICES:
        if choice <= words:
            raise ValueError(f"{VARIABLE}={text}: {' and '.join(sorted(choice))} exclude each other")
    return Paths(
        sendfile_bytes_min=math.inf if "copy" in words or not _HAS_SENDFILE else 1 if "sendfile" in words else 64 * 1024,
        inline_append_bytes_max=math.inf if "inline" in words else 0 if "offload" in words else 64 * 1024,
        paced_append_bytes_max=0 if "offload" in words else 512 * 1024,
        nowait=None if "warm" in words else getattr(os, "RWF_NOWAIT", None),
        counts_as_cold="cold" in words,
    )


PATHS: Final = chosen(os.environ.get(VARIABLE, ""))

"""A page cache that is full, as on a server that has run for a while.

On a virtual machine the first use of a page is a fault of the host: 1.6 s for a GB where this was measured, several times what
the copy into it costs; and pages that were freed are given back to the host within seconds. Where brokers write gigabytes that
would be most of what is measured, of either side. With a full page cache a write takes a page that the machine has.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

PIECE_BYTES: Final = 1 << 20


def fill(file: Path) -> None:
    """Nearly all memory that is free is taken by the pages of a file without blocks on the disk, which anybody may take over."""
    with file.open("w+b", buffering=0) as ballast:
        ballast.truncate(available_bytes())
        piece = bytearray(PIECE_BYTES)
        while ballast.readinto(piece):
            pass


def available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

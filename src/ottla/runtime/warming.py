"""Whether a range of a file is in the page cache, and bringing it there.

A cold ``sendfile`` stops the whole loop for as long as the disk takes: 5 to 8 ms here, 64 at most. ``preadv`` with
RWF_NOWAIT reports it in a microsecond; a worker reads what is cold, and the loop then sends it. The worker never
touches the socket. Where the kernel or the file system cannot say (macOS, some network file systems), everything counts
as warm.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ottla.runtime.io_policy import PATHS

WINDOW_BYTES: Final = 512 * 1024
"""Warmed, and then sent, at a time: large enough for the disk to stream, small enough to stay cached until it is sent."""

_CANNOT_TELL: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_PIECE_BYTES: Final = 128 * 1024


def is_warm(descriptor: int, offset: int, length: int) -> bool:
    """True when the first and the last byte are cached. In a file that is read in order, what is between them then is, too."""
    return _is_cached(descriptor, offset) and (length <= 1 or _is_cached(descriptor, offset + length - 1))


def read_if_warm(descriptor: int, offset: int, length: int) -> bytes | bytearray | None:
    """Returns the bytes, if all are cached or the file ends before them; None when the disk would have to be asked."""
    if PATHS.counts_as_cold:
        return None
    if PATHS.nowait is None:
        return os.pread(descriptor, length, offset)
    data = bytearray(length)
    try:
        count = os.preadv(descriptor, (data,), offset, PATHS.nowait)
    except OSError as error:
        if error.errno in _CANNOT_TELL:
            return os.pread(descriptor, length, offset)
        if error.errno == errno.EAGAIN:
            return None
        raise
    if count == length:
        return data
    if offset + count >= os.fstat(descriptor).st_size:
        return data[:count]
    return None


def _is_cached(descriptor: int, offset: int) -> bool:
    if PATHS.counts_as_cold:
        return False
    if PATHS.nowait is None:
        return True
    try:
        os.preadv(descriptor, (bytearray(1),), offset, PATHS.nowait)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return False
        if error.errno not in _CANNOT_TELL:
            raise
    return True


class Warmer:
    """A reader of cold ranges, on threads of its own (``num.network.threads``), which are started when first needed."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ottla-network")
        self.warmed_count = 0

    def warm(self, descriptor: int, offset: int, length: int, then: Callable[[], None]) -> None:
        """Reads the range, then calls ``then`` on the loop, also when the disk failed: sending will show it.

        The caller keeps the descriptor open until then.
        """
        self.warmed_count += 1
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                _read_through(descriptor, offset, length)
            finally:
                loop.call_soon_threadsafe(then)

        self._pool.submit(work)


def _read_through(descriptor: int, offset: int, length: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)
    end = offset + length
    while offset < end:
        count = len(os.pread(descriptor, min(_PIECE_BYTES, end - offset), offset))
        if count == 0:
            return
        offset += count

"""Real files, in the three classes of ARCHITECTURE.md.

Class a (appends to the page cache, small positioned reads) runs inline: a system call of microseconds is cheaper than a
thread hop of 150. Large appends, medium ones while appends are slow (``append_pace.py``), and class b (fsync, open,
unlink, rename) go to a pool thread, one system call a hop.
Class c (worker-process jobs) runs in a worker process; jobs that no caller waits for run in a second one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import math
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Final, TypeVar

from ottla.ports import Buffer, Job
from ottla.runtime.append_pace import AppendPace
from ottla.runtime.closing import CLOSER
from ottla.runtime.descriptors import KEPT_FROM_LOGS, KEPT_FROM_PARTITIONS, limit, lowest_free, usable
from ottla.runtime.io_policy import PATHS
from ottla.runtime.warming import read_if_warm
from ottla.runtime.worker import Worker

T = TypeVar("T")
Q = TypeVar("Q")
R = TypeVar("R")

IOV_MAX: Final = 1024
PIECE_BYTES: Final = 64 * 1024
"""What one call writes of a large buffer. The page cache makes one block of memory as large as the call; large ones are made of memory
that was not used lately, which is in no processor's cache and on a virtual machine costs a fault of the host for each page: batches of
1 MiB took 1.8 s of processor time a GB in one call each, and take 1.1."""
LARGE_BYTES: Final = 2 * PIECE_BYTES
"""An append of fewer bytes is one call, whatever its buffers are."""


class RealFileRegion:
    """A range of an open file. It keeps the file open until it has been sent."""

    __slots__ = ("file", "length", "offset", "warm_end")

    def __init__(self, file: RealFile, offset: int, length: int) -> None:
        self.file = file
        self.offset = offset
        self.length = length
        self.warm_end = -1  # up to here, the range is known to be in the page cache

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return os.pread(self.file.descriptor, self.length, self.offset)

    def windows(self, length: int) -> Iterator[RealFileRegion]:
        """Yields the same bytes as regions of at most ``length``."""
        end = self.offset + self.length
        return (RealFileRegion(self.file, start, min(length, end - start)) for start in range(self.offset, end, length))


def _calls_of(buffers: Sequence[Buffer]) -> Iterator[list[memoryview]]:
    """Yields what one call is to write: ``IOV_MAX`` buffers at most, and no buffer after a piece of a large one."""
    views: list[memoryview] = []
    for buffer in buffers:
        for start in range(0, len(buffer), PIECE_BYTES):
            views.append(memoryview(buffer)[start : start + PIECE_BYTES])
            if len(views) == IOV_MAX or len(buffer) > PIECE_BYTES:
                yield views
                views = []
    if views:
        yield views


class RealFile:
    """One descriptor. It is closed when the last reference to the object is dropped: a region being sent holds one."""

    def __init__(self, path: str, descriptor: int, size: int, pool: ThreadPoolExecutor, pace: AppendPace) -> None:
        self._pace = pace
        self.path = path
        self.descriptor = descriptor
        self.size = size
        self._pool = pool

    def __del__(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            CLOSER.close(descriptor)

    async def append(self, buffers: Sequence[Buffer]) -> int:
        position = self.size
        total = sum(map(len, buffers))
        if total < PATHS.inline_append_bytes_max:
            self._write(buffers, total, position)
        elif total < PATHS.paced_append_bytes_max and self._pace.is_quick(total):
            began_ns = time.monotonic_ns()
            self._write(buffers, total, position)
            self._pace.wrote_on_loop(total, time.monotonic_ns() - began_ns)
        else:
            await self._hop(lambda: self._write_paced(buffers, total, position))
        self.size = position + total
        return position

    def _write_paced(self, buffers: Sequence[Buffer], total: int, position: int) -> None:
        began_ns = time.thread_time_ns()
        self._write(buffers, total, position)
        self._pace.wrote(total, time.thread_time_ns() - began_ns)

    def _write(self, buffers: Sequence[Buffer], total: int, position: int) -> None:
        try:
            if total < LARGE_BYTES and len(buffers) <= IOV_MAX and os.pwritev(self.descriptor, buffers, position) == total:
                return
            self._write_rest(buffers, position)
        except OSError:
            os.ftruncate(self.descriptor, position)  # its own error would be the graver one: then something may be left in the file
            raise

    def _write_rest(self, buffers: Sequence[Buffer], position: int) -> None:
        """Writes a large append, one with more buffers than a call takes, or what a short write has left (a disk nearly full)."""
        for views in _calls_of(buffers):
            while views:
                written = os.pwritev(self.descriptor, views, position)
                position += written
                while views and written >= len(views[0]):
                    written -= len(views.pop(0))
                if written:
                    views[0] = views[0][written:]

    async def pread(self, offset: int, length: int) -> bytes:
        """Reads inline when the page cache has it, on a pool thread when the disk must be asked."""
        data = read_if_warm(self.descriptor, offset, length)
        return bytes(data) if data is not None else await self._hop(lambda: os.pread(self.descriptor, length, offset))

    def region(self, offset: int, length: int) -> RealFileRegion:
        return RealFileRegion(self, offset, length)

    async def truncate(self, size: int) -> None:
        await self._hop(lambda: os.ftruncate(self.descriptor, size))
        self.size = size

    async def sync(self) -> None:
        await self._hop(lambda: os.fdatasync(self.descriptor))

    async def close(self) -> None:
        """Waits for nothing: the descriptor is closed with the object, when the last region has let go of it."""

    async def _hop(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


class RealDisk:
    """The file system of this machine."""

    has_threads: ClassVar[bool] = True

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._pace = AppendPace()
        self._locks: dict[str, int] = {}  # descriptors by path: a lock lasts as long as its descriptor
        self._descriptors_max = usable(KEPT_FROM_LOGS)
        self.worker = Worker()
        self.background_worker = Worker()

    async def _hop(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        descriptor = os.open(path, flags, _mode_in(os.path.dirname(path)) if create else 0o644)
        if descriptor >= self._descriptors_max:
            os.close(descriptor)
            raise OSError(errno.EMFILE, f"too many open files: logs may have {self._descriptors_max} of {limit()} (ulimit -n)", path)
        if self.has_threads:
            CLOSER.start()
        return RealFile(path, descriptor, os.fstat(descriptor).st_size, self._pool, self._pace)

    async def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    async def read_given_file(self, path: str, *, bytes_max: int) -> bytes:
        return await self._hop(lambda: _read_bounded(path, bytes_max))

    async def write_file_atomic(self, path: str, data: bytes) -> None:
        await self._hop(lambda: _write_atomically(path, data))

    async def exists(self, path: str) -> bool:
        return _status(path) is not None

    async def is_dir(self, path: str) -> bool:
        found = _status(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    async def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    async def space(self, path: str) -> tuple[int, int]:
        volume = await self._hop(lambda: os.statvfs(path))
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    async def make_dirs(self, path: str, *, is_private: bool = False) -> None:
        os.makedirs(path, exist_ok=True)
        if is_private:
            _make_private(path)

    async def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    async def reserve(self, path: str, size_bytes: int) -> None:
        await self._hop(lambda: _reserve(path, size_bytes))

    async def remove(self, path: str) -> None:
        await self._hop(lambda: os.unlink(path))

    async def remove_tree(self, path: str) -> None:
        await self._hop(lambda: shutil.rmtree(path, ignore_errors=not os.path.exists(path)))

    async def lock(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 20).decode(errors="replace").strip()
            os.close(descriptor)
            raise BlockingIOError(error.errno, f"process {holder} has it" if holder.isdecimal() else "locked", path) from None
        except OSError:
            os.close(descriptor)
            raise
        self._locks[path] = descriptor
        with contextlib.suppress(OSError):  # a full disk may refuse it, and the lock holds all the same
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    async def unlock(self, path: str) -> None:
        os.close(self._locks.pop(path))

    async def sync_dir(self, path: str) -> None:
        await self._hop(lambda: _sync(path))

    def boot_id(self) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id") as found:
                return found.read().strip()
        except OSError:  # not on Linux
            return ""

    def open_files_left(self) -> int:
        return max(0, usable(KEPT_FROM_PARTITIONS) - lowest_free())

    async def sync_file_system(self, path: str) -> None:
        await self._hop(lambda: _sync_file_system(path))

    async def file_number(self, path: str) -> int:
        return os.stat(path).st_ino

    async def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    async def take_turns(self, size: int) -> None:
        await asyncio.sleep(0)

    async def work(self, job: Job[Q, R], request: Q, *, bytes_per_second: float = math.inf) -> R:
        worker = self.background_worker if job.is_background else self.worker
        return await worker.work(job, request, bytes_per_second)


def _read_bounded(path: str, bytes_max: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer would not be opened else
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"it has more than {bytes_max} bytes")
    return data


def _reserve(path: str, size_bytes: int) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size_bytes)
        elif os.pwrite(descriptor, bytes(size_bytes), 0) < size_bytes:  # not on Linux
            raise OSError(errno.ENOSPC, "no room for the reserve", path)
    except OSError:
        os.ftruncate(descriptor, 0)
        raise
    finally:
        os.close(descriptor)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file_system(path: str) -> None:
    """Calls ``syncfs``, which Python does not offer; where the system has none, ``sync`` does more than is asked."""
    import ctypes

    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


def _make_private(path: str) -> None:
    os.chmod(path, 0o700)
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mode & 0o077:
                os.chmod(entry.path, 0o600)


def _mode_in(directory: str) -> int:
    """Returns the mode of a new file: only users that may read its directory may read it."""
    try:
        return 0o644 & (os.stat(directory).st_mode | 0o600)
    except FileNotFoundError:
        return 0o644  # opening it will say so


def _status(path: str) -> os.stat_result | None:
    """Returns the status; None where nothing is. ``os.path.exists`` would say the same of what a failing disk does not show."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write_atomically(path: str, data: bytes) -> None:
    temporary, directory = path + ".tmp", os.path.dirname(path)
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _mode_in(directory)), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError:  # on a full disk it would take the room of what comes next
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync(directory)

"""A file system in memory that forgets what was not synced.

Each file has two contents: what was written, which survives the death of the process (it is in the page cache), and what
is durable. ``File.sync`` makes contents durable, ``sync_dir`` makes names durable. A power cut keeps the durable part and,
of the rest, what the seed says: nothing, everything, or some of the names and a torn end of each file.

Every operation that changes something is a *step*. A plan may stop the machine before any step (``crash_at``) or let an
operation fail (``faults``). Source: OSDI 2014, "All File Systems Are Not Created Equal".
"""

from __future__ import annotations

import asyncio
import errno
import math
import posixpath
import random
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from ottla.errors import WorkerDied
from ottla.pace import Throttle
from ottla.ports import Job
from ottla.sim.clock import EPOCH_MS
from ottla.sim.disk_faults import Fault, Slow, delay_of
from ottla.sim.files import Argument, Inode, SimFile, surviving_content
from ottla.sim.names import Names, is_in, is_within, is_within_any, listed, moved, order_of, parents
from ottla.sim.process import PowerCut, alive
from ottla.sim.trace import Trace

Q = TypeVar("Q")
R = TypeVar("R")

LOOK_SUSPENDS: Final = 0.15
"""How often what changes nothing (reads, listings, opening what is there) lets others come in between."""
STEP_SUSPENDS: Final = 0.2
DONE_SUSPENDS: Final = 0.1
"""The same of what changes something, before it has done so and after."""
VOLUME_BYTES: Final = 1 << 40


class SimDisk:
    """One machine's disk. It outlives the processes that use it: ``restart`` gives the next one a fresh start."""

    def __init__(self, rng: random.Random, trace: Trace, name: str, *, delay_ms_max: float = 2.0) -> None:
        self._rng, self._order = rng, order_of(rng)
        self._trace = trace
        self._name = name
        self._delay_ms_max = delay_ms_max
        self.files: Names[Inode] = Names()
        self.directories: Names[None] = Names({"/": None})
        self._durable_files: Names[Inode] = Names()
        self._durable_directories: Names[None] = Names({"/": None})
        self._renames: list[tuple[str, str]] = []  # of files, not yet durable
        self._locks: set[str] = set()
        self._is_dead = False
        self.faults: list[Fault] = []
        self.slow: list[Slow] = []
        self.slow_share = self.slow_ms_max = 0.0  # of what changes something, so much takes up to so long
        self.open_files_max = 1 << 20
        self.capacity_bytes = VOLUME_BYTES
        self.steps = 0
        self.preads = 0
        self.crash_at: int | None = None
        self._boots = 0
        self.on_crash: Callable[[], None] | None = None
        self.on_step: Callable[[str, str, str], None] = _nobody  # operation, path, what of it

    # The machine's life

    async def _gone(self) -> None:
        """Suspends the dead process for good; raises PowerCut for code outside of it."""
        await alive()
        raise PowerCut

    async def step(self, operation: str, path: str, *arguments: Argument) -> None:
        """Precedes an operation that changes something: it may be slow or fail, and the machine may die before it. ``done`` follows it."""
        if self._is_dead:
            await self._gone()
        await self._take_time(STEP_SUSPENDS)
        await self._take_long(operation, path)
        self.steps += 1
        what = " ".join(str(len(argument) if isinstance(argument, bytes) else argument) for argument in arguments)
        self._trace.add(f"{self._name} {operation} {path} {what}")
        self.on_step(operation, path, what)
        if self.crash_at is not None and self.steps >= self.crash_at:
            self.kill()
            if self.on_crash is not None:
                self.on_crash()
        if self._is_dead:
            await self._gone()
        self._strike(operation, path)

    async def look(self, operation: str, path: str) -> None:
        """Precedes an operation that changes nothing: it may be slow or fail, and other operations run in between."""
        if self._is_dead:
            await self._gone()
        await self._take_time(LOOK_SUSPENDS)
        self._strike(operation, path)

    def _strike(self, operation: str, path: str) -> None:
        for fault in self.faults:
            if fault.strikes(operation, path):
                if not fault.lasts:
                    self.faults.remove(fault)
                raise OSError(fault.code, f"injected into {operation} of {path}")

    async def done(self) -> None:
        """Follows an operation that has changed the disk: its process continues at once, later, or never when it dies meanwhile."""
        await self._take_time(DONE_SUSPENDS)

    async def _take_long(self, operation: str, path: str) -> None:
        """Takes seconds without a reason, as a disk does that is busy otherwise, or is about to fail."""
        delay_ms = delay_of(self.slow, operation, path)
        if self.slow_share and self._rng.random() < self.slow_share:
            delay_ms = max(delay_ms, self._rng.random() * self.slow_ms_max)
        if delay_ms:
            await asyncio.sleep(delay_ms / 1000)
            if self._is_dead:
                await self._gone()

    async def _take_time(self, probability: float) -> None:
        if self._delay_ms_max and self._rng.random() < probability:
            await asyncio.sleep(self._rng.random() * self._delay_ms_max / 1000)
            if self._is_dead:
                await self._gone()

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._elapsed_ms())

    def _elapsed_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000

    def put(self, path: str, data: bytes, *, modified_ms: int = EPOCH_MS) -> None:
        """Makes a file of these bytes; they and its name are durable."""
        inode = self.files[path] = self._durable_files[path] = Inode()
        inode.written += data
        inode.durable = data
        inode.modified_ms = modified_ms
        directories = dict.fromkeys(parents(path))
        self.directories.update(directories)
        self._durable_directories.update(directories)

    def kill(self) -> None:
        """Fails all code that uses the disk from now on; what was written stays written."""
        self._is_dead = True

    def replace(self, path: str) -> None:
        """Replaces the disk below this directory by an empty one."""
        self._trace.add(f"{self._name} {path} is replaced")
        for names in (self.files, self._durable_files, self.directories, self._durable_directories):
            for name in [name for name in names if is_within(name, path) and name != path]:
                del names[name]
        self._renames = [(source, target) for source, target in self._renames if not is_within(source, path)]

    def restart(self) -> None:
        """Opens the disk to the next process. What the dead one had written is there: the page cache outlives a process."""
        self._is_dead = False
        self._locks.clear()
        self.crash_at, self.on_crash = None, None

    def cut_power(self) -> None:
        """Kills, and loses of what was not synced as much as the seed says."""
        self.kill()
        self._boots += 1
        mode = self._rng.choice(("nothing", "everything", "some"))
        self._trace.add(f"{self._name} power cut, of the unsynced keeps {mode}")
        names, renamed = self._surviving_names(mode)
        if mode != "everything":
            self.directories = Names(self._durable_directories)
            for source, target in renamed:
                self.directories.move(source, target)
        self._durable_directories = Names(self.directories)
        self.files, self._durable_files = Names(), Names()
        for path, inode in sorted(names.items()):
            self.put(path, surviving_content(self._rng, inode, mode), modified_ms=inode.modified_ms)
        self._renames.clear()

    def _surviving_names(self, mode: str) -> tuple[dict[str, Inode], list[tuple[str, str]]]:
        """Returns the files by name, and the renames of directories that survive."""
        if mode == "nothing":
            return dict(self._durable_files), []
        if mode == "everything":
            return dict(self.files), []
        names = dict(self._durable_files)
        chosen: dict[str, bool] = {}  # names that renames connect share one fate: a rename is there or not, never by half
        for path in sorted(self._durable_files.keys() | self.files.keys()):
            if chosen.setdefault(self._family(path), self._rng.random() < 0.5):
                if path in self.files:
                    names[path] = self.files[path]
                else:
                    names.pop(path, None)
        return names, [(source, target) for source, target in self._renames if chosen.get(self._family(source))]

    def _family(self, path: str) -> str:
        """Returns one name for all that unsynced renames connect with this path, including renames of the directories around it."""
        family = {path, *(name for pair in self._renames for name in pair if is_within_any(path, list(pair)))}
        for _ in self._renames:
            grown = family | {name for pair in self._renames if family & set(pair) for name in pair}
            if grown == family:
                break
            family = grown
        return min(family)

    # ports.Disk

    async def open(self, path: str, *, create: bool = False) -> SimFile:
        await self.look("open", path)
        inode = self.files.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._need_directory(path)
            await self.step("create", path)
            inode = self.files[path] = Inode()
            await self.done()
        return SimFile(self, path, inode)

    async def read_file(self, path: str) -> bytes:
        await self.look("read_file", path)
        return bytes(self._inode(path).written)

    async def read_given_file(self, path: str, *, bytes_max: int) -> bytes:
        data = await self.read_file(path)
        if len(data) > bytes_max:
            raise OSError(errno.EFBIG, f"it has more than {bytes_max} bytes")
        return data

    async def write_file_atomic(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        try:
            await (file := await self.open(temporary, create=True)).truncate(0)
            await file.append([data])
            await file.sync()
            await self.rename(temporary, path)
        except OSError:  # as on a real one, where it would take the room of what comes next
            self.files.pop(temporary, None)
            raise
        await self.sync_dir(posixpath.dirname(path))

    async def exists(self, path: str) -> bool:
        await self.look("exists", path)
        return path in self.files or path in self.directories

    async def is_dir(self, path: str) -> bool:
        await self.look("is_dir", path)
        return path in self.directories

    async def list_dir(self, path: str) -> list[str]:
        await self.look("list_dir", path)
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return listed((posixpath.basename(name) for name in [*self.files.inside(path), *self.directories.inside(path)]), self._order)

    async def space(self, path: str) -> tuple[int, int]:
        await self.look("space", path)
        return self.capacity_bytes, max(0, self.capacity_bytes - self.used_bytes)

    async def make_dirs(self, path: str, *, is_private: bool = False) -> None:
        if path not in self.directories:
            await self.step("make_dirs", path)
            self.directories.update(dict.fromkeys([path, *parents(path)]))
            await self.done()

    async def reserve(self, path: str, size_bytes: int) -> None:
        await self.step("reserve", path, size_bytes)
        inode = self.files.setdefault(path, Inode())
        self.take_room(path, size_bytes - inode.reserved)
        inode.reserved = size_bytes
        await self.done()

    def take_room(self, path: str, size_bytes: int) -> None:
        """Raises ENOSPC where the disk has less space left than that."""
        if self.capacity_bytes < VOLUME_BYTES and self.used_bytes + size_bytes > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "no space left on device", path)

    @property
    def used_bytes(self) -> int:
        return sum(len(inode.written) + inode.reserved for inode in self.files.values())

    async def rename(self, source: str, target: str) -> None:
        await self.step("rename", source, target)
        if target in self.directories and (source in self.files or self.files.inside(target) or self.directories.inside(target)):
            raise OSError(errno.ENOTEMPTY, "a directory is there that is not empty", target)
        if source in self.files:
            self.files[target] = self.files.pop(source)
        elif source in self.directories:
            self.directories.move(source, target)
            self.files.move(source, target)
        else:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._renames.append((source, target))
        await self.done()

    async def remove(self, path: str) -> None:
        await self.step("remove", path)
        if self.files.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        await self.done()

    async def remove_tree(self, path: str) -> None:
        await self.step("remove_tree", path)
        self.files.drop(path)
        self.directories.drop(path)
        await self.done()

    async def lock(self, path: str) -> None:
        if self._is_dead:
            await self._gone()
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self._locks.add(path)

    async def unlock(self, path: str) -> None:
        self._locks.discard(path)

    async def sync_dir(self, path: str) -> None:
        await self.step("sync_dir", path)
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        for source, target in self._renames:  # what was durable in a renamed directory is so under its new name
            if is_in(source, path) and is_in(target, path) and source in self._durable_directories:
                self._durable_files.update({moved(name, source, target): found for name, found in self._durable_files.items()})
                self._durable_directories.update({moved(name, source, target): None for name in self._durable_directories})
        for name in [*self._durable_files.inside(path), *self._durable_directories.inside(path)]:
            if name not in self.files and name not in self.directories:
                self._durable_files.drop(name)
                self._durable_directories.drop(name)
        self._durable_files.update({name: self.files[name] for name in self.files.inside(path)})
        self._durable_directories.update(dict.fromkeys(self.directories.inside(path)))
        self._renames = [(source, target) for source, target in self._renames if not (is_in(source, path) and is_in(target, path))]
        await self.done()

    def boot_id(self) -> str:
        return f"{self._name}-{self._boots}"

    def open_files_left(self) -> int:
        return self.open_files_max

    async def sync_file_system(self, path: str) -> None:
        await self.step("sync_file_system", path)
        for inode in self.files.values():
            inode.durable = bytes(inode.written)
        self._durable_files = Names(self.files)
        self._durable_directories = Names(self.directories)
        self._renames.clear()
        await self.done()

    async def modified_ms(self, path: str) -> int:
        await self.look("modified_ms", path)
        return self._inode(path).modified_ms

    async def file_number(self, path: str) -> int:
        await self.look("file_number", path)
        return self._inode(path).number

    def _inode(self, path: str) -> Inode:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self.files[path]

    async def take_turns(self, size: int) -> None:
        if self._is_dead:
            await self._gone()
        await self._take_time(LOOK_SUSPENDS)

    async def work(self, job: Job[Q, R], request: Q, *, bytes_per_second: float = math.inf) -> R:
        """Runs the job on this disk and in virtual time, over copies of the values. An injected fault of "work" is the worker's death."""
        throttle = Throttle(bytes_per_second, self._elapsed_ms())

        async def pace(size: int) -> None:
            if self._is_dead:
                await self._gone()
            delay_ms = throttle.delay_ms(size, self._elapsed_ms())
            if delay_ms > 0:
                await asyncio.sleep(delay_ms / 1000)

        try:
            await self.step("work", job.name)
        except OSError as error:
            raise WorkerDied(f"the worker process ended: {error}") from error
        result = await job.run(self, _copied(request, job.request), pace)
        return _copied(result, job.result)

    def _need_directory(self, path: str) -> None:
        if posixpath.dirname(path) not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", posixpath.dirname(path))


def _nobody(operation: str, path: str, what: str) -> None:
    """Does nothing."""


def _copied(value: R, kind: type[R]) -> R:
    """Returns the copy that another process gets."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)

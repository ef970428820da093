"""The simulated disk without a loop: nothing suspends, and the states of a run that died can be built one by one.

It records the operations that change files and their names. ``replay`` builds the disk as the first of them left it, ``power_cut`` what
a machine finds that lost power: the names that were synced, with such bytes as the test chooses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from ottla.sim.disk import SimDisk
from ottla.sim.files import Argument, Inode
from ottla.sim.trace import Trace

T = TypeVar("T")

Operation = tuple[Any, ...]
"""Its name, the path, and its arguments."""
Survives = Callable[[str, bytes, bytes], bytes]
"""From a path and its durable and written bytes to those that are found."""

_UNRECORDED: Final = ("make_dirs", "work")  # a replay starts with all directories, and what a job does are operations of its own


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drives a coroutine that does not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    coroutine.close()
    raise AssertionError("nothing here suspends")


class InstantDisk(SimDisk):
    def __init__(self, directories: Iterable[str] = ()) -> None:
        super().__init__(random.Random(0), Trace(), "disk", delay_ms_max=0)
        self.directories.update(dict.fromkeys(directories))
        self._durable_directories.update(self.directories)
        self.operations: list[Operation] = []
        self.jobs: list[str] = []

    async def step(self, operation: str, path: str, *arguments: Argument) -> None:
        await super().step(operation, path, *arguments)
        if operation == "work":
            self.jobs.append(path)
        if operation not in _UNRECORDED and (operation != "remove" or path in self.files):
            self.operations.append((operation, path, *arguments))

    def _elapsed_ms(self) -> float:
        return 0

    def contents(self) -> dict[str, bytes]:
        return {path: bytes(inode.written) for path, inode in self.files.items()}

    def copy(self) -> InstantDisk:
        """Returns a disk with the same files, all synced, and its own operations."""
        return self._found(self.files, lambda path, durable, written: written)

    def power_cut(self, survives: Survives) -> InstantDisk:
        """Returns the disk after a power cut; ``cut_power`` leaves the choice to the seed."""
        return self._found(self._durable_files, survives)

    def _found(self, files: Mapping[str, Inode], survives: Survives) -> InstantDisk:
        other = InstantDisk(self.directories)
        for path, inode in files.items():
            other.put(path, survives(path, inode.durable, bytes(inode.written)), modified_ms=inode.modified_ms)
        return other

    def replay(self, count: int) -> InstantDisk:
        """Returns a new disk after the first ``count`` operations of this one, whose directories all exist."""
        other = InstantDisk(self.directories)
        for operation, path, *arguments in self.operations[:count]:
            match operation:
                case "create":
                    run(other.open(path, create=True))
                case "append":
                    run(run(other.open(path)).append(arguments))
                case "truncate" | "sync":
                    run(getattr(run(other.open(path)), operation)(*arguments))
                case _:
                    run(getattr(other, operation)(path, *arguments))
        return other

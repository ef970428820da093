"""Every state that a power cut may leave of a recorded run, and what must be found in it.

A run is recorded as its disk operations, one by one. For a number of operations done, ``State`` knows what a sync has made
durable and what has not; a ``Fate`` says what becomes of the rest: of bytes (none, all, some pages of 4 KiB, the last write torn
at 512 bytes, the size without the content) and of names (none, all, some; a rename is there or not). Each fate of names goes with
each of bytes, so a rename may be durable before the content of its file, and a new file's content before its name.

Source: OSDI 2014, "All File Systems Are Not Created Equal".
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.sim.instant_disk import InstantDisk, Operation

PAGE, SECTOR = 4096, 512
BYTES = ("none", "all", "pages", "torn", "zeros")
NAMES = ("none", "all", "some")


@dataclass
class _File:
    """``durable`` as of the last sync, ``written`` as of now, ``last`` the offset at which the last write began."""

    durable: bytes = b""
    written: bytearray = field(default_factory=bytearray)
    last: int = 0


class State:
    """The disk after the first operations of a trace, what is durable of it apart from what is not."""

    def __init__(self, start: InstantDisk, trace: list[Operation]) -> None:
        self._directories = set(start.directories)
        self._files = {path: _File(bytes(node.written), bytearray(node.written)) for path, node in start.files.items()}
        self._durable_names = dict(self._files)
        self._pending: list[tuple[str, ...]] = []  # operations on names that no sync of a directory covers yet
        self._created: dict[str, _File] = {}
        for operation in trace:
            self._apply(*operation)

    def _apply(self, operation: str, path: str, *arguments: Any) -> None:
        match operation:
            case "create":
                self._files[path] = _File()
                self._name("create", path)
            case "append":
                file = self._files[path]
                file.last = len(file.written)
                file.written += arguments[0]
            case "truncate":
                del self._files[path].written[arguments[0] :]
            case "sync":
                self._files[path].durable = bytes(self._files[path].written)
            case "rename":
                self._files[arguments[0]] = self._files.pop(path)
                self._name("rename", path, arguments[0])
            case "remove":
                del self._files[path]
                self._name("remove", path)
            case "sync_dir":
                self._durable_names = {
                    **{name: file for name, file in self._durable_names.items() if _directory(name) != path},
                    **{name: file for name, file in self._files.items() if _directory(name) == path},
                }
                self._pending = [pending for pending in self._pending if _directory(pending[1]) != path]
            case "sync_file_system":
                for file in self._files.values():
                    file.durable = bytes(file.written)
                self._durable_names = dict(self._files)
                self._pending = []
            case _:
                raise AssertionError(f"{operation} is not known here")

    def _name(self, *operation: str) -> None:
        self._pending.append(operation)
        if operation[0] == "create":
            self._created[operation[1]] = self._files[operation[1]]

    def after(self, fate: Fate) -> InstantDisk:
        """What a machine finds after the power cut: all of it durable, with a trace of its own."""
        rng = random.Random(fate.seed)
        disk = InstantDisk(self._directories)
        for path, file in sorted(self._surviving_names(fate.names, rng).items()):
            disk.put(path, _surviving_bytes(file, fate.bytes, rng))
        return disk

    def _surviving_names(self, mode: str, rng: random.Random) -> dict[str, _File]:
        if mode == "all":
            return dict(self._files)
        names = dict(self._durable_names)
        for operation, path, *target in self._pending if mode == "some" else ():
            if rng.random() < 0.5:
                continue
            if operation == "create":
                names[path] = self._created[path]
            elif operation == "remove":
                names.pop(path, None)
            elif path in names:
                names[target[0]] = names.pop(path)
        return names


@dataclass(frozen=True)
class Fate:
    bytes: str
    names: str
    seed: int


FATES = [(content, names) for content, names in itertools.product(BYTES, NAMES)]


def _surviving_bytes(file: _File, mode: str, rng: random.Random) -> bytes:
    old, new = file.durable, bytes(file.written)
    if mode == "all" or old == new:
        return new
    if mode == "none":
        return old
    if mode == "zeros":  # the size was written, the data was not
        return old + bytes(max(0, len(new) - len(old))) if new.startswith(old) else old
    if mode == "torn":
        cuts = range(file.last, len(new) + 1, 1 if len(new) - file.last < SECTOR else SECTOR)
        return new[: rng.choice(cuts)] if file.last >= len(old) else rng.choice((old, new))
    pages = range(0, max(len(old), len(new)), PAGE if rng.random() < 0.5 else SECTOR)
    size = rng.choice((len(old), len(new)))
    step = pages.step
    picked = [(new if rng.random() < 0.5 else old).ljust(size, b"\0")[at : at + step] for at in pages]
    return b"".join(picked)[:size]


def _directory(path: str) -> str:
    return path.rsplit("/", 1)[0]


@dataclass
class Run:
    """A recorded run: ``check(disk, count)`` opens what a crash after ``count`` operations left, and says what is wrong."""

    name: str
    start: InstantDisk
    trace: list[Operation]
    check: Callable[[InstantDisk, int], None]


def explore(recorded: Run, *, seed: int, states: int) -> int:
    """So many states of the run, each recovered and checked, and its recovery crashed and recovered again. How many there were."""
    rng = random.Random(seed)
    count = 0
    while count < states:
        done = rng.randrange(len(recorded.trace) + 1)
        state = State(recorded.start, recorded.trace[:done])
        for content, names in FATES:
            fate = Fate(content, names, rng.getrandbits(32))
            found = state.after(fate)
            before = found.copy()
            try:
                recorded.check(found, done)
                count += 1
                if content in ("torn", "pages") and found.operations:
                    cut = rng.randrange(len(found.operations) + 1)
                    again = State(before, found.operations[:cut]).after(Fate(rng.choice(BYTES), rng.choice(NAMES), rng.getrandbits(32)))
                    recorded.check(again, done)
                    count += 1
            except Exception as error:
                raise AssertionError(f"{recorded.name}: after {done} operations, {fate}: {error!r}") from error
    return count

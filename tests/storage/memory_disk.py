"""A disk in memory that never suspends, keeps what was synced apart from what was written, and can fail or record.

Its trace is a list of operations; ``replay`` builds the disk as it is after the first of them. ``power_cut`` builds what a
machine finds that lost power: names that were synced, with the bytes that were synced and as much of the rest as is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ottla.ports import Buffer, Job

T = TypeVar("T")
Q = TypeVar("Q")
R = TypeVar("R")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drives a coroutine that does not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    coroutine.close()
    raise AssertionError("nothing here suspends")


class Node:
    """A file's bytes: as written, and as they were at the last sync."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.durable = b""


class MemoryRegion:
    def __init__(self, file: MemoryFile, offset: int, length: int) -> None:
        self.file, self.offset, self.length = file, offset, length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return bytes(self.file.node.written[self.offset : self.offset + self.length])


class MemoryFile:
    def __init__(self, disk: MemoryDisk, path: str, node: Node) -> None:
        self.disk, self.path, self.node = disk, path, node

    @property
    def size(self) -> int:
        return len(self.node.written)

    async def append(self, buffers: Sequence[Buffer]) -> int:
        old_size = self.size
        data = b"".join(bytes(buffer) for buffer in buffers)
        self.disk.do("append", self.path, data)
        self.node.written += data
        return old_size

    async def pread(self, offset: int, length: int) -> bytes:
        self.disk.preads += 1
        return bytes(self.node.written[offset : offset + length])

    def region(self, offset: int, length: int) -> MemoryRegion:
        assert offset >= 0, "regions lie inside the file"
        assert offset + length <= self.size, "regions lie inside the file"
        return MemoryRegion(self, offset, length)

    async def truncate(self, size: int) -> None:
        self.disk.do("truncate", self.path, size)
        del self.node.written[size:]
        self.node.written.extend(bytes(size - len(self.node.written)))

    async def sync(self) -> None:
        self.disk.do("sync", self.path)
        self.node.durable = bytes(self.node.written)

    async def close(self) -> None:
        pass


class MemoryDisk:
    def __init__(self) -> None:
        self.modified_at_ms = 1 << 60  # of all files
        self.names: dict[str, Node] = {}
        self.durable_names: dict[str, Node] = {}
        self.folders: set[str] = {"/"}
        self.trace: list[tuple[Any, ...]] = []
        self.preads = 0
        self.jobs: list[str] = []
        self.fail: Callable[[str, str], bool] = lambda operation, path: False

    def do(self, operation: str, path: str, *arguments: Any) -> None:
        if self.fail(operation, path):
            raise OSError(f"{operation} {path}: the disk fails")
        self.trace.append((operation, path, *arguments))

    async def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if path not in self.names:
            if not create:
                raise FileNotFoundError(path)
            self.do("create", path)
            self.names[path] = Node()
        return MemoryFile(self, path, self.names[path])

    async def read_file(self, path: str) -> bytes:
        if path not in self.names:
            raise FileNotFoundError(path)
        return bytes(self.names[path].written)

    async def write_file_atomic(self, path: str, data: bytes) -> None:
        self.do("write_file_atomic", path, data)
        node = Node()
        node.written[:] = node.durable = data
        self.names[path] = self.durable_names[path] = node

    async def exists(self, path: str) -> bool:
        return path in self.names or path in self.folders

    async def space(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39

    async def is_dir(self, path: str) -> bool:
        return path in self.folders

    async def list_dir(self, path: str) -> list[str]:
        if path not in self.folders:
            raise FileNotFoundError(path)
        prefix = path.rstrip("/") + "/"
        inside = [name for name in (*self.names, *self.folders) if name.startswith(prefix) and name != prefix]
        return sorted({name[len(prefix) :].split("/")[0] for name in inside})

    async def make_dirs(self, path: str) -> None:
        parts = path.strip("/").split("/")
        self.folders |= {"/" + "/".join(parts[: count + 1]) for count in range(len(parts))}

    async def rename(self, source: str, target: str) -> None:
        self.do("rename", source, target)
        for path in [path for path in self.names if path == source or path.startswith(source + "/")]:
            self.names[target + path[len(source) :]] = self.names.pop(path)
        for path in [path for path in self.folders if path == source or path.startswith(source + "/")]:
            self.folders.remove(path)
            self.folders.add(target + path[len(source) :])

    async def remove(self, path: str) -> None:
        if path not in self.names:
            raise FileNotFoundError(path)
        self.do("remove", path)
        del self.names[path]

    async def remove_tree(self, path: str) -> None:
        self.do("remove_tree", path)
        for name in [name for name in self.names if name.startswith(path + "/")]:
            del self.names[name]
        self.folders = {folder for folder in self.folders if folder != path and not folder.startswith(path + "/")}

    async def sync_dir(self, path: str) -> None:
        self.do("sync_dir", path)
        prefix = path.rstrip("/") + "/"

        def is_child(name: str) -> bool:
            return name.startswith(prefix) and "/" not in name[len(prefix) :]

        # Files of the directory itself, and those in directories that were renamed in it.
        moved = {id(node) for name, node in self.durable_names.items() if name.startswith(prefix)}
        kept = {name: node for name, node in self.durable_names.items() if not is_child(name) and self._has_folder_of(name)}
        fresh = {name: node for name, node in self.names.items() if is_child(name) or (name.startswith(prefix) and id(node) in moved)}
        self.durable_names = kept | fresh

    def _has_folder_of(self, name: str) -> bool:
        return name.rsplit("/", 1)[0] in self.folders

    async def lock(self, path: str) -> None:
        raise AssertionError("a broker locks its folders, a log does not")

    async def unlock(self, path: str) -> None:
        raise AssertionError("a broker locks its folders, a log does not")

    def open_files_left(self) -> int:
        return 1 << 20

    async def sync_file_system(self, path: str) -> None:
        raise AssertionError("a log syncs its own files")

    async def modified_ms(self, path: str) -> int:
        return self.modified_at_ms

    async def work(self, job: Job[Q, R], request: Q, *, bytes_per_second: float = 0) -> R:
        async def pace(size: int) -> None:
            pass

        self.jobs.append(job.name)
        return await job.run(self, request, pace)

    # -- what tests do to it

    def copy(self) -> MemoryDisk:
        """The same files, all synced, with a trace of their own."""
        other = MemoryDisk()
        other.folders = set(self.folders)
        for path, node in self.names.items():
            twin = Node()
            twin.written[:] = twin.durable = bytes(node.written)
            other.names[path] = other.durable_names[path] = twin
        return other

    def contents(self) -> dict[str, bytes]:
        return {path: bytes(node.written) for path, node in self.names.items()}

    def replay(self, count: int) -> MemoryDisk:
        """A new disk after the first ``count`` operations of this one's trace, whose directories all exist."""
        other = MemoryDisk()
        other.folders = set(self.folders)
        for operation, path, *arguments in self.trace[:count]:
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

    def power_cut(self, survives: Callable[[str, bytes, bytes], bytes]) -> MemoryDisk:
        """What is found after a power cut. ``survives(path, durable, written)`` says which bytes a file has."""
        other = MemoryDisk()
        other.folders = set(self.folders)
        for path, node in self.durable_names.items():
            twin = Node()
            twin.written[:] = twin.durable = survives(path, node.durable, bytes(node.written))
            other.names[path] = other.durable_names[path] = twin
        return other

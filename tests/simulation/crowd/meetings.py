"""What met what: acts of the disk while a worker was busy in the same partition directory, counted by kind.

A meeting is "ACT during JOB", or "install after ACT" for what a compacted segment finds changed when it comes. A kind that no run
of many ever had says that the exploration does not look there.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from ottla.sim.disk import SimDisk

CLEANING: Final = "CLEAN_JOB"


class Meetings:
    """``counts`` by kind; every act counts by itself as well."""

    def __init__(self, disk: SimDisk, on_act: Callable[[str], None]) -> None:
        """The disk is watched from now on, and each act told."""
        self.counts: Counter[str] = Counter()
        self._on_act = on_act
        self._working: list[tuple[str, str]] = []  # job, directory
        self._cleaned: dict[str, set[str]] = {}  # by directory: acts since the cleaning started whose result is not yet there
        self._installing: set[str] = set()
        self._arrived: set[str] = set()  # replicas of which there are two copies
        self._work = disk.work
        disk.work = self._watched  # type: ignore[method-assign]
        disk.on_step = self._on_step

    def note(self, act: str, directory: str | None = None) -> None:
        """The act has happened to the replica that is in the directory, or was in one of that name, or to the entire machine."""
        name = posixpath.basename(directory) if directory is not None else None
        self.counts[act] += 1
        self._on_act(act)
        for job, busy in self._working:
            if name is None or posixpath.basename(busy) == name:
                self.counts[f"{act} during {job}"] += 1
        for busy, acts in self._cleaned.items():
            if name is None or posixpath.basename(busy) == name:
                acts.add(act)
        if directory is None and self._installing:
            self.counts[f"{act} during install"] += 1

    def note_end(self) -> None:
        """The process has ended, and its work is lost."""
        self._working.clear()
        self._cleaned.clear()
        self._installing.clear()
        self._arrived.clear()

    async def _watched(self, job: Any, request: Any, **more: Any) -> Any:
        name, directory = entry = job.name.rsplit(":", 1)[1], _directory_of(request)
        self._working.append(entry)
        if name == CLEANING:
            self._cleaned[directory] = set()
        try:
            return await self._work(job, request, **more)
        except FileNotFoundError:
            self.counts[f"{name} met a file that another part removed"] += 1
            raise
        finally:
            self._working.remove(entry)

    def _on_step(self, operation: str, path: str, what: str) -> None:
        directory, name = posixpath.split(path)
        match operation:
            case "rename" if what.endswith("-delete"):
                self.note("end of a move" if name in self._arrived else "deletion of a topic", path)
                self._arrived.discard(name)
            case "rename" if what.endswith("-stray"):
                self.note("stray set aside", path)
            case "rename" if path.endswith("-future"):
                self._arrived.add(posixpath.basename(what))
                self.note("arrival of a move", what)
            case "rename" if path.endswith(".log.cleaned"):
                self._installing.add(directory)
                for act in sorted(self._cleaned.pop(directory, ())):
                    self.counts[f"install after {act}"] += 1
                self.note("install", directory)
            case "rename" if ".log." in name and path.endswith(".swap"):
                self._installing.discard(directory)
            case "rename" | "remove" if name.endswith(".log") and directory not in self._installing:
                self.note("retention", directory)
            case "create" if name.endswith(".log"):
                self.note("roll", directory)
            case "remove" if name.endswith(".deleted"):
                self.note("removal of deleted files", directory)


def _directory_of(request: Any) -> str:
    if hasattr(request, "directory"):
        return str(request.directory)
    path: str = request.path if hasattr(request, "path") else request.source
    return posixpath.dirname(path)

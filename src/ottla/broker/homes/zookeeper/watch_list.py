"""What a controller has yet to read: znodes that others may have changed, and the watches for changes."""

from __future__ import annotations

import asyncio
import math

from ottla.coordination import Watch


class WatchList:
    """The znodes that are to be looked at, in the order in which that became known; ``watched_max`` of them are watched at most."""

    def __init__(self, watched_max: float = math.inf) -> None:
        self._watched_max = watched_max
        self.lists = True
        """Whether those that there are have to be listed again."""
        self.wakes = asyncio.Event()
        self._paths: dict[str, None] = {}
        self._watched: set[str] = set()

    def listed(self) -> None:
        """Notes that others may be there now."""
        self.lists = True
        self.wakes.set()

    def add(self, path: str) -> None:
        self._paths[path] = None

    def take(self) -> list[str]:
        """Takes all paths; none is left."""
        paths = list(self._paths)
        self._paths.clear()
        return paths

    def watch_of(self, path: str) -> Watch | None:
        """Returns a watch to be set with the next reading; None where one is set already, or too many are."""
        if path in self._watched or len(self._watched) >= self._watched_max:
            return None
        self._watched.add(path)

        def changed() -> None:
            self._watched.discard(path)
            self.add(path)
            self.wakes.set()

        return changed

    def is_watched(self, path: str) -> bool:
        """Returns whether a change of the znode will be noted."""
        return path in self._watched

    def forget(self, path: str) -> None:
        """Forgets the watch of the znode, which was not there to be watched."""
        self._watched.discard(path)

"""Paths of the simulated disk: which contains which, and what a rename makes of them."""

from __future__ import annotations

import posixpath
import random
import zlib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import TypeVar

V = TypeVar("V")


class Names(MutableMapping[str, V]):
    """Values by path, that know what is in each directory."""

    def __init__(self, values: Mapping[str, V] = {}) -> None:
        self._values: dict[str, V] = {}
        self._in: dict[str, dict[str, None]] = {}
        self.update(values)

    def __getitem__(self, path: str) -> V:
        return self._values[path]

    def __setitem__(self, path: str, value: V) -> None:
        if path not in self._values and path != "/":
            self._in.setdefault(posixpath.dirname(path), {})[path] = None
        self._values[path] = value

    def __delitem__(self, path: str) -> None:
        del self._values[path]
        if path != "/":
            del self._in[posixpath.dirname(path)][path]

    def __contains__(self, path: object) -> bool:
        return path in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def inside(self, directory: str) -> list[str]:
        """Returns the paths in the directory itself."""
        return list(self._in.get(directory, ()))

    def drop(self, directory: str) -> None:
        """Deletes the directory, with all that is in it, at any depth."""
        for path in self._within(directory):
            del self[path]

    def move(self, source: str, target: str) -> None:
        """Moves everything in the one directory to the other."""
        for path in self._within(source):
            self[moved(path, source, target)] = self.pop(path)

    def _within(self, directory: str) -> list[str]:
        found = [directory] if directory in self._values else []
        for path in self.inside(directory):
            found += self._within(path)
        return found


def parents(path: str) -> list[str]:
    found = []
    while path != "/":
        path = posixpath.dirname(path)
        found.append(path)
    return found


def is_in(path: str, directory: str) -> bool:
    return path.startswith(directory) and posixpath.dirname(path) == directory != path


def is_within_any(path: str, directories: list[str]) -> bool:
    return any(is_within(path, directory) for directory in directories)


def is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")


def moved(path: str, source: str, target: str) -> str:
    return target + path[len(source) :] if is_within(path, source) else path


def order_of(rng: random.Random) -> int:
    """Returns the order in which a disk of this seed lists its directories; draws no random number for it."""
    return zlib.crc32(repr(rng.getstate()).encode())


def listed(names: Iterable[str], order: int) -> list[str]:
    """Lists names as a directory does: in a meaningless order, such as that of a hash tree."""
    return sorted(names, key=lambda name: (zlib.crc32(name.encode(), order), name))

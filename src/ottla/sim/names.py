"""Paths of the simulated disk: which lies in which, and what a rename makes of them."""

from __future__ import annotations

import posixpath


def parents(path: str) -> list[str]:
    found = []
    while path != "/":
        path = posixpath.dirname(path)
        found.append(path)
    return found


def is_in(path: str, folder: str) -> bool:
    return path.startswith(folder) and posixpath.dirname(path) == folder != path


def is_within_any(path: str, folders: list[str]) -> bool:
    return any(is_within(path, folder) for folder in folders)


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def moved(path: str, source: str, target: str) -> str:
    return target + path[len(source) :] if is_within(path, source) else path

"""Whole trees of znodes, of which a controller knows only some."""

from __future__ import annotations

from collections.abc import Container

from ottla.coordination import Check, Delete, MultiFailedError, NoNodeError, NotEmptyError, Session, Watch


async def children(session: Session, path: str, watch: Watch) -> list[str]:
    """Returns the children; none while there is no such znode. The watch is called when there is one, or its children change."""
    while True:
        try:
            return await session.children(path, watch)
        except NoNodeError:
            if await session.exists(path, watch) is None:
                return []


async def delete_below(session: Session, check: Check, path: str, kept: Container[str] = ()) -> None:
    """Deletes what is below the znode, the deepest first, except for the paths in ``kept``; others may delete it, too.

    Another one that comes meanwhile is not waited for. MultiFailedError when another controller is elected.
    """
    paths = [path]
    for parent in paths:  # it grows: a tree may be deeper than calls can be nested
        try:
            paths += [f"{parent}/{name}" for name in await session.children(parent)]
        except NoNodeError:
            pass
    for below in reversed(paths[1:]):
        if below in kept:
            continue
        try:
            await session.multi([check, Delete(below)])
        except MultiFailedError as error:
            if error.index == 0 or not isinstance(error.reason, NoNodeError | NotEmptyError):
                raise

"""Whole trees of znodes, of which a controller knows only some."""

from __future__ import annotations

from collections.abc import Container

from ottla.coordination import Check, Delete, MultiFailedError, NoNodeError, NotEmptyError, Session


async def delete_below(session: Session, check: Check, path: str, kept: Container[str] = ()) -> None:
    """Deletes what is below the znode, the deepest first, except for the paths in ``kept``; others may delete it, too.

    Another one that comes meanwhile is not waited for. MultiFailedError when another controller is elected.
    """
    try:
        names = await session.children(path)
    except NoNodeError:
        return
    for name in names:
        child = f"{path}/{name}"
        await delete_below(session, check, child, kept)
        if child in kept:
            continue
        try:
            await session.multi([check, Delete(child)])
        except MultiFailedError as error:
            if error.index == 0 or not isinstance(error.reason, NoNodeError | NotEmptyError):
                raise

"""Who closes files: the thread that drops them, unless they were deleted."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from queue import SimpleQueue

import pytest

from ottla.runtime.closing import Closer
from ottla.runtime.world import real_world

WAIT_SECONDS_MAX = 30


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_deleted_file_is_closed_on_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deleted: bool) -> None:
    closed: SimpleQueue[tuple[int, int]] = SimpleQueue()
    close = os.close

    def noted(descriptor: int) -> None:
        close(descriptor)
        closed.put((descriptor, threading.get_ident()))

    async def body() -> None:
        path = tmp_path / "log"
        file = await real_world().disk.open(str(path), create=True)
        await file.append([b"records"])
        descriptor = file.descriptor  # type: ignore[attr-defined]
        if is_deleted:
            path.unlink()
        monkeypatch.setattr("os.close", noted)
        del file
        found, thread = closed.get(timeout=WAIT_SECONDS_MAX)
        assert found == descriptor
        assert (thread != threading.get_ident()) == is_deleted

    asyncio.run(body())


def test_without_a_running_closer_a_file_is_closed_at_once(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "log", os.O_CREAT | os.O_RDWR)
    (tmp_path / "log").unlink()
    Closer().close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)

"""Appends that take several calls: large buffers, many buffers, and short writes of a disk that is nearly full."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.runtime.files import IOV_MAX, PIECE_BYTES
from ottla.runtime.world import real_world

SMALL, LARGE = b"head" * 15, bytes(range(251)) * 4200
BUFFERS = {
    "one large": [LARGE],
    "a head and a large one": [SMALL, LARGE],
    "large ones among small ones": [LARGE, SMALL, SMALL, LARGE, LARGE, SMALL],
    "a piece and a byte": [LARGE[: PIECE_BYTES + 1]] * 3,
    "pieces to the byte": [LARGE[: 2 * PIECE_BYTES]] * 2,
    "many small ones": [SMALL] * (2 * IOV_MAX + 1),
    "many, a large one last": [SMALL] * (IOV_MAX + 1) + [LARGE],
    "empty ones": [b"", LARGE, b"", SMALL, b""],
}


def append(path: Path, *appends: Sequence[bytes]) -> None:
    async def body() -> None:
        file = await real_world().disk.open(str(path), create=True)
        for buffers in appends:
            await file.append(buffers)
        assert file.size == path.stat().st_size

    asyncio.run(body())


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize("name", BUFFERS)
def test_the_file_has_the_buffers_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_short: bool) -> None:
    pwritev, sizes = os.pwritev, list[int]()

    def noted(descriptor: int, views: Sequence[memoryview], position: int) -> int:
        sizes.extend(map(len, views))
        if not is_short:
            return pwritev(descriptor, views, position)
        data = b"".join(views)
        return os.pwrite(descriptor, data[: max(1, len(data) * 2 // 3)], position)

    monkeypatch.setattr("os.pwritev", noted)
    append(tmp_path / "log", [SMALL], BUFFERS[name])
    assert (tmp_path / "log").read_bytes() == SMALL + b"".join(BUFFERS[name])
    assert max(sizes) <= PIECE_BYTES


def test_an_append_that_fails_in_its_second_call_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwritev, calls = os.pwritev, []

    def full(descriptor: int, views: Sequence[memoryview], position: int) -> int:
        calls.append(position)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwritev(descriptor, views, position)

    monkeypatch.setattr("os.pwritev", full)
    with pytest.raises(OSError, match="No space left"):
        append(tmp_path / "log", [SMALL], [LARGE])
    assert calls[1:] == [len(SMALL), len(SMALL) + PIECE_BYTES]
    assert (tmp_path / "log").read_bytes() == SMALL

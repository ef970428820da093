"""Whether something is on a real disk: what the system does not say is not taken for absent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.runtime.world import real_world


def test_a_path_that_the_system_cannot_resolve_is_an_error_and_not_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    async def body() -> None:
        disk = real_world().disk
        for path, exists, is_dir in (("", True, True), ("file", True, False), ("none", False, False), ("file/none", False, False)):
            assert (await disk.exists(f"{tmp_path}/{path}"), await disk.is_dir(f"{tmp_path}/{path}")) == (exists, is_dir), path
        for ask in (disk.exists, disk.is_dir):
            with pytest.raises(OSError, match="symbolic links"):
                await ask(f"{tmp_path}/loop")

    asyncio.run(body())

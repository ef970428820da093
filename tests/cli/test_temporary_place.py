"""``ottla dev`` removes what a predecessor left that was killed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ottla.cli.temporary_place import PREFIX, TemporaryPlace, remove_leftovers

OWNER = """
import sys
from ottla.cli.temporary_place import TemporaryPlace
place = TemporaryPlace()
print(place.data, flush=True)
sys.stdin.read()
"""


def test_the_directory_of_a_killed_process_is_removed_and_that_of_a_live_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        data = Path(process.stdout.readline().strip())
        (data / "0.log").write_bytes(b"records")
        own = TemporaryPlace()
        unknown = tmp_path / f"{PREFIX}of-an-older-version"
        unknown.mkdir()
        (tmp_path / "other").mkdir()
        remove_leftovers()
        assert (data / "0.log").exists(), "its process lives"
    finally:
        process.kill()
        process.communicate(timeout=30)
    remove_leftovers()
    assert not data.parent.exists()
    assert Path(own.data).is_dir()
    assert unknown.is_dir(), "no lock says that its owner is dead"
    own.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([unknown.name, "other"])

"""Programs from outside the package index. One that is missing is a failure of the test that needs it, never a skip."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
TARGET = HERE / "target"
BUILD_SECONDS_MAX = 600


def program(name: str, *, way_to_get_it: str) -> str:
    """The program's path."""
    found = shutil.which(name)
    assert found, f"{name} is not installed: {way_to_get_it}"
    return found


def run(*command: str | Path, cwd: Path | None = None, seconds_max: int = 60, stdin: str | None = None, ends_with: int = 0) -> str:
    """Returns what the command prints; its complaint is the failure's text, if it ends with another code."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, input=stdin, capture_output=True, text=True, timeout=seconds_max, check=False
    )
    assert done.returncode == ends_with, f"{command[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def maven(*arguments: str, cwd: Path) -> None:
    run(program("mvn", way_to_get_it="apt install maven"), "-q", *arguments, cwd=cwd, seconds_max=BUILD_SECONDS_MAX)

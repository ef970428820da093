"""The blocks of a page of the documentation, to be run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
SECONDS_MAX = 60
ADDRESS = "127.0.0.1:9092"
"""Of the broker on the pages."""


class Typed(NamedTuple):
    """A command of a page, and what the page says that it prints."""

    command: str
    output: str


def blocks(page: str, language: str) -> list[str]:
    """The page's blocks of that language, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [text for named, text in found if named == language]


def typed(page: str) -> list[Typed]:
    """The commands of the page's ``console`` blocks."""
    found = []
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Typed(command, output))
    return found


def in_a_shell(
    commands: str, folder: Path, environment: Mapping[str, str], *, options: str = "", seconds: float = SECONDS_MAX
) -> subprocess.CompletedProcess[str]:
    """What they print, errors too, is in ``stdout``. ``options`` are bash's."""
    return subprocess.run(
        ["bash", f"-{options}c", commands],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )


class Shell:
    """Where the commands are run: a directory, and a broker."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        program = folder / "bin" / "ottla"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla "$@"\n')
        program.chmod(0o755)
        self._environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "OTTLA_BOOTSTRAP": bootstrap}

    def type(self, command: str) -> str:
        """What the command prints, errors too."""
        return in_a_shell(command, self._folder, self._environment).stdout

    def python(self, program: str) -> str:
        """What the program prints, whose broker has the address of the pages."""
        path = self._folder / "program.py"
        path.write_text(program.replace(ADDRESS, self._bootstrap))
        return self.type(f"{sys.executable} {path}")

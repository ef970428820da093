"""Transcripts: what is done to a machine, and what it says to that, as text that a reviewer reads beside the KIP.

A transcript is a file of blocks with empty lines between them. Lines with ``#`` explain. Of each other block the first line is a
command, ``----`` ends it, and what follows is what the machine answered::

    # The first member leads, and waits for others.
    join a
    ----
    a waits
    timer rebalance in 3000 ms

``python -m tests.scenarios FILE...`` writes what the machines answer now into the files: read the difference before you keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

SEPARATOR: Final = "----"
DIRECTORY: Final = Path(__file__).parent

Play = Callable[[str], list[str]]
"""One command in, the lines of its answer out."""


def replayed(text: str, play: Play) -> str:
    """The transcript with the answers that the machine gives now."""
    return "\n\n".join(_blocks(text, play)) + "\n"


def _blocks(text: str, play: Play) -> Iterator[str]:
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        comments = [line for line in lines if line.startswith("#")]
        commands = [line for line in lines if not line.startswith("#")]
        if not commands:
            yield block
            continue
        assert SEPARATOR in commands, f"a command without {SEPARATOR}: {block!r}"
        command = commands[: commands.index(SEPARATOR)]
        assert len(command) == 1, f"one command a block: {block!r}"
        yield "\n".join([*comments, command[0], SEPARATOR, *play(command[0])])

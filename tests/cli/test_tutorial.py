"""docs/tutorial.md, typed: each command prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.pages import Shell, blocks, typed

from ottla.runtime.serve import BrokerThread

PAGE = "tutorial.md"
PROPERTIES = {"listeners": "PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}


@pytest.mark.slow
def test_every_command_of_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    with BrokerThread(PROPERTIES | {"log.dirs": str(tmp_path / "data")}) as broker:
        shell = Shell(tmp_path, broker.bootstrap)
        commands = typed(PAGE)
        assert len(commands) >= 8
        for command, output in commands:
            assert shell.type(command) == output, command
        program, shown = blocks(PAGE, "python")[0], blocks(PAGE, "")[1]
        assert shell.python(program) == shown

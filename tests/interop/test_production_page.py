"""What is typed in docs/production.md, with a JVM of its own; and that its table has every reason for which a query stops."""

from __future__ import annotations

from pathlib import Path

from tests.cli.cluster_command import consecutive_ports
from tests.cli.pages import PORTS, Terminal, Typed, blocks, sessions

SECONDS_MAX = 300


def test_a_pipeline_is_installed_upgraded_and_replayed(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, consecutive_ports(PORTS))
    [program] = blocks("production.md", "python")
    (terminal.directory / "sales.py").write_text(program)
    with terminal.serving(Typed("ottla dev", "ottla dev: serving Kafka clients at 127.0.0.1:9092\n...\n")):
        for session in sessions("production.md"):
            terminal.run(session, seconds=SECONDS_MAX)

"""What is typed in docs/pipelines.md, and the programs of README: each prints what is shown there, with a JVM of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.cluster_command import consecutive_ports
from tests.cli.pages import PORTS, Terminal, Typed, blocks, sessions

SECONDS_MAX = 300

pytestmark = pytest.mark.timeout(1200)
"""Each command that runs pipelines starts Spark; the page has many, and a busy machine takes a minute for some."""


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Before a broker, with the files of the page."""
    found = Terminal(tmp_path_factory.mktemp("pipelines"), consecutive_ports(PORTS))
    programs = blocks("pipelines.md", "python")
    for name, part in (("orders.py", "def totals"), ("devices.py", "class Highest")):
        [program] = [block for block in programs if part in block]
        (found.directory / name).write_text(program)
    with found.serving(Typed("ottla dev", "ottla dev: serving Kafka clients at 127.0.0.1:9092\n...\n")):
        yield found


def test_pipelines_are_run_shown_and_reset_and_topics_are_queried(terminal: Terminal) -> None:
    run, queries, [follow], state = sessions("pipelines.md")
    terminal.run(run, seconds=SECONDS_MAX)
    terminal.run(queries, seconds=SECONDS_MAX)
    terminal.run(state, seconds=SECONDS_MAX)
    with terminal.serving(follow):
        pass


def test_the_programs_of_the_readme(terminal: Terminal) -> None:
    _, records, _ = sessions("README.md")
    terminal.run(records)
    client, producer, query, _ = blocks("README.md", "python")
    terminal.python(client)
    assert terminal.python(producer) == ""
    [shown] = [block for block in blocks("README.md", "") if "Batch: 0" in block]
    assert shown in terminal.python(query, seconds=SECONDS_MAX)

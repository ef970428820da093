"""What is typed in README and in the pages that need one broker: each command prints what is shown there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.cli.cluster_command import consecutive_ports
from tests.cli.named_commands import fault_of, named_in, named_shortly_in
from tests.cli.pages import DOCS, PORTS, ROOT, Terminal, Typed, blocks, is_shown, sessions

from ottla.runtime.serve import BrokerThread

TESTS: Final = {
    "README.md": "tests/interop/test_cluster_pages.py",
    "authorization.md": "tests/cli/test_pages.py",
    "clusters.md": "tests/interop/test_cluster_pages.py",
    "commands.md": "tests/cli/test_pages.py",
    "failover.md": "tests/examples/test_examples.py",
    "history.md": "tests/cli/test_pages.py",
    "pipelines.md": "tests/interop/test_pipelines_page.py",
    "production.md": "tests/interop/test_production_page.py",
    "security.md": "tests/cli/test_pages.py",
    "tutorial.md": "tests/cli/test_pages.py",  # and tests/spark/test_tutorial.py
    "zookeeper.md": "tests/interop/test_cluster_pages.py",
}
"""Who runs the commands of each page that has some. A test takes each of a page's blocks by a name, so that no other one can be there."""
PROPERTIES: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """Before a broker without anything, in the process of the tests."""
    with BrokerThread(PROPERTIES | {"log.dirs": str(tmp_path / "data")}) as broker:
        (tmp_path / "home").mkdir()
        yield Terminal(tmp_path / "home", int(broker.bootstrap.rpartition(":")[2]))


@contextlib.contextmanager
def new_terminal(directory: Path, start: Typed) -> Iterator[Terminal]:
    """Another one, of no broker but what ``start`` starts."""
    found = Terminal(directory, consecutive_ports(PORTS))
    with found.serving(start):
        yield found


def test_the_commands_of_every_page_are_run() -> None:
    pages = ["README.md", *(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))]
    assert {page for page in pages if sessions(page)} == set(TESTS)
    for page, file in TESTS.items():
        assert f'sessions("{page}")' in (ROOT / file).read_text(encoding="utf-8")


def test_a_token_is_shown_whatever_is_between_its_slashes() -> None:
    letters = "Iv702" * 20
    assert is_shown(f"{letters[:86]}==  User:bob\n", f"{letters[:10]}/{letters[:22]}/{letters[:52]}==  User:bob\n")
    assert not is_shown(f"{letters[:86]}==  User:bob\n", f"{letters[:85]}==  User:bob\n")


def test_the_first_minute_of_the_readme(tmp_path: Path) -> None:
    (install, start), records, _ = sessions("README.md")
    assert install == ("pip install ottla", "")
    client = blocks("README.md", "python")[0]
    with new_terminal(tmp_path, start) as terminal:
        terminal.run(records)
        assert f"# {terminal.python(client)}" in client, "it says what it prints"


@pytest.mark.slow
def test_the_tutorial(terminal: Terminal) -> None:
    *typed, _ = sessions("tutorial.md")  # the last one needs Spark: tests/spark/test_tutorial.py
    program, shown = blocks("tutorial.md", "python")[0], blocks("tutorial.md", "")[1]
    for session in typed:
        terminal.run(session)
    assert terminal.python(program) == shown


def test_the_page_of_commands(terminal: Terminal) -> None:
    [records] = sessions("commands.md")
    terminal.run(records)


@pytest.mark.slow
def test_the_page_of_authorization(terminal: Terminal) -> None:
    [rules] = sessions("authorization.md")
    terminal.type("ottla topic create orders")
    terminal.run(rules)


def test_the_page_of_histories(terminal: Terminal) -> None:
    [judged] = sessions("history.md")
    (terminal.directory / "history.jsonl").write_text(next(block for block in blocks("history.md", "") if block.startswith("{")))
    terminal.run(judged)


@pytest.mark.slow
def test_a_secured_broker_and_tokens_of_the_page_of_security(tmp_path: Path) -> None:
    (start, *users), tokens = sessions("security.md")
    secured = start._replace(command=f"{start.command} -X delegation.token.secret.key=a-secret")
    with new_terminal(tmp_path, secured) as terminal:
        terminal.type("ottla topic create orders --command-config broker-security/client.properties")
        terminal.run(users)
        admin = (tmp_path / "broker-security" / "client.properties").read_text()
        (tmp_path / "bob.properties").write_text(re.sub(r'username=.*"', 'username="bob" password="bob-secret"', admin))
        first, *others = tokens
        printed = terminal.type(first.command)
        assert is_shown(first.output, printed)
        token = printed.splitlines()[1].split()[0]
        terminal.environment["OTTLA_COMMAND_CONFIG"] = "broker-security/client.properties"
        terminal.run([each._replace(command=each.command.replace("TOKEN", token)) for each in others])


def test_commands_that_texts_name_are_there() -> None:
    """In pages, in docstrings and in what errors advise."""
    sources = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    named = {command: path for path in sources if path.name != "CHANGELOG.md" for command in named_in(path.read_text(encoding="utf-8"))}
    assert len(named) > 100
    faults = {command: (fault, named[command]) for command in named if (fault := fault_of(command)) and not is_no_command(command)}
    assert not faults


def test_commands_that_the_page_of_commands_names_without_the_program_are_there_with_their_options() -> None:
    named = set(named_shortly_in((DOCS / "commands.md").read_text(encoding="utf-8")))
    assert {"ottla topic alter --dry-run", "ottla group seek NAME --to PLACE|--by N"} <= named
    assert not {command: fault for command in named if (fault := fault_of(command))}


def is_no_command(text: str) -> bool:
    """A sentence that begins with the program's name, or a text that is filled in."""
    return text.startswith("ottla does not ") or "{" in text


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("ottla topic list", None),
        ("ottla topic list -B host:port --format json", None),
        ("ottla group describe NAME...", None),
        ("ottla completion bash|zsh|fish", None),
        ("ottla topic remove x", "there is no command 'remove'"),
        ("ottla topic list --quickly", "there is no option --quickly"),
        ("ottla topic delete --yes|--quickly", "there is no option --quickly"),
    ],
)
def test_a_command_that_is_not_there_is_found(command: str, fault: str | None) -> None:
    assert fault_of(command) == fault


@pytest.mark.parametrize(
    ("shown", "printed", "is_right"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("", "a\n", False),
        ("a\n  ...\n", "a\nb\nc\n", True),
        ("a\n  ...\n", "b\nc\n", False),
        ("on 2026-11-21 after 12 ms\n", "on 2026-11-26 after 1,234 ms\n", True),
        ("on 2026-11-21 after 12 ms\n", "on 2026-11-26 after some time\n", False),
        ("NODE  PID\n1     4885\n", "NODE  PID\n1     77\n", True),
        ("NODE  PID\n1     4885\n", "NODE  PID\n2     4885\n", False),
        ("NODE  PID\n1     4885\n", "NODE  PID\n1     -\n", False),
        ("TOPIC  LEADER  IN-SYNC\nt      1       1,3\n", "TOPIC  LEADER  IN-SYNC\nt      3       3,1\n", True),
        ("TOPIC  LEADER  IN-SYNC\nt      1       1,3\n", "TOPIC  LEADER  IN-SYNC\nt      3       3,2\n", False),
        ("TOPIC  OFFSET\nt      1\n", "TOPIC  OFFSET\nt      2\n", False),
    ],
)
def test_what_differs_from_run_to_run_is_compared_by_its_form(shown: str, printed: str, is_right: bool) -> None:
    assert is_shown(shown, printed, {"LEADER", "IN-SYNC"}) is is_right

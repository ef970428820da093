"""What is typed in docs/production.md, with a JVM of its own: the commands that print something, and the rights of one environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.cluster_command import consecutive_ports
from tests.cli.pages import PORTS, Terminal, Typed, blocks, sessions

SECONDS_MAX = 300


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """With the file of the page, and without a broker."""
    found = Terminal(tmp_path, consecutive_ports(PORTS))
    [program] = blocks("production.md", "python")
    (found.directory / "sales.py").write_text(program)
    return found


def test_a_pipeline_is_installed_upgraded_and_replayed(terminal: Terminal) -> None:
    with terminal.serving(Typed("ottla dev", "ottla dev: serving Kafka clients at 127.0.0.1:9092\n...\n")):
        for session in sessions("production.md"):
            terminal.run(session, seconds=SECONDS_MAX)


def test_the_rights_of_one_environment_are_what_its_pipeline_needs(terminal: Terminal) -> None:
    """The second line is needed for the checkpoint's topic, and the third for ``reset`` alone."""
    [rights] = blocks("production.md", "sh")
    to_read_and_write, to_see_settings, to_reset = rights.splitlines()
    dev = Typed("ottla dev --secure --data broker", "ottla dev: serving Kafka clients at 127.0.0.1:9092, over SASL_SSL\n...\n")
    run = f"ottla pipeline run sales.py --app staging-sales --data {terminal.directory}/data --until-caught-up"
    reset = f"ottla pipeline reset staging-sales --data {terminal.directory}/data --yes"
    with terminal.serving(dev):
        terminal.environment["OTTLA_COMMAND_CONFIG"] = admin = "broker-security/client.properties"
        terminal.type("echo staging-secret | ottla user add staging --password-file -")
        terminal.type("ottla topic create staging-sales staging-sales-bad staging-totals")
        terminal.type(f"""sed 's/username=.*"/username="staging" password="staging-secret"/' {admin} > staging.properties""")
        staging = {"OTTLA_COMMAND_CONFIG": "staging.properties", "STAGE": "staging-"}

        terminal.type(to_read_and_write)
        terminal.environment |= staging
        terminal.type("""printf '{"customer":"ada","amount":5}\\n?\\n' | ottla produce staging-sales""")
        lacking = terminal.type(f"{run} --restarts 0 || test $? = 3", seconds=SECONDS_MAX)
        assert "lacks DESCRIBE_CONFIGS on topic staging-sales-totals-checkpoint" in lacking

        terminal.environment["OTTLA_COMMAND_CONFIG"] = admin
        terminal.type(to_see_settings)
        terminal.environment |= staging
        assert "staging-sales-totals  has caught up" in terminal.type(run, seconds=SECONDS_MAX)
        assert terminal.type("ottla consume staging-totals --exit") == '{"customer":"ada","total":5.0}\n'
        assert "files written from topic" in terminal.type(reset.replace(" reset ", " restore "))
        assert "GROUP_AUTHORIZATION_FAILED" in terminal.type(f"{reset} || test $? = 1")

        terminal.environment["OTTLA_COMMAND_CONFIG"] = admin
        terminal.type(to_reset)
        terminal.environment |= staging
        assert "topic staging-sales-totals-checkpoint: deleted" in terminal.type(reset)

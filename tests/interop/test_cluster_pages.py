"""What is typed in README and in the pages of clusters, with a quorum and with ZooKeeper: each command prints what is shown there."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.cluster_command import consecutive_ports
from tests.cli.pages import PORTS, SECONDS_MAX, Terminal, Typed, blocks, sessions
from tests.waiting import eventually

ROLES: Final = {"CONTROLLER"}
LEADERS: Final = {"LEADER", "EPOCH", "REPLICAS", "IN-SYNC"}
MOVES: Final = {
    "NODE",
    "PARTITION",
    "END-OFFSET",
    "LAG",
    "BEHIND-MS",
    "FETCHED-MS-AGO",
    "LEADER-EPOCH",
    "REPLICAS",
    "BYTES",
    "USABLE-BYTES",
    "TOTAL-BYTES",
}
PLACES: Final = {"/etc/systemd/system": "units", "/etc/ottla": "etc", "/var/lib/ottla": "var"}
ATTEMPTS_MAX: Final = 20


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, consecutive_ports(PORTS))


def status(terminal: Terminal, of: str = "") -> Any:
    [found] = json.loads(terminal.type(f"ottla cluster status {of} --format json || true"))["items"]
    return found


def problems(terminal: Terminal) -> int:
    [found] = json.loads(terminal.type("ottla cluster health --format json || true"))["items"]
    return len(found["problems"])


def active(terminal: Terminal, of: str = "") -> Any:
    """The node that is the active controller, once there is one."""
    return eventually(lambda: status(terminal, of)["active_controller"], lambda node: node is not None)


def wait_for_another_controller(terminal: Terminal, dead: int, of: str = "") -> None:
    """The page shows what there is a second after node ``dead`` was killed."""

    def is_over(found: Any) -> bool:
        node = found["nodes"][dead - 1]
        is_fenced = node["broker"] == "fenced"
        return found["active_controller"] not in (None, dead) and is_fenced and node["controller"] != "follower"

    eventually(lambda: status(terminal, of), is_over)


def move_controller(terminal: Terminal, *, away_from: set[int]) -> None:
    """None of these is the active controller: in the run of the page it was another one."""
    for _ in range(ATTEMPTS_MAX):
        node = active(terminal)
        if node not in away_from:
            return
        terminal.type(f"ottla cluster restart {node}")
        terminal.type("ottla cluster health --until-healthy")
    raise AssertionError(f"the active controller is always one of {away_from}")


@contextlib.contextmanager
def stopped_at_the_end(terminal: Terminal) -> Iterator[None]:
    """A cluster that runs on does so until then, at the longest."""
    try:
        yield
    finally:
        terminal.type("ottla cluster stop || true")


def test_the_cluster_of_the_readme(terminal: Terminal) -> None:
    _, _, (start, *killed) = sessions("README.md")
    with terminal.serving(start):
        move_controller(terminal, away_from={2})
        terminal.run(killed, columns=ROLES)


def test_a_cluster_on_one_machine(terminal: Terminal) -> None:
    start, killed, health, *_, moves = sessions("clusters.md")
    columns = ROLES | LEADERS
    kill, *seen, restart, add, stop = killed
    with stopped_at_the_end(terminal):
        terminal.run(start, columns=columns)
        move_controller(terminal, away_from={2})
        terminal.run([kill])
        wait_for_another_controller(terminal, 2)
        terminal.run(seen, columns=columns)
        eventually(lambda: problems(terminal), lambda count: count == 3)  # a voter is silent after some seconds
        terminal.run(health)
        terminal.run([restart, add])
        terminal.type("ottla cluster health --until-healthy")
        terminal.run(moves, columns=MOVES)
        terminal.run([stop])


def test_all_cores_of_a_machine(terminal: Terminal) -> None:
    _, _, _, [start], *_ = sessions("clusters.md")
    text = "listeners=PLAINTEXT://localhost:9092\nlog.dirs=data\n"
    (terminal.directory / "server.properties").write_text(terminal.moved(text))
    with terminal.serving(start):
        assert [node["broker"] for node in status(terminal, "-B localhost:9092")["nodes"]] == ["alive"] * 3


def test_three_machines(tmp_path: Path) -> None:
    _, _, _, _, made, unit, check, killed, _ = sessions("clusters.md")
    port = consecutive_ports(PORTS)
    [text] = [block for block in blocks("clusters.md", "") if "process.roles" in block]
    machines: list[Terminal] = []
    for number in (1, 2, 3):
        directory = tmp_path / str(number)
        for name in PLACES.values():
            (directory / name).mkdir(parents=True)
        machine = Terminal(directory, port, places={page: str(directory / name) for page, name in PLACES.items()})
        config = text.replace("10.0.0.", "127.0.1.").replace("node.id=1", f"node.id={number}")
        config = re.sub(r"^listeners=.*$", lambda found: found[0].replace("127.0.1.1", f"127.0.1.{number}"), config, flags=re.MULTILINE)  # noqa: B023
        (directory / "etc" / "server.properties").write_text(machine.moved(config))
        (directory / "bin" / "systemctl").write_text("#!/bin/sh\n")  # the test does what systemd would
        (directory / "bin" / "systemctl").chmod(0o755)
        machine.run(of_machine(number, made))
        machine.run(unit)
        machines.append(machine)
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(served(machine)) for machine in machines]
        for machine in machines:
            eventually((machine.directory / "ready").exists, bool)
        first = machines[0]
        eventually(lambda: [node["broker"] for node in status(first, "-B 127.0.1.2:9092")["nodes"]], lambda found: found == ["alive"] * 3)
        first.run(check, columns=ROLES)
        started[2].kill()
        wait_for_another_controller(first, 3, "-B 127.0.1.1:9092,127.0.1.2:9092")
        first.run(with_lag(first, killed), columns=ROLES | LEADERS)


def of_machine(number: int, made: list[Typed]) -> list[Typed]:
    """The page shows the first machine, which names the other two."""
    others = ", ".join(f"127.0.1.{other}:9093" for other in (1, 2, 3) if other != number)
    shown = {"10.0.0.2:9093, 10.0.0.3:9093": others, "If controller 1 ran": f"If controller {number} ran"}
    outputs = [one.output for one in made]
    for before, after in shown.items():
        assert any(before in output for output in outputs), before
        outputs = [output.replace(before, after) for output in outputs]
    return [one._replace(output=output) for one, output in zip(made, outputs, strict=True)]


def with_lag(machine: Terminal, killed: list[Typed]) -> list[Typed]:
    """On the page node 3 was the active controller: the next one does not know its lag."""
    seen, *others = killed
    node = status(machine, "-B 127.0.1.1:9092,127.0.1.2:9092")["nodes"][2]
    lag = "-" if node["metadata_lag"] is None else node["metadata_lag"]
    return [seen._replace(output=re.sub(r"-\n\Z", f"{lag}\n", seen.output)), *others]


@contextlib.contextmanager
def served(machine: Terminal) -> Iterator[subprocess.Popen[bytes]]:
    """What the unit of the machine starts."""
    unit = (machine.directory / "units" / "ottla.service").read_text()
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    words = [*machine.moved(command).split(), "--ready-file", str(machine.directory / "ready")]
    with (machine.directory / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=machine.directory, env=machine.environment, stdout=log, stderr=log)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) in (0, -signal.SIGKILL)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_cluster_with_zookeeper(terminal: Terminal) -> None:
    [start], look, brokers, controller, topic, follower_dies, controller_dies, after = sessions("zookeeper.md")
    [program] = [block for block in blocks("zookeeper.md", "python") if "def show" in block]
    (terminal.directory / "znodes.py").write_text(program)
    with terminal.serving(start):
        move_controller(terminal, away_from={1, 2})
        for session in (look, brokers, controller, topic):
            terminal.run(session, columns=ROLES)
        kill, *seen = follower_dies
        terminal.run([kill])
        wait_for_another_controller(terminal, 1)
        terminal.run(seen)
        terminal.run(controller_dies)
        wait_for_another_controller(terminal, 3)
        terminal.run(after, columns=ROLES)

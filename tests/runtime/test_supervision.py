"""The supervisor beside nodes that misbehave: small programs that speak a node's side of the protocol, or do not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.errors import KafkaError
from ottla.runtime.supervision import supervisor as supervision
from ottla.runtime.supervision.control import Answer, NoSupervisor, Order, ask_supervisor, serve_control
from ottla.runtime.supervision.node_process import NodeFailed, NodeSpec, NodeState
from ottla.runtime.supervision.paused import is_paused
from ottla.runtime.supervision.supervised import NodeOrder
from ottla.runtime.supervision.supervisor import Supervisor

SERVES = "import sys; order = sys.stdin.readline(); print('h:1', flush=True); "
OBEDIENT = SERVES + "sys.stdin.read()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + OBEDIENT
TOGETHER = (
    "import signal, threading; term = threading.Event(); signal.signal(signal.SIGTERM, lambda *_: term.set()); "
    + SERVES
    + "term.wait(); print('left', flush=True); closed = sys.stdin.readline(); open(sys.argv[1], 'a').write(closed)"
)
HELD = TOGETHER.replace("term.wait();", "term.wait(); open(sys.argv[2]).close();")  # a named pipe: until it is opened here, too
FAILS = "import sys; sys.stdin.readline(); sys.stderr.write('ottla: the disk is on fire\\n'); sys.exit(3)"


def spec(node_id: int, program: str, *arguments: str, log_file: Path | None = None) -> NodeSpec:
    command = [sys.executable, "-c", program, *arguments]
    return NodeSpec(NodeOrder(node_id, {}), command, None if log_file is None else str(log_file))


class Watch:
    """What a supervisor said, and a wait for what it is to say or to be."""

    def __init__(self, *specs: NodeSpec, is_restarting: bool = False) -> None:
        self.said: list[str] = []
        self._changed = asyncio.Event()
        self.supervisor = Supervisor(specs, say=self._say, on_changed=self._changed.set, is_restarting=is_restarting)

    def _say(self, text: str) -> None:
        self.said.append(text)
        self._changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


def watched(body: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await body()

    asyncio.run(run())


def test_a_node_that_ignores_sigterm_is_killed_in_the_end_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "STOP_SECONDS_MAX", 0.2)

    async def body() -> None:
        watch = Watch(spec(1, STUBBORN), spec(2, OBEDIENT))
        await watch.supervisor.start()
        await watch.supervisor.stop()
        states = {node_id: node.state for node_id, node in watch.supervisor.nodes.items()}
        assert states[1] is NodeState.KILLED
        assert watch.said == ["node 1 did not stop within 0 s and was killed"]

    watched(body)


def test_nodes_that_stop_together_end_when_all_have_left_and_one_alone_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        closed, may_leave = tmp_path / "closed", tmp_path / "may_leave"
        os.mkfifo(may_leave)
        watch = Watch(spec(1, TOGETHER, str(closed)), spec(2, HELD, str(closed), str(may_leave)), spec(3, TOGETHER, str(closed)))
        await watch.supervisor.start()
        await watch.supervisor.stop_node(3)
        assert closed.read_text() == "close\n"
        stopping = asyncio.create_task(watch.supervisor.stop())
        await watch.until(lambda: watch.supervisor.nodes[1].has_left)
        assert watch.supervisor.nodes[1].is_running
        assert closed.read_text() == "close\n", "it waits for the slow one"
        await asyncio.to_thread(may_leave.write_bytes, b"")
        await stopping
        assert closed.read_text() == "close\n" * 3
        assert [node.state for node in watch.supervisor.nodes.values()] == [NodeState.STOPPED] * 3
        assert watch.said == []

    watched(body)


def test_a_node_that_was_stopped_by_sigstop_is_continued_and_stops_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        monkeypatch.setattr(supervision, "STOP_SECONDS_MAX", 10.0)
        watch = Watch(spec(1, TOGETHER, str(tmp_path / "closed")))
        await watch.supervisor.start()
        node = watch.supervisor.nodes[1]
        assert node.pid is not None
        assert not is_paused(node.pid)
        os.kill(node.pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(node.pid, os.WUNTRACED)[1])
        assert is_paused(node.pid) == (sys.platform == "linux")
        await watch.supervisor.stop_node(1)
        assert (node.state, watch.said) == (NodeState.STOPPED, [])

    watched(body)


def test_a_node_that_dies_meanwhile_keeps_no_other_from_ending(tmp_path: Path) -> None:
    async def body() -> None:
        watch = Watch(spec(1, TOGETHER, str(tmp_path / "closed")), spec(2, STUBBORN))
        await watch.supervisor.start()
        stopping = asyncio.create_task(watch.supervisor.stop())
        await watch.until(lambda: watch.supervisor.nodes[1].has_left)
        await watch.supervisor.kill_node(2)
        await stopping
        assert watch.supervisor.nodes[1].state is NodeState.STOPPED

    watched(body)


def test_a_node_that_cannot_start_ends_the_others_with_its_own_words(tmp_path: Path) -> None:
    async def body() -> None:
        watch = Watch(spec(1, OBEDIENT), spec(2, FAILS, log_file=tmp_path / "log"))
        with pytest.raises(NodeFailed, match=r"node 2 ended with exit code 3: the disk is on fire"):
            await watch.supervisor.start()
        assert not watch.supervisor.nodes[1].is_running
        assert watch.said == [], "what start raises is not said as well"

    watched(body)


def test_a_program_that_is_not_there_is_a_failure_in_words() -> None:
    async def body() -> None:
        watch = Watch(NodeSpec(NodeOrder(1, {}), ["/nowhere/python"]))
        with pytest.raises(NodeFailed, match=r"node 1 cannot be started: .*No such file"):
            await watch.supervisor.start()

    watched(body)


def test_failures_in_a_row_are_followed_by_longer_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It serves once, and then fails three times before it serves again."""
    monkeypatch.setattr(supervision, "RESTART_SECONDS", 0.001)
    counter = tmp_path / "counter"
    counting = "import pathlib, sys; file = pathlib.Path(sys.argv[1]); n = len(file.read_text()) if file.exists() else 0; "
    program = counting + "file.write_text('x' * (n + 1)); n in (1, 2, 3) and sys.exit(4); " + OBEDIENT
    pauses: list[float] = []

    async def body() -> None:
        watch = Watch(spec(1, program, str(counter)), is_restarting=True)
        pause = watch.supervisor._pause_before_restart

        def noted(node_id: int) -> float:
            pauses.append(pause(node_id))
            return pauses[-1]

        monkeypatch.setattr(watch.supervisor, "_pause_before_restart", noted)
        await watch.supervisor.start()
        await watch.supervisor.kill_node(1)
        await watch.until(lambda: "node 1 serves again" in watch.said)
        assert pauses == [0.001, 0.002, 0.004, 0.008]
        assert watch.said[0] == "node 1 was killed (SIGKILL); it is started again in 0 s"
        assert watch.said[1] == "node 1 ended with exit code 4; it is started again in 0 s"
        assert len(watch.said) == 5
        await watch.supervisor.stop()
        assert len(watch.said) == 5, "a stop is not reported as an end"

    watched(body)


def test_a_node_that_was_asked_to_end_is_reported_and_stays_down(tmp_path: Path) -> None:
    async def body() -> None:
        watch = Watch(spec(1, TOGETHER, str(tmp_path / "closed")), is_restarting=True)
        await watch.supervisor.start()
        pid = watch.supervisor.nodes[1].pid
        assert pid is not None
        os.kill(pid, signal.SIGTERM)  # by somebody else
        await watch.until(lambda: bool(watch.said))
        assert watch.said == ["node 1 ended with exit code 0"]
        assert not watch.supervisor.nodes[1].is_running
        with pytest.raises(KafkaError, match="node 1 does not run: it ended with exit code 0"):
            await watch.supervisor.kill_node(1)

    watched(body)


def test_orders_reach_a_supervisor_in_a_directory_with_a_long_name(tmp_path: Path) -> None:
    """A path of a Unix socket has about 100 bytes."""
    directory = tmp_path / ("x" * 150)
    directory.mkdir()

    async def carry_out(order: Order) -> Answer:
        return Answer(f"{order.command} {order.node_id}")

    async def body() -> None:
        with pytest.raises(NoSupervisor):
            await asyncio.to_thread(ask_supervisor, str(directory), Order("kill", 3))
        server = await serve_control(str(directory), carry_out)
        assert (await asyncio.to_thread(ask_supervisor, str(directory), Order("kill", 3))).error == "kill 3"
        server.close()
        with pytest.raises(NoSupervisor):  # the socket is still there, and no process listens
            await asyncio.to_thread(ask_supervisor, str(directory), Order("kill", 3))
        again = await serve_control(str(directory), carry_out)
        assert (await asyncio.to_thread(ask_supervisor, str(directory), Order("stop"))).error == "stop None"
        again.close()

    watched(body)


def test_a_fifo_that_is_named_as_the_directory_has_no_supervisor(tmp_path: Path) -> None:
    """`ottla cluster status --data FIFO` waited for its writer without end."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    asked = f"from ottla.runtime.supervision.control import *; ask_supervisor({str(fifo)!r}, Order('status'))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=30, check=False)
    assert f"no cluster runs in {fifo}" in done.stderr

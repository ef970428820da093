"""A broker, and the demonstration, at the signals that end them in order."""

from __future__ import annotations

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.cli.nodes import foreground
from ottla.config import BrokerConfig
from ottla.runtime import serve
from ottla.spark.demo import job

pytestmark = pytest.mark.usefixtures("heard_by_default")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_twice_at_once_does_not_kill_a_broker(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """``timeout`` sends two, and so do a terminal that closes and its shell."""

    async def serving(_config: object, stopping: asyncio.Event, *_rest: object) -> None:
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stopping.wait(), 10)
        assert signal.getsignal(number) not in (signal.SIG_DFL, signal.default_int_handler), "the next one would end it at once"

    monkeypatch.setattr(serve, "_serve", serving)
    serve.run_broker(BrokerConfig({}))
    assert signal.getsignal(number) not in (signal.SIG_DFL, signal.default_int_handler), "`ottla dev` has its data yet"
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("numbers", "kills"), [([signal.SIGHUP] * 2, 0), ([signal.SIGTERM] * 2, 0), ([signal.SIGINT] * 2, 1)])
def test_a_terminal_that_closes_stops_the_nodes_of_a_supervisor_in_order(
    monkeypatch: pytest.MonkeyPatch, numbers: list[signal.Signals], kills: int
) -> None:
    """They were killed: its shell sends SIGHUP once more. A second Ctrl-C is meant, and so is a signal that comes later."""
    killed: list[None] = []

    async def kill() -> None:
        killed.append(None)

    async def main() -> None:
        manner = foreground.Manner("info", "text", has_log_files=False, is_restarting=False)
        running = foreground.Foreground(cast(Any, None), cast(Any, None), [], manner, on_served=lambda _: None)
        monkeypatch.setattr(running, "_supervisor", SimpleNamespace(nodes={}, kill=kill))
        for number in numbers:
            running._on_signal(number)
        await asyncio.sleep(0)
        assert (running._stopping.is_set(), len(killed)) == (True, kills)
        monkeypatch.setattr(foreground, "ONE_STOP_S", 0)
        running._on_signal(numbers[-1])
        await asyncio.sleep(0)
        assert len(killed) == kills + 1

    asyncio.run(main())


def test_a_terminal_that_closes_ends_the_demonstration_as_a_ctrl_c_does() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with job._terminable(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is before

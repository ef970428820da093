"""A Ctrl-C or a SIGTERM between calls to a JVM."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.cli.ctrl_c import ctrl_c_in_pauses, stopped_by_signals
from ottla.runtime.stops import ONE_STOP_S, stop_signals
from ottla.spark.link import breakable, broken_off_in, link_for
from ottla.spark.registry import Registry


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def is_broken_off(call: Callable[[], object]) -> bool:
    try:
        call()
    except KeyboardInterrupt:
        return True
    return False


@pytest.fixture(autouse=True)
def asleep(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a pause would have been; one of two seconds meets a Ctrl-C."""
    found: list[float] = []

    def sleep(seconds: float) -> None:
        found.append(seconds)
        if seconds == 2:
            press()

    monkeypatch.setattr(time, "sleep", sleep)
    return found


pytestmark = pytest.mark.usefixtures("heard_by_default")


def test_a_call_is_ended_before_a_ctrl_c_is_heard(asleep: list[float]) -> None:
    with ctrl_c_in_pauses() as pauses:
        assert not is_broken_off(press)
        assert is_broken_off(lambda: pauses.pause(1))
    assert not asleep, "the pause has not begun"


def test_a_pause_ends_with_a_ctrl_c(asleep: list[float]) -> None:
    with ctrl_c_in_pauses() as pauses:
        assert not is_broken_off(lambda: pauses.pause(1))
        assert is_broken_off(lambda: pauses.pause(2))
    assert asleep == [1, 2]


def test_a_wait_for_others_than_the_jvm_ends_with_a_ctrl_c() -> None:
    """``ottla pipeline run`` waited half a minute for a schema registry that was away, and then ended with the registry's error."""
    with ctrl_c_in_pauses() as pauses, broken_off_in(pauses.breakable):
        asked: list[float] = []

        def pause(seconds: float) -> None:
            asked.append(seconds)
            press()

        registry = Registry("http://127.0.0.1:9", pause=pause)
        assert is_broken_off(lambda: registry.newest("orders-value"))
        assert len(asked) == 1
        assert is_broken_off(lambda: registry.newest("orders-value")), "one that came before is heard at once"
        assert len(asked) == 1


def test_a_wait_for_brokers_ends_with_a_ctrl_c() -> None:
    async def wait() -> None:
        press()
        await asyncio.wait_for(asyncio.get_running_loop().create_future(), 10)  # the limit is for a stop that is not heard

    link = link_for({"kafka.bootstrap.servers": "127.0.0.1:9"})
    with ctrl_c_in_pauses() as pauses, broken_off_in(pauses.breakable):
        assert is_broken_off(lambda: link.run(wait()))


def test_the_wait_of_another_thread_is_not_for_a_ctrl_c() -> None:
    with ctrl_c_in_pauses() as pauses, broken_off_in(pauses.breakable):
        press()

        def wait() -> str:
            with breakable():
                return "waited"

        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(wait).result() == "waited"
        assert is_broken_off(wait)


def test_a_second_ctrl_c_ends_whatever_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = iter([100.0, 100.0 + ONE_STOP_S])
    monkeypatch.setattr(time, "monotonic", lambda: next(times_s))
    with ctrl_c_in_pauses():
        assert not is_broken_off(press)
        assert is_broken_off(press)


def test_two_signals_at_once_are_one_stop_as_timeout_sends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = iter([100.0, 100.2, 100.4])
    monkeypatch.setattr(time, "monotonic", lambda: next(times_s))
    with ctrl_c_in_pauses() as pauses:
        assert is_broken_off(lambda: pauses.pause(2))
        assert not is_broken_off(press), "the queries are being stopped by then"
        assert not is_broken_off(press)


def test_the_handler_that_was_there_is_there_again() -> None:
    earlier = signal.getsignal(signal.SIGINT)
    with ctrl_c_in_pauses():
        assert signal.getsignal(signal.SIGINT) is not earlier
    assert signal.getsignal(signal.SIGINT) is earlier


STOPS = [signal.SIGTERM, signal.SIGHUP]
"""What a service manager sends, and a terminal that closes."""


@pytest.mark.parametrize("number", STOPS)
def test_a_service_manager_stops_it_as_a_ctrl_c_does(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with ctrl_c_in_pauses() as pauses:
        assert not is_broken_off(lambda: os.kill(os.getpid(), number))
        assert is_broken_off(lambda: pauses.pause(1))
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", STOPS)
def test_two_sigterms_at_once_close_what_is_open_as_timeout_sends_them(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    times_s = iter([100.0, 100.2, 100.0 + ONE_STOP_S])
    monkeypatch.setattr(time, "monotonic", lambda: next(times_s))
    ends: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", ends.append)
    before = signal.getsignal(number)

    def ask() -> None:
        os.kill(os.getpid(), number)

    with stopped_by_signals():
        assert is_broken_off(ask)
        assert not is_broken_off(ask), "the member leaves its group by then"
        assert not ends
        assert not is_broken_off(ask)
        assert (ends, signal.getsignal(number)) == ([number], signal.SIG_DFL)
    assert signal.getsignal(number) is before


def test_a_signal_that_is_ignored_by_a_shell_is_none_to_stop() -> None:
    """SIGINT, by what a script starts in the background, and SIGHUP, by what nohup starts."""
    for number in (signal.SIGINT, signal.SIGHUP):
        before = signal.signal(number, signal.SIG_IGN)
        try:
            assert number not in stop_signals()
        finally:
            signal.signal(number, before)
        assert number in stop_signals()


def test_a_terminal_that_closes_does_not_stop_what_nohup_started() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopped_by_signals():
            assert not is_broken_off(lambda: os.kill(os.getpid(), signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)

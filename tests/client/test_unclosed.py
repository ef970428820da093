"""Clients that are dropped without ``close``: the application is warned of each, with the line that made it, and of no task inside."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import warnings
from collections.abc import Iterator

import pytest

from ottla import aio, sync

ADDRESS = "127.0.0.1:9"  # where nothing listens
AIO = (aio.Producer, aio.Consumer, aio.Admin)
SYNC = (sync.Producer, sync.Consumer, sync.Admin)


@pytest.fixture
def seen() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings of unclosed clients in the test; what earlier ones left is collected before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        yield found


def of_clients(seen: list[warnings.WarningMessage]) -> list[tuple[str, str, int]]:
    return [(str(found.message), found.filename, found.lineno) for found in seen if "unclosed ottla" in str(found.message)]


def line_before() -> int:
    """The number of the line before the one that calls this."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno - 1


@pytest.mark.parametrize("kind", AIO, ids=lambda kind: kind.__name__)
def test_a_dropped_client_warns_with_the_line_that_made_it(
    kind: type, seen: list[warnings.WarningMessage], caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.new_event_loop()
    made: list[int] = []

    async def make() -> None:
        client = kind(ADDRESS, client_id="c")
        made.append(line_before())
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(client.partitions_for("t") if kind is not aio.Admin else client.list_topics(), timeout=0)

    loop.run_until_complete(make())
    loop.close()  # not by asyncio.run, which would cancel the tasks that are left
    gc.collect()
    text = f"unclosed ottla.aio.{kind.__name__}, made at {__file__}:{made[0]}: make it with `async with`, or call `await client.close()`"
    assert of_clients(seen) == [(text, __file__, made[0])]
    assert not [record.getMessage() for record in caplog.records if record.name == "asyncio"]


@pytest.mark.parametrize("kind", SYNC, ids=lambda kind: kind.__name__)
def test_a_dropped_client_for_threads_warns_once_with_the_line_that_made_it(kind: type, seen: list[warnings.WarningMessage]) -> None:
    client = kind(ADDRESS)
    made = line_before()
    thread = client._thread
    del client
    thread.stop()
    gc.collect()
    text = f"unclosed ottla.sync.{kind.__name__}, made at {__file__}:{made}: make it with `with`, or call `client.close()`"
    assert of_clients(seen) == [(text, __file__, made)]


def test_a_closed_client_warns_of_nothing(seen: list[warnings.WarningMessage]) -> None:
    async def main() -> None:
        for kind in AIO:
            async with kind(ADDRESS):
                pass

    asyncio.run(main())
    for kind in SYNC:
        with kind(ADDRESS):
            pass
    gc.collect()
    assert of_clients(seen) == []

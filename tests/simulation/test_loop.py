"""The virtual loop."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator

import pytest

from ottla.sim.loop import run


def test_a_generator_that_nobody_reads_on_runs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ended.append("finally")

    async def main() -> None:
        async for number in numbers():
            assert number == 1
            break
        gc.collect()

    run(main())
    gc.collect()
    assert not ended
    assert not unraisable

"""Hunts over seeds, on several processes: each finding is printed with its seed, and what was met, counted."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from multiprocessing.pool import AsyncResult
from typing import Final

from tests.simulation.trying import Tried, try_seed

GC_THRESHOLDS: Final = (200_000, 50, 100)
"""Rarely: a world is full of cycles that live as long as it does."""


def seeds_for(seconds: float, first: int) -> Iterator[int]:
    """One seed after the other until the time is over."""
    end = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count(first))


def hunt(seeds: Iterable[int], jobs: int, kind: str, home: str) -> tuple[int, Counter[str]]:
    """The number of seeds with findings, each of which is printed, and what was met."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
    found, met = 0, Counter[str]()
    with suppress(KeyboardInterrupt), multiprocessing.get_context("spawn").Pool(jobs, _prepare) as pool:
        waiting = deque[AsyncResult[Tried]]()
        for seed in seeds:
            waiting.append(pool.apply_async(partial(try_seed, kind, home), (seed,)))
            while len(waiting) > jobs:
                found += _tell(waiting.popleft().get(), met)
        while waiting:
            found += _tell(waiting.popleft().get(), met)
    return found, met


def _prepare() -> None:
    """A process that tries seeds leaves interrupts to the one that counts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(*GC_THRESHOLDS)


def _tell(tried: Tried, met: Counter[str]) -> bool:
    seed, findings, states = tried
    met.update(states)
    for finding in findings[:4]:
        sys.stdout.write(f"seed {seed}: {finding}\n")
        sys.stdout.flush()
    return bool(findings)

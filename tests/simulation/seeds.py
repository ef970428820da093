"""Hunts over seeds: for a time, on several processes, each finding printed with its seed, and what was met, counted.

A hunt that is interrupted (SIGINT) prints what it has counted until then.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.pool import AsyncResult
from typing import Final

GC_THRESHOLDS: Final = (200_000, 50, 100)
"""Rarely: a world is full of cycles that live as long as it does."""
Tried = tuple[int, list[str], Counter[str]]
"""A seed, what it found, and what it met, with the number of "runs"."""
Try = Callable[[int], Tried]


def never_reached(met: Counter[str], important: Iterable[str]) -> list[str]:
    return [state for state in important if not met[state]]


def seeds_for(seconds: float, first: int) -> Iterator[int]:
    """One seed after the other until the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield first
        first += 1


def hunt(seeds: Iterable[int], jobs: int, try_seed: Try) -> tuple[int, Counter[str]]:
    """The number of seeds with findings, each of which is printed, and what met what."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
    found, meetings = 0, Counter[str]()
    with suppress(KeyboardInterrupt), multiprocessing.get_context("spawn").Pool(jobs, _prepare) as pool:
        waiting = deque[AsyncResult[Tried]]()
        for seed in seeds:
            waiting.append(pool.apply_async(try_seed, (seed,)))
            while len(waiting) > jobs:
                found += _tell(waiting.popleft().get(), meetings)
        while waiting:
            found += _tell(waiting.popleft().get(), meetings)
    return found, meetings


def _prepare() -> None:
    """A process that tries seeds leaves interrupts to the one that counts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(*GC_THRESHOLDS)


def _tell(result: Tried, meetings: Counter[str]) -> bool:
    seed, findings, met = result
    meetings.update(met)
    for finding in findings[:4]:
        sys.stdout.write(f"seed {seed}: {finding}\n")
        sys.stdout.flush()
    return bool(findings)


def main(program: str, try_seed: Try, important: Sequence[str]) -> int:
    """1 when there was a finding, or when something important was never met."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--count", type=int, help="so many seeds, however long that takes")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=3)
    options = parser.parse_args()
    first, count = options.first, options.count
    seeds = seeds_for(options.seconds, first) if count is None else range(first, first + count)
    found, met = hunt(seeds, options.jobs, try_seed)
    for kind, count in sorted(met.items()):
        sys.stdout.write(f"{count:9} {kind}\n")
    missing = never_reached(met, important)
    sys.stdout.write(f"{met['runs']} seeds, {found} with findings; never reached: {missing or 'nothing'}\n")
    return int(bool(found or missing))

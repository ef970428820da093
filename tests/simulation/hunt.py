"""Plans of the exploration, from seeds; run as a program it explores some and says what it found.

``python -m tests.simulation.hunt SEEDS [FIRST]`` exits with 1 at the first finding. The runner of planted bugs uses it on a
changed copy of the source.
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
from collections.abc import Iterator

import structlog

from ottla.sim.explore import Plan, Silence, explore

STEPS_MAX = 170
"""A little more than the disk operations of a run without a crash."""
SILENCES = [*Silence, *[Silence.NONE] * 4]
"""Half of the plans have one."""


def silence() -> None:
    """Brokers that are crashed on purpose have much to say."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def plans(first: int, count: int) -> Iterator[Plan]:
    """``count`` plans, each of its own seed."""
    for seed in range(first, first + count):
        rng = random.Random(seed)
        again = rng.choice((None, rng.randrange(1, 60)))
        crash_step, power_cut, is_flushed = rng.randrange(1, STEPS_MAX), rng.random() < 0.66, rng.random() < 0.5
        silence, silence_step = rng.choice(SILENCES), rng.randrange(1, STEPS_MAX)
        yield Plan(seed, crash_step, power_cut, is_flushed, again, silence=silence, silence_step=silence_step)


def every_step(seed: int) -> Iterator[Plan]:
    """A crash before each disk operation of one seed, in the three modes of a crash."""
    for step in range(1, STEPS_MAX):
        for power_cut, is_flushed in ((True, True), (True, False), (False, False)):
            yield Plan(seed, step, power_cut, is_flushed)


def main() -> int:
    silence()
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    crashes = acknowledged = 0
    for plan in itertools.chain(plans(first, count // 2), every_step(1), every_step(2), plans(first + count // 2, count - count // 2)):
        try:
            outcome = explore(plan)
        except (Exception, AssertionError) as error:  # noqa: BLE001 - a planted bug may fail in any way
            sys.stdout.write(f"{plan}: {error!r}\n")
            return 1
        if outcome.findings:
            sys.stdout.write(f"{plan}: {outcome.findings[:3]}\n")
            return 1
        crashes += outcome.crashes
        acknowledged += outcome.acknowledged
    sys.stdout.write(f"{count} plans, {crashes} crashes, {acknowledged} acknowledged records, nothing found\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

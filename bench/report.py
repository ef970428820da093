"""Figures of two sides as a table and as JSON, in ``bench/results``.

A figure is the median of the rounds, a ratio the median of the rounds' ratios, with the smallest and the largest beside it: on a
noisy machine ratios of one moment say more than numbers do.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.goals import Goal
from bench.measures import Figures

RESULTS: Final = Path(__file__).parent / "results"
Rounds = dict[str, list[Figures]]  # by side, our own first


def note(text: str) -> None:
    """How far it is, while it runs."""
    sys.stderr.write(f"bench: {text}\n")


def report(name: str, figures: Rounds, *, beside: str, goals: Mapping[str, Goal]) -> None:
    """The table is printed, and stands in the results with the rounds that it came from. The second side may be missing."""
    about = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, CPython {platform.python_version()}",
        "peer": beside,
    }
    ours, *theirs = figures.values()
    titles = [*figures, "", ""][:2]
    rows = [("", *titles, "ratio", "spread", "goal", "")]
    rows += [_row(figure, ours, theirs[0] if theirs else None, goals.get(figure)) for figure in ours[0]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"{about['date']}  {about['machine']}; beside: {about['peer']}"]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.txt").write_text(text)
    (RESULTS / f"{name}.json").write_text(json.dumps({"about": about, "rounds": figures}, indent=1) + "\n")


def _row(name: str, our_rounds: list[Figures], their_rounds: list[Figures] | None, goal: Goal | None) -> tuple[str, ...]:
    ours = [figures[name] for figures in our_rounds]
    own = statistics.median(ours)
    peer = shown_ratio = spread = ""
    ratio: float | None = None
    if their_rounds is not None and name in their_rounds[0]:
        theirs = [figures[name] for figures in their_rounds]
        ratios = sorted(mine / its for mine, its in zip(ours, theirs, strict=True))
        ratio = statistics.median(ratios)
        peer, shown_ratio, spread = _shown(statistics.median(theirs)), f"{ratio:.2f}", f"{ratios[0]:.2f}-{ratios[-1]:.2f}"
    is_met = None if goal is None else goal.is_met(ratio, own)
    verdict = "" if is_met is None else "met" if is_met else "MISSED"
    return (name, _shown(own), peer, shown_ratio, spread, str(goal or ""), verdict)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"

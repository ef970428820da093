"""``make bench``: this broker beside Apache Kafka, on the same machine, disk and cores, driven by the same generators.

Both run at the same time, the one that is not measured idle; rounds are interleaved, the first one only warms. A figure is the
median of the rounds, a ratio the median of the rounds' ratios, with the smallest and the largest beside it: on a noisy machine
ratios of one moment say more than numbers do. Where Maven or Java is missing, ottla runs alone, and the table says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench import measures
from bench.goals import GOALS, Goal
from bench.measures import Figures
from bench.peers import Kafka, Ottla, Peer

ROUNDS = 3
STARTS = 3
RESULTS = Path(__file__).parent / "results"
WARM: list[Callable[[Peer], Figures]] = [
    measures.one_record,
    measures.batches,
    measures.mebibyte_batches,
    measures.fetches,
    measures.latencies,
    measures.librdkafka,
]
Rounds = dict[str, list[Figures]]  # by peer


def main() -> None:
    kinds: list[type[Peer]] = [Ottla]
    why_not = Kafka.why_not()
    if why_not is None:
        kinds.append(Kafka)
    starts = _starts(kinds)
    warm = _warm(kinds)
    figures = {name: [started | measured for started, measured in zip(starts[name], warm[name], strict=True)] for name in starts}
    _report(figures, why_not)


def _starts(kinds: list[type[Peer]]) -> Rounds:
    """Fresh folders, cold processes, one after the other in turn."""
    found: Rounds = {kind.name: [] for kind in kinds}
    for _ in range(STARTS):
        for kind in kinds:
            peer = kind()
            peer.prepare()
            figures = measures.first_acknowledgement(peer)
            figures |= measures.first_group(peer)
            figures["RSS at rest, MB"] = peer.rss_bytes() / 1e6
            peer.stop()
            found[kind.name].append(figures)
            _note(f"{kind.name} started")
    return found


def _warm(kinds: list[type[Peer]]) -> Rounds:
    found: Rounds = {kind.name: [] for kind in kinds}
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(kind()) for kind in kinds]
        for peer in peers:
            measures.prepare_when_served(peer)
        for number in range(ROUNDS + 1):
            rounds: dict[str, Figures] = {peer.name: {} for peer in peers}
            for measure in WARM:
                for peer in peers:
                    rounds[peer.name] |= measure(peer)
            for peer in peers:
                rounds[peer.name]["RSS peak, MB"] = peer.peak_rss_bytes() / 1e6
                if number:  # the first round warms
                    found[peer.name].append(rounds[peer.name])
            _note(f"round {number} of {ROUNDS}")
    return found


def _note(text: str) -> None:
    sys.stderr.write(f"bench: {text}\n")


def _report(figures: Rounds, why_not: str | None) -> None:
    about = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, CPython {platform.python_version()}",
        "peer": "Apache Kafka 4.3.0, one node, 1 GiB heap, G1" if why_not is None else f"none: {why_not}",
    }
    rows = [("", "ottla", "kafka", "ratio", "spread", "goal", "")]
    for name in figures["ottla"][0]:
        rows.append(_row(name, figures, GOALS.get(name)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"{about['date']}  {about['machine']}; beside: {about['peer']}"]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "broker.txt").write_text(text)
    (RESULTS / "broker.json").write_text(json.dumps({"about": about, "rounds": figures}, indent=1) + "\n")


def _row(name: str, figures: Rounds, goal: Goal | None) -> tuple[str, ...]:
    ours = [figures_of_round[name] for figures_of_round in figures["ottla"]]
    if "kafka" not in figures:
        return (name, _shown(statistics.median(ours)), "", "", "", str(goal or ""), "")
    theirs = [figures_of_round[name] for figures_of_round in figures["kafka"]]
    ratios = sorted(mine / its for mine, its in zip(ours, theirs, strict=True))
    ratio = statistics.median(ratios)
    verdict = "" if goal is None else "met" if goal.is_met(ratio, statistics.median(ours)) else "MISSED"
    spread = f"{ratios[0]:.2f}-{ratios[-1]:.2f}"
    return (name, _shown(statistics.median(ours)), _shown(statistics.median(theirs)), f"{ratio:.2f}", spread, str(goal or ""), verdict)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


if __name__ == "__main__":
    main()

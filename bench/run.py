"""``make bench``: this broker beside Apache Kafka, on the same machine, disk and cores, driven by the same generators.

Both run at the same time, the one that is not measured idle; rounds are interleaved, the first one only warms. Where Maven or
Java is missing, ottla runs alone, and the table says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from bench import backlog, many, measures
from bench.goals import GOALS
from bench.measures import Figures
from bench.peers import Kafka, Ottla, Peer
from bench.report import Rounds, note, report

ROUNDS = 3
STARTS = 3
WARM: list[Callable[[Peer], Figures]] = [
    measures.one_record,
    measures.batches,
    measures.mebibyte_batches,
    measures.fetches,
    measures.latencies,
    measures.librdkafka,
    backlog.beside_a_cold_read,
]


def main() -> None:
    kinds: list[type[Peer]] = [Ottla]
    why_not = Kafka.why_not()
    if why_not is None:
        kinds.append(Kafka)
    parts = [_starts(kinds), _warm(kinds), _many_partitions(kinds)]
    figures = {name: [_joined(rounds) for rounds in zip(*(part[name] for part in parts), strict=True)] for name in parts[0]}
    beside = "Apache Kafka 4.3.0, one node, 1 GiB heap, G1" if why_not is None else f"none: {why_not}"
    report("broker", figures, beside=beside, goals=GOALS)


def _joined(rounds: tuple[Figures, ...]) -> Figures:
    return {name: value for figures in rounds for name, value in figures.items()}


def _starts(kinds: list[type[Peer]]) -> Rounds:
    """Fresh directories, cold processes, one after the other in turn."""
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
            note(f"{kind.name} started")
    return found


def _warm(kinds: list[type[Peer]]) -> Rounds:
    found: Rounds = {kind.name: [] for kind in kinds}
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(kind()) for kind in kinds]
        for peer in peers:
            measures.prepare_when_served(peer)
            backlog.prepare(peer)
        for number in range(ROUNDS + 1):
            rounds: dict[str, Figures] = {peer.name: {} for peer in peers}
            for measure in WARM:
                for peer in peers:
                    rounds[peer.name] |= measure(peer)
            for peer in peers:
                rounds[peer.name]["RSS peak, MB"] = peer.peak_rss_bytes() / 1e6
                if number:  # the first round warms
                    found[peer.name].append(rounds[peer.name])
            note(f"round {number} of {ROUNDS}")
    return found


def _many_partitions(kinds: list[type[Peer]]) -> Rounds:
    """One broker of a kind with few partitions and one with many; the kinds one after the other, or four would share the memory."""
    found: Rounds = {kind.name: [] for kind in kinds}
    for kind in kinds:
        with kind() as few, kind() as crowded:
            many.prepare(few, many.FEW)
            many.prepare(crowded, many.MANY)
            for number in range(ROUNDS + 1):
                figures = many.compared(few, crowded)
                if number:
                    found[kind.name].append(figures)
            for figures in found[kind.name]:
                figures |= many.restart(crowded)
        note(f"{kind.name} with {many.MANY} partitions")
    return found


if __name__ == "__main__":
    main()

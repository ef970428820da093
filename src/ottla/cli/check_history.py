"""``ottla check-history FILE``: the verdicts of ``ottla.history`` on what clients recorded."""

from __future__ import annotations

import sys
from collections import Counter
from typing import BinaryIO

import click

from ottla.cli.output import format_option, print_json
from ottla.history.judge import KINDS, judge
from ottla.history.operations import HistoryError, read_history


@click.command("check-history")
@click.argument("file", type=click.File("rb"))
@click.option("--allow", "allowed", multiple=True, type=click.Choice(KINDS), help="An anomaly that may be; it is counted, and not shown.")
@click.option("--show", "shown_max", default=5, show_default=True, type=click.IntRange(0), help="So many of each kind are shown.")
@format_option
def check_history(file: BinaryIO, allowed: tuple[str, ...], shown_max: int, output: str) -> None:
    """Say which anomalies a history has: lost writes, duplicates, polls out of order, aborted reads, lost commits and others.

    FILE has one JSON object a line, - reads standard input; docs/history.md describes the format and the anomalies. Exit code 0
    when there is none, 1 when there are, or when the history has too little to tell, 2 when the file cannot be read as a history.
    """
    try:
        verdict = judge(read_history(file))
    except HistoryError as error:
        raise click.UsageError(f"{file.name} is no history: {error}") from None
    counts = Counter(anomaly.kind for anomaly in verdict.anomalies)
    found = [anomaly for anomaly in verdict.anomalies if anomaly.kind not in allowed]
    word = "anomalies" if found else "unknown" if verdict.is_unknown else "valid"
    if output == "json":
        events = {"sends": verdict.counts["send"], "polled_records": verdict.record_count, "commits": verdict.counts["commit"]}
        print_json("check-history", [{"verdict": word, "events": events, "counts": counts, "anomalies": found}])
    else:
        counted = {"send": verdict.counts["send"], "polled record": verdict.record_count, "commit": verdict.counts["commit"]}
        click.echo(", ".join(f"{count:,} {noun}{'s'[: count != 1]}" for noun, count in counted.items()))
        for kind in KINDS:
            if counts[kind]:
                click.echo(f"{kind}: {counts[kind]:,}" + (" (allowed)" if kind in allowed else ""))
                for anomaly in [anomaly for anomaly in found if anomaly.kind == kind][:shown_max]:
                    click.echo(f"  event {anomaly.event}  {anomaly.partition}  {anomaly.text}")
        click.echo(
            {"valid": "valid", "unknown": "unknown: nothing was acknowledged, or nothing polled"}.get(
                word, "1 anomaly" if len(found) == 1 else f"{len(found):,} anomalies"
            )
        )
    if word != "valid":
        sys.exit(1)

"""What came out: the result topic read back by a plain consumer, and the table printed from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ottla.spark.demo.sending import DELAYS, TOPICS
from ottla.sync import Consumer, TopicPartition

ROWS_SHOWN: Final = 8
FLIGHTS_SHOWN_MIN: Final = 20
"""A mean over fewer flights says little: such rows are not among the worst."""


class Result(msgspec.Struct):
    """The value of a result record."""

    origin: str
    airline: str
    day: str
    mean_departure_delay: float
    flights: int
    newest_sent_ms: int


@dataclass
class Results:
    latest: dict[bytes, Result] = field(default_factory=dict)  # by key
    record_count: int = 0  # with the results that later ones have replaced
    latencies_ms: list[int] = field(default_factory=list)  # newest flight sent to result written, of flights of this run

    @property
    def flight_count(self) -> int:
        return sum(result.flights for result in self.latest.values())


def read_results(bootstrap: str, *, since_ms: int) -> Results:
    """The whole result topic; latencies only of results whose newest flight was sent since that time."""
    results = Results()
    partitions = [TopicPartition(DELAYS, index) for index in range(TOPICS[DELAYS])]
    with Consumer(bootstrap, client_id="ottla-demo", auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = {partition: end for partition, end in consumer.end_offsets(partitions).items() if end > 0}
        decoder = msgspec.json.Decoder(Result)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for record in consumer.poll(timeout_ms=500, max_records=5_000):
                key, value = record.key or b"", record.value or b""  # the pipeline writes both
                result = results.latest[key] = decoder.decode(value)
                results.record_count += 1
                if result.newest_sent_ms >= since_ms:
                    results.latencies_ms.append(record.timestamp_ms - result.newest_sent_ms)
    results.latencies_ms.sort()
    return results


def percentile(ordered: list[int], fraction: float) -> int:
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


def table(results: Results) -> Iterator[str]:
    """Lines: the first rows, the worst days, and a summary by airline and origin."""
    rows = sorted(results.latest.values(), key=lambda result: (result.day, result.origin, result.airline))
    yield f"{len(rows):,} rows, the first {min(ROWS_SHOWN, len(rows))}:"
    yield from _rows(rows[:ROWS_SHOWN])
    worst = sorted((row for row in rows if row.flights >= FLIGHTS_SHOWN_MIN), key=lambda row: -row.mean_departure_delay)
    if worst:
        yield ""
        yield f"the worst, of those with {FLIGHTS_SHOWN_MIN} flights or more:"
        yield from _rows(worst[:ROWS_SHOWN])
    yield ""
    yield "minutes of mean departure delay over all days (flights):"
    yield from _summary(rows)


def _rows(rows: list[Result]) -> Iterator[str]:
    yield f"  {'day (UTC)':<10}  {'origin':<6}  {'airline':<28}  {'mean delay':>10}  {'flights':>7}"
    for row in rows:
        yield f"  {row.day:<10}  {row.origin:<6}  {row.airline:<28}  {row.mean_departure_delay:>8.1f} m  {row.flights:>7,}"


def _summary(rows: list[Result]) -> Iterator[str]:
    totals: dict[tuple[str, str], tuple[float, int]] = {}
    for row in rows:
        for airline in (row.airline, "all airlines"):
            minutes, flights = totals.get((airline, row.origin), (0.0, 0))
            totals[airline, row.origin] = (minutes + row.mean_departure_delay * row.flights, flights + row.flights)
    origins = sorted({row.origin for row in rows})
    yield f"  {'airline':<28}" + "".join(f"{origin:>20}" for origin in origins)
    for airline in [*sorted({row.airline for row in rows}), "all airlines"]:
        cells = [totals.get((airline, origin)) for origin in origins]
        yield f"  {airline:<28}" + "".join(f"{'-' if cell is None else f'{cell[0] / cell[1]:.1f} ({cell[1]:,})':>20}" for cell in cells)

"""What came out: the result topic read back by a plain consumer, and the table printed from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ottla.spark.demo.sending import DELAYS, LONGEST, UNREADABLE
from ottla.sync import Admin, Consumer, ConsumerRecord, TopicPartition

STATE: Final = f"to-{LONGEST}-longest-changelog"
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


class Delay(msgspec.Struct):
    """The value of a record of the processor's state."""

    minutes: int
    flight: int
    origin: str


@dataclass
class Results:
    latest: dict[bytes, Result] = field(default_factory=dict)  # by key
    record_count: int = 0  # with the results that later ones have replaced
    latencies_ms: list[int] = field(default_factory=list)  # newest flight sent to result written, of flights of this run
    longest: dict[str, Delay] = field(default_factory=dict)  # by carrier, the state of the processor
    unreadable: list[ConsumerRecord[bytes | None, bytes | None]] = field(default_factory=list)

    @property
    def flight_count(self) -> int:
        return sum(result.flights for result in self.latest.values())


def read_results(bootstrap: str, *, since_ms: int) -> Results:
    """Reads all that was committed; latencies only of results whose newest flight was sent since that time."""
    results = Results()
    decoder, delays = msgspec.json.Decoder(Result), msgspec.json.Decoder(Delay)
    for record in committed(bootstrap, DELAYS):
        result = results.latest[record.key or b""] = decoder.decode(record.value or b"")  # the pipeline writes both
        results.record_count += 1
        if result.newest_sent_ms >= since_ms:
            results.latencies_ms.append(record.timestamp_ms - result.newest_sent_ms)
    results.latencies_ms.sort()
    for record in committed(bootstrap, STATE):
        results.longest[(record.key or b"").decode()] = delays.decode(record.value or b"")
    results.unreadable = list(committed(bootstrap, UNREADABLE))
    return results


def committed(bootstrap: str, topic: str) -> Iterator[ConsumerRecord[bytes | None, bytes | None]]:
    """Yields the topic's records, up to its present end; none of a missing topic."""
    with Admin(bootstrap, client_id="ottla-demo") as admin:
        count = len(admin.describe_topic(topic).partitions) if topic in admin.list_topics() else 0
    partitions = [TopicPartition(topic, index) for index in range(count)]
    with Consumer(bootstrap, client_id="ottla-demo", auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign(partitions)
        ends = {partition: end for partition, end in consumer.end_offsets(partitions).items() if end > 0}
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            yield from consumer.poll(timeout_ms=500, max_records=5_000)


def percentile(ordered: list[int], fraction: float) -> int:
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


def table(results: Results) -> Iterator[str]:
    """Yields lines: the first rows, the worst days, and a summary by airline and origin."""
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


def of_state(results: Results) -> Iterator[str]:
    """Yields lines: the longest delays, and what could not be read."""
    found = sorted(results.longest.items(), key=lambda pair: -pair[1].minutes)[:3]
    if found:
        said = ", ".join(f"{carrier} {delay.flight} from {delay.origin} {delay.minutes:,} min" for carrier, delay in found)
        yield f"longest    {said}: the state of a processor, from its topic"
    errors = {(dict(record.headers)["error"] or b"").decode() for record in results.unreadable}
    yield f"unreadable {len(results.unreadable)} records, in a topic of their own" + (
        f"; such as: {min(errors, key=len)}" if errors else ""
    )


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

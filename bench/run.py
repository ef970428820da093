"""``make bench``, first form: this broker alone, plain numbers. The comparison with other brokers comes later.

Warm, three rounds, median of the rounds, loopback, acks=1 unless it says otherwise; one generator process on the same
machine, so that both share its cores.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench.generator import connect, create_topic, exchange, fetch_frame, pipelined, produce_frame, round_trips
from bench.process import BrokerProcess

ROUNDS = 3
SECONDS = 2.0
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    figures: dict[str, float] = {}
    starts = [_start_to_first_acknowledgement() for _ in range(ROUNDS)]
    figures["start to first acknowledgement, ms"] = statistics.median(starts)
    with BrokerProcess() as broker:
        figures["RSS at rest, MB"] = broker.rss_bytes() / 1e6
        create_topic(broker.address, "bench", 4)
        figures |= _throughput(broker)
        figures["RSS peak, MB"] = broker.peak_rss_bytes() / 1e6
    _report(figures)


def _start_to_first_acknowledgement() -> float:
    begin = time.perf_counter()
    with BrokerProcess() as broker:
        create_topic(broker.address, "first", 1)
        with connect(broker.address) as sock:
            exchange(sock, produce_frame("first", 0, batch_bytes=0, record_bytes=100))
            return (time.perf_counter() - begin) * 1000


def _throughput(broker: BrokerProcess) -> dict[str, float]:
    address = broker.address
    one = [produce_frame("bench", index, batch_bytes=0, record_bytes=100) for index in range(4)]
    batch = [produce_frame("bench", index, batch_bytes=16_384, record_bytes=1024) for index in range(4)]
    mebi = produce_frame("bench", 0, batch_bytes=1_000_000, record_bytes=10_000)
    measures: dict[str, Callable[[], float]] = {
        "one-record requests/s, 1 connection": lambda: pipelined(address, one[:1], window=512, seconds=SECONDS).per_second,
        "one-record requests/s, 4 connections": lambda: pipelined(address, one, window=512, seconds=SECONDS).per_second,
        "16 KiB batches MB/s, 1 connection": lambda: _megabytes(broker, batch[:1], 64),
        "16 KiB batches MB/s, 4 connections": lambda: _megabytes(broker, batch, 64),
        "1 MiB batches MB/s": lambda: _megabytes(broker, [mebi], 8),
    }
    figures = {name: statistics.median(measure() for _ in range(ROUNDS)) for name, measure in measures.items()}
    fetch = fetch_frame("bench", 0, offset=0, max_bytes=1 << 20)
    rounds = [pipelined(address, [fetch], window=8, seconds=SECONDS).megabytes_per_second for _ in range(ROUNDS)]
    figures["cached fetch 1 MiB MB/s"] = statistics.median(rounds)
    trips = [round_trips(address, one[0], count=5000) for _ in range(ROUNDS)]
    figures["produce round trip p50, ms"] = statistics.median(p50 for p50, _ in trips)
    figures["produce round trip p99, ms"] = statistics.median(p99 for _, p99 in trips)
    cpu, start = broker.cpu_seconds(), time.perf_counter()
    result = pipelined(address, one[:1], window=512, seconds=SECONDS)
    figures["CPU per one-record request, us"] = (broker.cpu_seconds() - cpu) / result.responses * 1e6
    assert time.perf_counter() > start, "time passes"
    return figures


def _megabytes(broker: BrokerProcess, requests: list[bytes], window: int) -> float:
    result = pipelined(broker.address, requests, window=window, seconds=SECONDS)
    return result.per_second * len(requests[0]) / 1e6


def _report(figures: dict[str, float]) -> None:
    RESULTS.mkdir(exist_ok=True)
    about = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, CPython {platform.python_version()}",
    }
    width = max(map(len, figures))
    lines = [f"{about['date']}  {about['machine']}"] + [f"{name.ljust(width)}  {_shown(value)}" for name, value in figures.items()]
    text = "\n".join(lines)
    sys.stdout.write(text + "\n")
    (RESULTS / "broker.txt").write_text(text + "\n")
    (RESULTS / "broker.json").write_text(json.dumps({"about": about, "figures": figures}, indent=2) + "\n")


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


if __name__ == "__main__":
    main()

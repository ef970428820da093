"""What ottla is held to, beside Apache Kafka in the same run: ratios, and here and there a bound of its own."""

from __future__ import annotations

from typing import Final, NamedTuple


class Goal(NamedTuple):
    """Of ours to theirs: at least ``low`` or at most ``high``; ``own_low`` and ``own_high`` bound our own figure, alone or besides."""

    low: float | None = None
    high: float | None = None
    own_low: float | None = None
    own_high: float | None = None

    def is_met(self, ratio: float | None, own: float) -> bool | None:
        """None when it is a goal beside a peer, and there is none."""
        if ratio is None and (self.low is not None or self.high is not None):
            return None
        return (ratio is None or _lies_within(ratio, self.low, self.high)) and _lies_within(own, self.own_low, self.own_high)

    def __str__(self) -> str:
        bounds = {">= ": self.low, "<= ": self.high, "own >= ": self.own_low, "own <= ": self.own_high}
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        return ", ".join(name + (f"{bound:.3g}" if bound < 1000 else f"{bound:,.0f}") for name, bound in given.items())


def _lies_within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


GOALS: Final = {
    "one-record requests/s, 1 connection": Goal(low=6),
    "one-record requests/s, 4 connections": Goal(low=2.5),
    "16 KiB batches MB/s, 1 connection": Goal(low=4),
    "16 KiB batches MB/s, 4 connections": Goal(low=3),
    "1 MiB batches MB/s": Goal(low=1.3),
    "cached fetch MB/s, 1 MiB": Goal(low=1.2),
    "cached fetch MB/s, 100 partitions x 4 KiB": Goal(low=1.0),
    "produce round trip p50, ms": Goal(high=0.7),
    "produce round trip p99, ms": Goal(high=0.7),
    "end to end p50, ms": Goal(high=0.7),
    "end to end p99, ms": Goal(high=0.7),
    "start to first acknowledgement, ms": Goal(high=1 / 12, own_high=300),
    "first record of a first group, ms": Goal(high=1 / 5),
    "RSS at rest, MB": Goal(high=1 / 8, own_high=60),
    "RSS peak, MB": Goal(high=1 / 6),
    "CPU us per one-record request": Goal(high=0.25),
    "CPU s/GB, 16 KiB batches": Goal(high=0.35),
    "CPU s/GB, 1 MiB batches": Goal(high=0.5),
    "CPU s/GB, fetch": Goal(high=1.0),
    "produce p99 beside a cold read, x quiet": Goal(own_high=3),
    "fetch p99 beside a cold read, x quiet": Goal(own_high=3),
    "2,000 partitions: one-record rate, of that with 10": Goal(own_low=0.8),
    "2,000 partitions: 16 KiB batch rate, of that with 10": Goal(own_low=0.8),
    "2,000 partitions: 4 KiB fetch rate, of that with 10": Goal(own_low=0.8),
    "2,000 partitions: RSS, MB": Goal(own_high=200),
    "2,000 partitions: start to first acknowledgement, ms": Goal(own_high=3000),
}

MACHINE_GOALS: Final = {
    "machine: one-record requests/s, 64 connections": Goal(low=1.2),
    "machine: 16 KiB batches MB/s, 16 partitions": Goal(low=3),
    "a node of three at rest, 600 partitions, % of a core": Goal(own_high=2),
}

REPLICATED_GOALS: Final = {
    "RF 3, acks=all, librdkafka 1 KiB records/s, none": Goal(low=4),
    "RF 3, acks=all, librdkafka 1 KiB records/s, lz4": Goal(low=4),
    "CPU s/GB, RF 3, none": Goal(high=0.25),
    "CPU s/GB, RF 3, lz4": Goal(high=0.25),
    "round trip p99 at RF 3, ms": Goal(high=0.5),
    "600 partitions: rate, of that with 6": Goal(own_low=0.8),
}

FAILOVER_GOALS: Final = {
    "failover p50, ms": Goal(high=0.1, own_high=300),
    "failover p99, ms": Goal(high=0.1, own_high=1000),
}

SECURITY_GOALS: Final = {
    f"{mode}: {figure}": goal
    for mode in ("SSL", "SSL 1.2 AES-128", "SASL_SSL, ACLs")
    for figure, goal in {
        "CPU us per one-record request": Goal(high=0.2),
        "one-record requests/s, 1 connection": Goal(low=5),
        "one-record requests/s, 4 connections": Goal(low=2),
        "CPU s/GB, 16 KiB batches": Goal(high=0.3),
        "CPU s/GB, 1 MiB batches": Goal(high=1),
        "CPU s/GB, cached fetch of 1 MiB": Goal(high=1),
        "cached fetch of 1 MiB, MB/s, 1 connection": Goal(low=1),
        "cached fetch of 1 MiB, MB/s, 4 connections": Goal(low=0.8),
    }.items()
} | {
    "handshakes: CPU ms each": Goal(high=0.5),
    "handshakes: p99 of a quiet client, x quiet": Goal(own_high=2),
    "SASL_SSL with ACLs: requests a CPU second, of those of SSL": Goal(own_low=0.97),
}

SPARK_GOALS: Final = {
    "source rows/s, on ottla": Goal(low=1.5),
    "sink rows/s, on ottla": Goal(low=1.5),
    "exactly once beside at least once, batches of 200,000: rows/s, on ottla": Goal(low=0.5),
    "exactly once beside at least once, batches of 10,000: rows/s, on ottla": Goal(low=1.0),
}

SPARK_STREAM_GOALS: Final = {
    "ms a batch of 20,000 rows, counts of 10,000 keys, exactly once": Goal(high=1.0),
    "ms a batch of 20,000 rows, counts of 10,000 keys, exactly once, keys alone read": Goal(high=1.0),
}

"""A broker with 2,000 partitions open, beside one with 10 of the same kind: throughput, memory, and how long a restart takes.

The requests go to one partition after the other, so that each of them is a batch, and a file, of its own; with 10 partitions
what one receive brings is grouped into ten writes. Both brokers run, one of them idle.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from bench.generator import connect, create_topic, exchange, fetch_frame, pipelined, produce_frame
from bench.measures import BATCH_BYTES, RECORD_BYTES, SECONDS, Figures, acknowledged, until_served, write
from bench.peers import Peer

TOPIC: Final = "many"
FEW, MANY = 10, 2000
ONE_RECORD_WINDOW: Final = 512
WINDOW: Final = 64


def prepare(peer: Peer, partitions: int) -> None:
    """The topic is there, and each of its partitions has a batch that a fetch can ask for."""
    until_served(lambda: create_topic(peer.address, "warm", 1))
    create_topic(peer.address, TOPIC, partitions)
    with connect(peer.address) as sock:
        for index in range(partitions):
            write(sock, TOPIC, produce_frame(TOPIC, index, batch_bytes=4096, record_bytes=1000))


def _throughput(peer: Peer, partitions: int) -> Figures:
    """Requests a second, by kind."""
    indexes = range(partitions)
    records = [produce_frame(TOPIC, index, batch_bytes=0, record_bytes=RECORD_BYTES) for index in indexes]
    batches = [produce_frame(TOPIC, index, batch_bytes=BATCH_BYTES, record_bytes=1024) for index in indexes]
    fetches = [fetch_frame(TOPIC, index, offset=0, max_bytes=4096) for index in indexes]
    return {
        "one-record": _rate(peer, records, ONE_RECORD_WINDOW),
        "16 KiB batch": _rate(peer, batches, WINDOW),
        "4 KiB fetch": _rate(peer, fetches, WINDOW),
    }


def _rate(peer: Peer, requests: Sequence[bytes], window: int) -> float:
    return pipelined(peer.address, [list(requests)], window=window, seconds=SECONDS).per_second


def compared(few: Peer, many: Peer) -> Figures:
    """One round of both."""
    figures: Figures = {}
    with_few, with_many = _throughput(few, FEW), _throughput(many, MANY)
    for kind, rate in with_many.items():
        figures[f"2,000 partitions: {kind} requests/s"] = rate
        figures[f"2,000 partitions: {kind} rate, of that with 10"] = rate / with_few[kind]
    figures["2,000 partitions: RSS, MB"] = many.rss_bytes() / 1e6
    return figures


def restart(peer: Peer) -> Figures:
    """From the start of the process to the first acknowledgement, after an orderly stop, with the partitions on the disk."""
    peer.stop()
    begin = time.perf_counter()
    peer.start()
    request = produce_frame(TOPIC, MANY - 1, batch_bytes=0, record_bytes=RECORD_BYTES)

    def produce() -> None:
        with connect(peer.address) as sock:
            acknowledged(exchange(sock, request), TOPIC)

    until_served(produce)
    return {"2,000 partitions: start to first acknowledgement, ms": (time.perf_counter() - begin) * 1000}

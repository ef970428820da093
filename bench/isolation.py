"""``python -m bench.isolation``: what readers of committed records pay, beside those who read everything.

One broker, one connection with eight fetches in flight, all of it cached; readers of either kind in turn. What each round gives is
processor time of the broker for a fetch; printed is the least of the rounds, and the one to the other. Three partitions: without a
transaction, with one of a hundred aborted, and with 100,000 aborted ones and no others, which are written as a coordinator would have them
written: each fetch of 64 KiB is answered with some sixty of these.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Final

from bench.generator import FETCH_VERSION, connect, create_topic, end_offset, exchange, frame, pipelined, produce_frame
from bench.peers import Ottla
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.records.builder import BatchBuilder

ROUNDS: Final = 7
SECONDS: Final = 1.0
FETCH_BYTES: Final = 64 << 10
PRODUCERS: Final = 100
"""They write a transaction each, of one record, and then all of these are ended by one request."""
RECORD_BYTES: Final = 1024
PRODUCE_VERSION: Final = 11
MARKERS_VERSION: Final = 1
PLACES: Final = 64
"""Fetches begin at so many offsets, evenly over the log."""
LOGS: Final = {"no transaction": (0, 0), "1 % aborted": (100, 1), "100,000 aborted": (1000, 100)}
"""Rounds of transactions, and how many of a hundred are aborted."""


def transactions(topic: str, rounds: int, aborted: int) -> Iterator[tuple[bytes, bytes]]:
    """The requests of each round: all its records, and the ends of its transactions."""
    for number in range(rounds):
        data = []
        for producer in range(PRODUCERS):
            builder = BatchBuilder()
            builder.append(None, bytes(RECORD_BYTES), timestamp_ms=0)
            data.append(builder.build(producer_id=producer, producer_epoch=0, base_sequence=number, is_transactional=True))
        produced = b"".join(
            frame(ProduceRequest("bench", 1, 30_000, [TopicProduceData(topic, None, [PartitionProduceData(0, batch)])]), PRODUCE_VERSION)
            for batch in data
        )
        place = [WritableTxnMarkerTopic(topic, [0])]
        markers = [WritableTxnMarker(producer, 0, producer >= aborted, place, 0, 0) for producer in range(PRODUCERS)]
        yield produced, frame(WriteTxnMarkersRequest(markers), MARKERS_VERSION)


def fill(peer: Ottla, topic: str, rounds: int, aborted: int) -> int:
    """Where the log ends."""
    create_topic(peer.address, topic, 1)
    sock = connect(peer.address)
    if not rounds:
        for _ in range(200):
            exchange(sock, produce_frame(topic, 0, batch_bytes=16 << 10, record_bytes=100))
    for produced, ended in transactions(topic, rounds, aborted):
        pipeline(sock, produced)
        exchange(sock, ended)
    end = end_offset(sock, topic, 0)
    sock.close()
    assert not rounds or end == 2 * rounds * PRODUCERS, f"{end} offsets are there, of records and of the markers of {rounds} rounds"
    return end


def pipeline(sock: object, produced: bytes) -> None:
    """Request by request, each answered."""
    at = 0
    while at < len(produced):
        size = 4 + int.from_bytes(produced[at : at + 4], "big")
        exchange(sock, produced[at : at + size])  # type: ignore[arg-type]
        at += size


def fetches(topic: str, end: int, isolation_level: int) -> list[bytes]:
    found = []
    for place in range(PLACES):
        wanted = FetchPartition(0, fetch_offset=end * place // (PLACES + 1), partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=FETCH_BYTES, isolation_level=isolation_level,
            topics=[FetchTopic(topic, partitions=[wanted])],
        )  # fmt: skip
        found.append(frame(request, FETCH_VERSION))
    return found


def main() -> int:
    with Ottla(**{"transaction.partition.verification.enable": "false"}) as peer:
        for name, (rounds, aborted) in LOGS.items():
            topic = f"log-{rounds}-{aborted}"
            end = fill(peer, topic, rounds, aborted)
            least = {0: float("inf"), 1: float("inf")}
            for _, level in itertools.product(range(ROUNDS), least):
                before = peer.cpu_seconds()
                done = pipelined(peer.address, [fetches(topic, end, level)], window=8, seconds=SECONDS)
                least[level] = min(least[level], (peer.cpu_seconds() - before) / done.responses)
            everything, committed = (value * 1e6 for value in least.values())
            sys.stdout.write(f"{name:20}{everything:10.1f} us{committed:10.1f} us{everything / committed:8.2f}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

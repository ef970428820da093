"""What is measured: each takes a running broker and tells one or more figures."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Final

from bench.generator import (
    Throughput,
    connect,
    create_topic,
    end_to_end,
    exchange,
    fetch_frame,
    fetch_many_frame,
    pipelined,
    produce_frame,
    round_trips,
)
from bench.peers import Peer

SECONDS: Final = 2.0
TRIPS: Final = 4000
RECORD_BYTES: Final = 100
BATCH_BYTES: Final = 16_384
MEBI_BYTES: Final = 1_000_000
TOPIC: Final = "bench"
SMALL_TOPIC, SMALL_PARTITIONS = "small", 100
Figures = dict[str, float]


def prepare(peer: Peer) -> None:
    """The topics are there; the partitions that are fetched from are full enough."""
    create_topic(peer.address, TOPIC, 64)
    create_topic(peer.address, "fetched", 1)
    create_topic(peer.address, SMALL_TOPIC, SMALL_PARTITIONS)
    with connect(peer.address) as sock:
        mebi = produce_frame("fetched", 0, batch_bytes=MEBI_BYTES, record_bytes=10_000)
        for _ in range(4):
            write(sock, "fetched", mebi)
        for index in range(SMALL_PARTITIONS):
            write(sock, SMALL_TOPIC, produce_frame(SMALL_TOPIC, index, batch_bytes=4096, record_bytes=1000))


def write(sock: socket.socket, topic: str, request: bytes) -> None:
    """A fresh topic's leader may take a moment to know that it is one."""
    until_served(lambda: acknowledged(exchange(sock, request), topic))


def prepare_when_served(peer: Peer) -> None:
    """As ``prepare``, of a broker that may listen before it serves."""
    until_served(lambda: create_topic(peer.address, "warm", 1))
    prepare(peer)


def one_record(peer: Peer) -> Figures:
    frames = [produce_frame(TOPIC, index, batch_bytes=0, record_bytes=RECORD_BYTES) for index in range(64)]
    figures: Figures = {}
    cpu = peer.cpu_seconds()
    single = pipelined(peer.address, frames[:1], window=512, seconds=SECONDS)
    figures["CPU us per one-record request"] = (peer.cpu_seconds() - cpu) / single.responses * 1e6
    figures["one-record requests/s, 1 connection"] = single.per_second
    figures["one-record requests/s, 4 connections"] = pipelined(peer.address, frames[:4], window=512, seconds=SECONDS).per_second
    figures["one-record requests/s, 64 connections"] = pipelined(peer.address, frames, window=8, seconds=SECONDS).per_second
    return figures


def batches(peer: Peer) -> Figures:
    frames = [produce_frame(TOPIC, index, batch_bytes=BATCH_BYTES, record_bytes=1024) for index in range(4)]
    figures: Figures = {}
    cpu = peer.cpu_seconds()
    single = pipelined(peer.address, frames[:1], window=64, seconds=SECONDS)
    figures["CPU s/GB, 16 KiB batches"] = (peer.cpu_seconds() - cpu) / _gigabytes(single, frames[0])
    figures["16 KiB batches MB/s, 1 connection"] = 1000 * _gigabytes(single, frames[0]) / single.seconds
    four = pipelined(peer.address, frames, window=64, seconds=SECONDS)
    figures["16 KiB batches MB/s, 4 connections"] = 1000 * _gigabytes(four, frames[0]) / four.seconds
    return figures


def mebibyte_batches(peer: Peer) -> Figures:
    """Onto fresh pages: the log grows all the time."""
    frame = produce_frame(TOPIC, 5, batch_bytes=MEBI_BYTES, record_bytes=10_000)
    cpu = peer.cpu_seconds()
    result = pipelined(peer.address, [frame], window=8, seconds=SECONDS)
    return {
        "1 MiB batches MB/s": 1000 * _gigabytes(result, frame) / result.seconds,
        "CPU s/GB, 1 MiB batches": (peer.cpu_seconds() - cpu) / _gigabytes(result, frame),
    }


def _gigabytes(result: Throughput, frame: bytes) -> float:
    return result.responses * len(frame) / 1e9


def fetches(peer: Peer) -> Figures:
    cpu = peer.cpu_seconds()
    large = pipelined(peer.address, [fetch_frame("fetched", 0, offset=0, max_bytes=1 << 20)], window=8, seconds=SECONDS)
    used = peer.cpu_seconds() - cpu
    many = pipelined(peer.address, [fetch_many_frame(SMALL_TOPIC, SMALL_PARTITIONS, max_bytes=4096)], window=8, seconds=SECONDS)
    return {
        "cached fetch MB/s, 1 MiB": large.megabytes_per_second,
        "CPU s/GB, fetch": used / (large.response_bytes / 1e9),
        "cached fetch MB/s, 100 partitions x 4 KiB": many.megabytes_per_second,
    }


def latencies(peer: Peer) -> Figures:
    request = produce_frame(TOPIC, 6, batch_bytes=0, record_bytes=RECORD_BYTES)
    p50, p99 = round_trips(peer.address, request, count=TRIPS)
    e50, e99 = end_to_end(peer.address, TOPIC, 7, count=TRIPS // 2, record_bytes=RECORD_BYTES)
    return {
        "produce round trip p50, ms": p50,
        "produce round trip p99, ms": p99,
        "end to end p50, ms": e50,
        "end to end p99, ms": e99,
    }


def librdkafka(peer: Peer) -> Figures:
    """1 KiB records from confluent-kafka; the client's own limit is part of the figure."""
    figures: Figures = {}
    for acks in ("1", "all"):
        for codec in ("none", "lz4"):
            figures[f"librdkafka 1 KiB records/s, acks={acks}, {codec}"] = _librdkafka_rate(peer, acks, codec)
    return figures


def _librdkafka_rate(peer: Peer, acks: str, codec: str, count: int = 100_000) -> float:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": peer.bootstrap,
            "acks": acks,
            "compression.type": codec,
            "linger.ms": 5,
            "queue.buffering.max.messages": count,
        }
    )
    value = (b"a field and another field, " * 40)[:1024]
    begin = time.perf_counter()
    for _ in range(count):
        producer.produce(TOPIC, value, partition=8)
    producer.flush(60)
    return count / (time.perf_counter() - begin)


def first_acknowledgement(peer: Peer) -> Figures:
    """From the start of the process. The peer is prepared and not running."""
    begin = time.perf_counter()
    peer.start()
    until_served(lambda: create_topic(peer.address, "first", 1))
    with connect(peer.address) as sock:
        write(sock, "first", produce_frame("first", 0, batch_bytes=0, record_bytes=RECORD_BYTES))
    return {"start to first acknowledgement, ms": (time.perf_counter() - begin) * 1000}


def acknowledged(answer: bytes, topic: str) -> None:
    """ConnectionError unless the answer to a produce request says that the batch was taken."""
    # correlation id, one topic, its name, one partition, its index; then the error
    at = 4 + 4 + 2 + len(topic) + 4 + 4
    if int.from_bytes(answer[at : at + 2], "big", signed=True):
        raise ConnectionError("not served yet")


def first_group(peer: Peer) -> Figures:
    """The first group of a broker reads the first record: the topic of commits has to be made on the way."""
    import confluent_kafka

    begin = time.perf_counter()
    settings = {"bootstrap.servers": peer.bootstrap, "group.id": "first", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["first"])
    message = consumer.poll(60)
    assert message is not None, "a record came"
    assert message.error() is None, message.error()
    took = (time.perf_counter() - begin) * 1000
    consumer.close()
    return {"first record of a first group, ms": took}


def until_served(call: Callable[[], None]) -> None:
    """The call has succeeded, after as many tries as a minute allows."""
    deadline = time.monotonic() + 60
    while True:
        try:
            call()
        except (OSError, AssertionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)
        else:
            return

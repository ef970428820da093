"""A load generator on raw sockets: prebuilt requests, a window of them in flight, responses counted and not decoded."""

from __future__ import annotations

import itertools
import selectors
import socket
import statistics
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.messages.headers import RequestHeader, encode_request_header
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.messages.registry import API_OF_REQUEST
from ottla.records.builder import BatchBuilder
from ottla.wire.compiler import decode, encode
from ottla.wire.schema import Request

PRODUCE_VERSION = 7
FETCH_VERSION = 11
CREATE_TOPICS_VERSION = 4
LIST_OFFSETS_VERSION = 2
RECEIVE_BYTES = 1 << 20


def frame(request: Request, version: int, correlation_id: int = 1) -> bytes:
    """The request as it goes over the wire."""
    api = API_OF_REQUEST[type(request)]
    header = encode_request_header(RequestHeader(api.key, version, correlation_id, "bench"), is_flexible=api.is_flexible(version))
    body = header + encode(request, version)
    return len(body).to_bytes(4, "big") + body


def produce_frame(topic: str, partition: int, *, batch_bytes: int, record_bytes: int, acks: int = 1) -> bytes:
    """One batch of records of ``record_bytes``, as many as fit in ``batch_bytes``, at least one."""
    builder = BatchBuilder()
    value = bytes(record_bytes)
    while builder.count == 0 or builder.size_bytes + record_bytes + 12 <= batch_bytes:
        builder.append(None, value, timestamp_ms=time.time_ns() // 1_000_000)
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, builder.build())])
    return frame(ProduceRequest(None, acks, 30_000, [data]), PRODUCE_VERSION)


def fetch_frame(topic: str, partition: int, *, offset: int, max_bytes: int) -> bytes:
    wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, session_epoch=-1, topics=[FetchTopic(topic, partitions=[wanted])]
    )
    return frame(request, FETCH_VERSION)


def fetch_many_frame(topic: str, partitions: int, *, max_bytes: int) -> bytes:
    """One request for the first batch of many partitions."""
    wanted = [FetchPartition(index, fetch_offset=0, partition_max_bytes=max_bytes) for index in range(partitions)]
    limit = partitions * max_bytes * 2
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=limit, session_epoch=-1, topics=[FetchTopic(topic, partitions=wanted)])
    return frame(request, FETCH_VERSION)


Address = tuple[str, int]
Via = Callable[[Address], socket.socket]
"""The maker of a connection. What is not there yet, or has no room yet, is a BlockingIOError of it."""


def connect(address: Address) -> socket.socket:
    sock = socket.create_connection(address, timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def exchange(sock: socket.socket, request: bytes) -> bytes:
    """One request, one response (without its length)."""
    sock.sendall(request)
    return receive(sock)


def receive(sock: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", _exactly(sock, 4))
    return _exactly(sock, length)


def _exactly(sock: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = sock.recv_into(view)
        if not count:
            raise ConnectionError("the broker closed the connection")
        view = view[count:]
    return bytes(buffer)


def create_topic_frame(name: str, partitions: int) -> bytes:
    return frame(CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 30_000), CREATE_TOPICS_VERSION)


def create_topic(address: tuple[str, int], name: str, partitions: int) -> None:
    with connect(address) as sock:
        answer = exchange(sock, create_topic_frame(name, partitions))
        [result] = decode(CreateTopicsResponse, CREATE_TOPICS_VERSION, answer[4:]).topics
        assert result.error_code == 0, f"topic {name}: error {result.error_code}"


@dataclass(frozen=True, slots=True)
class Throughput:
    """What came back, and in which time."""

    responses: int
    response_bytes: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.responses / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        return self.response_bytes / self.seconds / 1e6


class _Pipeline:
    """One connection with ``window`` requests in flight, the given ones in turn."""

    def __init__(self, address: tuple[str, int], requests: Sequence[bytes], window: int, via: Via) -> None:
        self.sock = via(address)
        self.sock.setblocking(False)
        self._requests = itertools.cycle(requests)
        self._window = window
        self._to_send = memoryview(b"")
        self._in_flight = 0
        self._left = 0  # bytes of the response being read
        self._head = b""
        self.responses = 0
        self.response_bytes = 0
        self._buffer = bytearray(RECEIVE_BYTES)

    def fill(self) -> None:
        """Sends what the window allows."""
        if not self._to_send:
            room = self._window - self._in_flight
            if room <= 0:
                return
            self._to_send = memoryview(b"".join(itertools.islice(self._requests, room)))
            self._in_flight += room
        try:
            while self._to_send:
                self._to_send = self._to_send[self.sock.send(self._to_send) :]
        except BlockingIOError:
            return

    def drain(self) -> None:
        """Counts the responses that have come."""
        try:
            count = self.sock.recv_into(self._buffer)
        except BlockingIOError:
            return
        if not count:
            raise ConnectionError("the broker closed the connection")
        self.response_bytes += count
        position = 0
        while position < count:
            if self._left:
                step = min(self._left, count - position)
                self._left -= step
                position += step
            else:
                need = 4 - len(self._head)
                self._head += self._buffer[position : position + need]
                position += need
                if len(self._head) < 4:
                    return
                self._left = int.from_bytes(self._head, "big")
                self._head = b""
            if not self._left and not self._head:
                self.responses += 1
                self._in_flight -= 1


def pipelined(address: Address, requests: Sequence[bytes | list[bytes]], *, window: int, seconds: float, via: Via = connect) -> Throughput:
    """One connection for each request, or list of requests, sending it again and again for ``seconds``."""
    return pipelined_to([(address, request) for request in requests], window=window, seconds=seconds, via=via)


Target = tuple[tuple[str, int], bytes | list[bytes]]
"""A broker's address, and the request or the requests that it gets by one connection."""


def pipelined_to(targets: Sequence[Target], *, window: int, seconds: float, via: Via = connect) -> Throughput:
    """As ``pipelined``, each connection to an address of its own."""
    pipelines = [_Pipeline(address, request if isinstance(request, list) else [request], window, via) for address, request in targets]
    selector = selectors.DefaultSelector()
    for pipeline in pipelines:
        selector.register(pipeline.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, pipeline)
        pipeline.fill()
    start = time.perf_counter()
    end = start + seconds
    while (now := time.perf_counter()) < end:
        for key, events in selector.select(0.1):
            pipeline = key.data
            if events & selectors.EVENT_READ:
                pipeline.drain()
            pipeline.fill()
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if pipeline._to_send else 0)
            if key.events != wanted:
                selector.modify(key.fileobj, wanted, pipeline)
    for pipeline in pipelines:
        pipeline.sock.close()
    return Throughput(
        sum(pipeline.responses for pipeline in pipelines), sum(pipeline.response_bytes for pipeline in pipelines), now - start
    )


def round_trips(address: tuple[str, int], request: bytes, *, count: int) -> tuple[float, float]:
    """p50 and p99 of one request at a time, in milliseconds."""
    times = []
    with connect(address) as sock:
        for _ in range(count):
            start = time.perf_counter()
            exchange(sock, request)
            times.append((time.perf_counter() - start) * 1000)
    return percentiles(times)


def percentiles(times: list[float]) -> tuple[float, float]:
    """p50 and p99."""
    times = sorted(times)
    return statistics.median(times), times[int(len(times) * 0.99)]


def end_to_end(address: tuple[str, int], topic: str, partition: int, *, count: int, record_bytes: int) -> tuple[float, float]:
    """p50 and p99, in milliseconds, from sending a record to having it by a fetch that waited for it."""
    times = []
    request = produce_frame(topic, partition, batch_bytes=0, record_bytes=record_bytes)
    with connect(address) as writer, connect(address) as reader:
        offset = end_offset(writer, topic, partition)
        for _ in range(count):
            reader.sendall(fetch_frame(topic, partition, offset=offset, max_bytes=1 << 20))
            start = time.perf_counter()
            writer.sendall(request)
            receive(reader)
            times.append((time.perf_counter() - start) * 1000)
            receive(writer)
            offset += 1
    return percentiles(times)


def end_offset(sock: socket.socket, topic: str, partition: int) -> int:
    """-1 while the partition is not served."""
    request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=-1)])])
    answer = decode(ListOffsetsResponse, LIST_OFFSETS_VERSION, exchange(sock, frame(request, LIST_OFFSETS_VERSION))[4:])
    offset: int = answer.topics[0].partitions[0].offset
    return offset

"""The bare protocol on a blocking socket: any request in any version, one after the other or many at once."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from ottla.messages.headers import RequestHeader, decode_response_header, encode_request_header
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.messages.registry import API_OF_REQUEST, Api
from ottla.records.builder import BatchBuilder
from ottla.wire.compiler import decode, encode
from ottla.wire.schema import Request

WAIT_SECONDS_MAX = 30.0
LATEST = -1


class RawClient:
    """``with RawClient(port) as client:``."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), WAIT_SECONDS_MAX)
        self._last_correlation_id = 0
        self._open: list[tuple[int, Api, int]] = []

    def ask(self, request: Request, version: int) -> Any:
        """The answer, decoded."""
        self.send(request, version)
        return self.receive()

    def send(self, request: Request, version: int, *, is_answered: bool = True) -> int:
        """The request is on its way; its correlation id."""
        api = API_OF_REQUEST[type(request)]
        self._last_correlation_id += 1
        header = RequestHeader(api.key, version, self._last_correlation_id, "raw")
        self.send_frame(encode_request_header(header, is_flexible=api.is_flexible(version)) + encode(request, version))
        if is_answered:
            self._open.append((self._last_correlation_id, api, version))
        return self._last_correlation_id

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> Any:
        """The answer to the oldest open request: they come in order."""
        correlation_id, api, version = self._open.pop(0)
        frame = memoryview(self.receive_frame())
        found, position = decode_response_header(frame, is_flexible=api.has_flexible_response_header(version))
        assert found == correlation_id, "answers come in the order of requests"
        return decode(api.response, version, frame[position:])

    def receive_frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(length)

    def _receive_exactly(self, count: int) -> bytes:
        pieces = b""
        while len(pieces) < count:
            piece = self.socket.recv(count - len(pieces))
            assert piece, "the broker closed the connection"
            pieces += piece
        return pieces

    def is_closed_by_broker(self) -> bool:
        """Waits for the end; False when something else came first."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.socket.close()


def batch_of(*values: bytes, codec: int = 0, **fields: Any) -> bytes:
    """A record batch with these values, without keys."""
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, timestamp_ms=1_700_000_000_000)
    return bytes(builder.build(codec, **fields))


def produce_request(topic: str, *batches: bytes, acks: int = -1, partition: int = 0) -> ProduceRequest:
    """One request that carries the batches, each for a partition of its own, from ``partition`` on."""
    data = [PartitionProduceData(partition + index, memoryview(batch)) for index, batch in enumerate(batches)]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(topic, partition_data=data)])


def end_offsets(client: RawClient, topic: str, partition_count: int) -> list[int]:
    wanted = [ListOffsetsPartition(index, timestamp=LATEST) for index in range(partition_count)]
    response = client.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(topic, wanted)]), 1)
    return [partition.offset for partition in response.topics[0].partitions]

"""The head of a Produce request is decoded once, as long as a connection repeats it.

Producers send batch after batch to the same partition: all that differs between two such requests is the correlation id and
the records. ``RepeatedHead`` keeps what was decoded and the bytes that it was decoded from; a frame with the same bytes means
the same request with other records. Only requests for one partition are kept: others repeat themselves too seldom.

Nothing is taken from a frame but the two parts that differ, and the frame must end where they end.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.repeated_answer import VERSION_MIN, RepeatedAnswer
from ottla.messages.produce import ProduceRequest
from ottla.wire.primitives import read_uvarint, uvarint

HEAD_BYTES_MAX: Final = 1024
_FIXED_BYTES: Final = 8  # API key, version, correlation id
_NO_TAGS: Final = b"\0\0\0"  # of the partition, the topic and the request, where versions are flexible


class RepeatedHead:
    """The bytes before the records of a connection's last Produce request, and their meaning."""

    __slots__ = (
        "_data", "_head", "_length_at", "_start", "_tail", "_unpack", "answer", "api", "client_id", "correlation_id", "meters", "request",
        "version",
    )  # fmt: skip

    def __init__(self, context: RequestContext, request: ProduceRequest, frame: memoryview, length_at: int, tail: bytes) -> None:
        self.api = context.api
        self.version = context.version
        self.client_id = context.client_id
        self.meters = context.meters
        self.correlation_id = context.correlation_id
        self.request = request
        self.answer: RepeatedAnswer | None = None
        self._data = request.topic_data[0].partition_data[0]
        self._start = int.from_bytes(frame[:4], "big")  # API key and version
        self._head = bytes(frame[_FIXED_BYTES:length_at])
        self._length_at = length_at
        self._tail = tail
        self._unpack = struct.Struct(f">Ii{length_at - _FIXED_BYTES}s{'' if tail else 'i'}").unpack_from

    @classmethod
    def of(cls, context: RequestContext, request: ProduceRequest, frame: memoryview) -> RepeatedHead | None:
        """Returns the head of a request that was just decoded; None when it is not of the kind that is kept."""
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return None
        records = request.topic_data[0].partition_data[0].records
        if records is None or not len(records):
            return None
        tail = _NO_TAGS if context.version >= context.api.flexible else b""
        length_bytes = len(uvarint(len(records) + 1)) if tail else 4
        length_at = len(frame) - len(tail) - len(records) - length_bytes
        if bytes(frame[len(frame) - len(tail) :]) != tail or length_at > HEAD_BYTES_MAX:
            return None
        head = cls(context, request, frame, length_at, tail)
        return head if head.repeats(frame) else None  # a client may write its lengths in more bytes than they need

    def repeats(self, frame: memoryview) -> bool:
        """True when the frame is the request again. ``request`` has its records then, until ``release``; ``correlation_id`` is its own."""
        try:
            if self._tail:
                start, correlation_id, head = self._unpack(frame)
                if head != self._head or start != self._start:
                    return False
                length, position = read_uvarint(frame, self._length_at)
                end = position + length - 1
                if bytes(frame[end:]) != self._tail:
                    return False
            else:
                start, correlation_id, head, length = self._unpack(frame)
                position = self._length_at + 4
                end = position + length
                if head != self._head or start != self._start or end != len(frame):
                    return False
        except (struct.error, IndexError):
            return False
        if end <= position:
            return False
        self.correlation_id = correlation_id
        self._data.records = frame[position:end]
        return True

    def learn_answer(self) -> RepeatedAnswer | None:
        """Prepares ``answer``, for a head that is repeated; None where there is none, or one that is encoded whole."""
        if self.request.acks and self.version >= VERSION_MIN:
            self.answer = RepeatedAnswer(self.api, self.version, self.request)
        return self.answer

    def release(self) -> None:
        """Releases the received bytes."""
        self._data.records = None

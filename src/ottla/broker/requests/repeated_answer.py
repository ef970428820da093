"""The answer to a repeated head (``repeated_head.py``): from one such answer to the next only five numbers differ.

What is around them is encoded once. Where they are is found by encoding the answer with one number after the other changed, so the
declaration of the message stays the only place that says it.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.broker.requests.answers import encode_answer
from ottla.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.messages.registry import Api

VERSION_MIN: Final = 5
"""Earlier ones have four numbers only."""
_NUMBERS: Final = 5  # correlation id, base offset, time, first offset, throttle time: in this order
_FORMATS: Final = {4: "i", 8: "q"}
_CHANGED: Final = -1  # differs from 0 in all bytes


class RepeatedAnswer:
    """The answer to one request for one partition, in one version, to which nothing was wrong."""

    __slots__ = ("_around", "_pack")

    def __init__(self, api: Api, version: int, request: ProduceRequest) -> None:
        topic = request.topic_data[0]
        result = PartitionProduceResponse(topic.partition_data[0].index)
        response = ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, [result])])

        def encoded(changed: int | None) -> bytes:
            numbers = [_CHANGED if at == changed else 0 for at in range(_NUMBERS)]
            correlation_id, result.base_offset, result.log_append_time_ms, result.log_start_offset, response.throttle_time_ms = numbers
            return b"".join(encode_answer(api, version, correlation_id, response))

        plain = encoded(None)
        form, around, end = ">", [], 0
        for number in range(_NUMBERS):
            differing = [at for at, (old, new) in enumerate(zip(plain, encoded(number), strict=True)) if old != new]
            start = differing[0]
            assert start >= end, "the numbers are in the order in which they are packed"
            form += f"{start - end}s{_FORMATS[len(differing)]}"
            around.append(plain[end:start])
            end = start + len(differing)
        self._pack = struct.Struct(f"{form}{len(plain) - end}s").pack
        self._around = (*around, plain[end:])

    def encode(self, correlation_id: int, response: ProduceResponse) -> bytes | None:
        """Returns the answer with its length; None when it has more to say than the five numbers."""
        result = response.responses[0].partition_responses[0]
        if result.error_code or response.node_endpoints:
            return None
        first, second, third, fourth, fifth, last = self._around
        return self._pack(
            first, correlation_id, second, result.base_offset, third, result.log_append_time_ms, fourth, result.log_start_offset,
            fifth, response.throttle_time_ms, last,
        )  # fmt: skip

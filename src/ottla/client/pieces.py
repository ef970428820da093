"""A batch that its topic does not take, in smaller ones: ``max.message.bytes`` of a topic may be below ``batch.size``.

The pieces carry on with the batch's sequence, of which the broker has kept nothing: so later batches keep their numbers and their order.
Each has at most half of the records' bytes, and at most as many as the pieces of earlier batches of the partition, which had to be so
small.
``batch.size`` is counted before compression, so there is no ratio to correct. Source: KIP-126.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.client.accumulator import PartitionQueue, ProducerBatch
from ottla.errors import KafkaError
from ottla.records.batch import HEADER_SIZE, add_to_sequence
from ottla.records.iteration import Record, iterate_records

log = logging.getLogger("ottla.client")

_OVERHEAD_BYTES: Final = 8  # of a record, about: what matters is that none weighs nothing


def divide(queue: PartitionQueue, batch: ProducerBatch, problem: KafkaError) -> int:
    """Queues the records of the batch, which was in flight, again in smaller batches, at least two.

    Returns how many bytes fewer they take together; below 0 for more.
    """
    assert batch.count > 1, "a single record cannot be divided"
    records = iterate_records(batch.builder.build())
    weights = [_weight(record) for record in records]
    if queue.piece_bytes is None:
        text = (
            "a batch of %d bytes is larger than %s takes, and goes on in smaller ones; a batch.size below max.message.bytes avoids that: %s"
        )
        log.info(text, batch.builder.size_bytes, batch.partition, problem)
    half = sum(weights) // 2
    limit = queue.piece_bytes = half if queue.piece_bytes is None else min(half, queue.piece_bytes)
    pieces: list[ProducerBatch] = []
    weight = limit + 1  # the first record opens a piece
    for index, record in enumerate(records):
        weight += weights[index]
        if weight > limit:
            pieces.append(_piece(batch, len(pieces), index))
            weight = weights[index]
        piece = pieces[-1]
        piece.builder.append(record.key, record.value, record.headers, timestamp_ms=record.timestamp_ms)
        piece.futures.append(batch.futures[index])
        piece.timestamps.append(batch.timestamps[index])
    assert len(pieces) > 1, "no piece has more than half"
    queue.take_pieces(batch, pieces)
    batch.finished.set_result(pieces)
    return batch.builder.size_bytes - HEADER_SIZE - sum(piece.builder.size_bytes - HEADER_SIZE for piece in pieces)


def _weight(record: Record) -> int:
    headers = sum(len(name) + len(content or b"") for name, content in record.headers)
    return _OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _piece(batch: ProducerBatch, place: int, first: int) -> ProducerBatch:
    """Returns an empty piece, whose first record is this one of the batch."""
    piece = ProducerBatch(batch.partition, batch.index + place, created_ms=batch.created_ms, deadline_ms=batch.deadline_ms)
    piece.is_closed = True
    piece.numbered_for = batch.numbered_for
    piece.base_sequence = -1 if batch.base_sequence < 0 else add_to_sequence(batch.base_sequence, first)
    return piece

"""The batches of a leader's answer that continue a follower's log, and one another: an answer is believed as far as it can be true.

It may have left when its sender no longer led, and its file had been cut and written again meanwhile: with correct CRCs.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.records.batch import BatchHeader, iterate_batches


def continuing(
    data: memoryview, *, end_offset: int, last_epoch: int, leader_epoch: int, believes_gap: bool
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields batches that a leader sent in ``leader_epoch``, for a log that ends there with a record of ``last_epoch``.

    They end before a last batch that is cut off, and before the first one that

    - overlaps the one before it;
    - comes after a gap, unless ``believes_gap``: compaction has removed what was there, or the answer is not of one log;
    - is of a later epoch than the leader's, which read its file after it had become a follower (KAFKA-18723), or of an earlier one
      than the batch before it, which no log has.

    OFFSET_OUT_OF_RANGE where the first batch overlaps the log, UNKNOWN_LEADER_EPOCH where it is of such an epoch; CORRUPT_MESSAGE.
    """
    is_first = True
    for position, header in _complete(data):
        last_offset, epoch = header.base_offset + header.last_offset_delta, header.leader_epoch
        if header.base_offset < end_offset:
            if is_first:
                text = f"the leader's batch of offsets {header.base_offset} to {last_offset} overlaps the log, which ends at {end_offset}"
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
            return
        if epoch > leader_epoch or 0 <= epoch < last_epoch:
            if is_first:
                text = f"the leader of epoch {leader_epoch} sent a batch of epoch {epoch} after one of epoch {last_epoch}"
                raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, text)
            return
        if header.base_offset > end_offset and not believes_gap:
            return
        yield header, data[position : position + header.size_bytes]
        is_first, end_offset, last_epoch = False, last_offset + 1, max(last_epoch, epoch)


def _complete(data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Yields where each complete batch starts, and its header; CORRUPT_MESSAGE where there is none, or its CRC is wrong."""
    try:
        yield from iterate_batches(data, check_crc=True)
    except DecodeError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the leader sent what is no batch: {error.message}") from error

"""What a topic's configuration asks of a batch beyond being whole: its size, its times, its keys, its codec.

Most batches need none of the slow work here: ``PartitionLog.stage`` compares three numbers and goes on.
"""

from __future__ import annotations

from typing import NoReturn

from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    read_header,
    stamp_log_append_time,
    write_crc,
)  # fmt: skip
from ottla.records.compression import CODEC_NAMES, compress, decompress
from ottla.records.iteration import check_records
from ottla.storage.config import LogConfig


def adapt(view: memoryview, config: LogConfig, now_ms: int) -> memoryview:
    """The batch as the topic wants it stored: keyed where compacted, with the topic's codec, under the topic's clock."""
    limit = config.decompressed_bytes_max
    if config.is_compacted:
        check_records(view, must_have_keys=True, limit=limit)
    codec = CODEC_NAMES.get(config.compression_type, -1)  # "producer" leaves the batch's own
    if codec not in (-1, view[22] & CODEC_MASK):
        view = recompress(view, codec, limit, level=config.compression_level)
        if len(view) > config.max_message_bytes:
            refuse_size(len(view), config.max_message_bytes)
    if config.is_log_append_time:
        stamp_log_append_time(view, now_ms=now_ms)
    return view


def recompress(view: memoryview, codec: int, limit: int, *, level: int | None = None) -> memoryview:
    """The same batch in another codec; the records themselves are not opened."""
    header = read_header(view)
    try:
        payload = compress(codec, decompress(header.codec, view[HEADER_SIZE:], limit), level)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from error
    batch = bytearray(view[:HEADER_SIZE])
    batch += payload
    batch[8:12] = (len(batch) - LENGTH_OVERHEAD).to_bytes(4, "big")
    batch[21:23] = (header.attributes & ~CODEC_MASK | codec).to_bytes(2, "big")
    write_crc(batch)
    return memoryview(batch)


def refuse_size(size: int, limit: int) -> NoReturn:
    raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {limit}")


def check_timestamps(attributes: int, base_timestamp: int, max_timestamp: int, config: LogConfig, now_ms: int) -> None:
    """INVALID_TIMESTAMP outside ``message.timestamp.before.max.ms`` and ``.after.max.ms``; judged by the first and the largest."""
    code = ErrorCode.INVALID_TIMESTAMP
    if attributes & LOG_APPEND_TIME:
        raise KafkaError(code, "the batch claims LogAppendTime, which only a broker gives")
    if max_timestamp > now_ms + config.message_timestamp_after_max_ms:
        limit = config.message_timestamp_after_max_ms
        raise KafkaError(code, f"timestamp {max_timestamp} is more than message.timestamp.after.max.ms={limit} ahead of {now_ms}")
    if 0 <= base_timestamp < now_ms - config.message_timestamp_before_max_ms:
        limit = config.message_timestamp_before_max_ms
        raise KafkaError(code, f"timestamp {base_timestamp} is more than message.timestamp.before.max.ms={limit} behind {now_ms}")

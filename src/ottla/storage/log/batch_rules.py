"""What a topic requires of a client's batch beyond a correct CRC: valid contents, its times, its keys, its codec.

A batch is opened: its records must be what the header says, so that no reader stumbles over them. Kafka does the same.
``ottla.produce.validation=headers`` leaves a batch closed unless the topic's own rules need what is inside.

Opening a batch that unpacks to much, or that has very many records, would hold the loop: ``HeavyBatch`` says so before anything is
done, and ``prepare_away`` has a worker process do it (class c).

Codes are Kafka's: INVALID_RECORD for records that are not what the header says or have no key in a compacted topic,
INVALID_TIMESTAMP, UNKNOWN_SERVER_ERROR for what does not unpack or has a record of impossible length.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NoReturn

import msgspec

from ottla.errors import DecodeError, ErrorCode, KafkaError, RecordsRefused, WorkerDied
from ottla.ports import Disk, Job, Pace
from ottla.records.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    set_max_timestamp,
    stamp_log_append_time,
    write_crc,
)
from ottla.records.compression import CODEC_NAMES, Codec, compress, decompress
from ottla.records.iteration import walk_records
from ottla.records.kernel import FORM, check_records
from ottla.records.plain_kernel import GARBAGE, MISCOUNTED
from ottla.storage.config import LONG_MAX, LogConfig

INLINE_BYTES_MAX: Final = 1 << 20
"""More than this is not unpacked on the loop: about what it unpacks in two milliseconds."""
RECOMPRESSED_INLINE_BYTES_MAX: Final = 1 << 17
"""More than this is not packed on the loop: gzip needs some milliseconds for it."""
INLINE_RECORDS_MAX: Final = 200_000 if FORM == "compiled" else 8_192
"""More than these are not walked on the loop: some milliseconds in the compiled kernel, ten in the plain one."""
TIME_UNKNOWN: Final = -1
_REPORTED_MAX: Final = 3


class BatchRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one topic for batches. ``codec`` is -1 where batches keep theirs; times in milliseconds, sizes in bytes."""

    opens_batches: bool
    is_common: bool  # batches are opened, and that is all
    is_compacted: bool
    codec: int
    level: int | None
    is_log_append_time: bool
    before_ms: int
    after_ms: int
    unpacked_bytes_max: int
    message_bytes_max: int

    @classmethod
    def of(cls, config: LogConfig) -> BatchRules:
        return cls(
            opens_batches=config.opens_batches or config.is_compacted,
            is_common=config.opens_batches
            and not (config.is_compacted or config.is_log_append_time or config.compression_type in CODEC_NAMES),
            is_compacted=config.is_compacted,
            codec=CODEC_NAMES.get(config.compression_type, -1),
            level=config.compression_level,
            is_log_append_time=config.is_log_append_time,
            before_ms=config.message_timestamp_before_max_ms,
            after_ms=config.message_timestamp_after_max_ms,
            unpacked_bytes_max=config.decompressed_bytes_max,
            message_bytes_max=config.max_message_bytes,
        )


class HeavyBatch(Exception):
    """The batch is not for the loop: ``prepare_away`` is."""


def apply_rules(
    view: memoryview, header: tuple[int, ...], rules: BatchRules, now_ms: int, *, may_be_heavy: bool = False
) -> tuple[memoryview, int]:
    """Returns the batch as the topic wants it stored, and its largest time. ``view`` is a client's complete batch, as ``check_batch`` found
    it.

    It may be changed in place. KafkaError when the topic refuses it; HeavyBatch, and nothing is changed, unless ``may_be_heavy``.
    """
    attributes, base_timestamp, max_timestamp, count = header[5], header[7], header[8], header[12]
    if rules.is_common and not attributes and count <= INLINE_RECORDS_MAX:  # most batches: nothing to unpack, nothing to change
        position, low, high, _ = check_records(view, HEADER_SIZE, count, 0)
        if (
            position == len(view)
            and base_timestamp + high == max_timestamp <= now_ms + rules.after_ms
            and base_timestamp + low >= now_ms - rules.before_ms
        ):
            return view, max_timestamp
    return _apply_all(view, attributes, base_timestamp, max_timestamp, count, rules, now_ms, may_be_heavy=may_be_heavy)


def _apply_all(
    view: memoryview,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    rules: BatchRules,
    now_ms: int,
    *,
    may_be_heavy: bool,
) -> tuple[memoryview, int]:
    codec = attributes & CODEC_MASK
    if attributes & LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "the batch claims LogAppendTime, which only a broker gives")
    is_recompressed = rules.codec not in (-1, codec)
    payload = b""
    if rules.opens_batches or is_recompressed:
        if count > INLINE_RECORDS_MAX and not may_be_heavy:
            raise HeavyBatch
        inline_max = RECOMPRESSED_INLINE_BYTES_MAX if is_recompressed else INLINE_BYTES_MAX
        payload = _unpacked(view, codec, rules.unpacked_bytes_max if may_be_heavy else inline_max, may_be_heavy=may_be_heavy)
    if rules.opens_batches:
        low, high, keyless = _check_contents(payload, count, is_packed=codec != Codec.NONE)
        found = base_timestamp + high
        if (keyless and rules.is_compacted) or (
            not rules.is_log_append_time and (found > now_ms + rules.after_ms or base_timestamp + low < now_ms - rules.before_ms)
        ):
            _refuse_records(view, rules, now_ms)
        if found != max_timestamp and not rules.is_log_append_time:  # Kafka sets it right, too
            max_timestamp = found
            set_max_timestamp(view, found)
    elif not rules.is_log_append_time:
        _check_header_times(base_timestamp, max_timestamp, rules, now_ms)
    if is_recompressed:
        view = _recompressed(view, payload, attributes, rules)
    if rules.is_log_append_time:
        max_timestamp = now_ms
        stamp_log_append_time(view, now_ms=now_ms)
    return view, max_timestamp


def _unpacked(view: memoryview, codec: int, limit: int, *, may_be_heavy: bool) -> bytes:
    if codec == Codec.NONE:
        if len(view) > limit < INLINE_BYTES_MAX:  # few large records are no work, but for packing them
            raise HeavyBatch
        return bytes(view[HEADER_SIZE:])
    try:
        return decompress(codec, view[HEADER_SIZE:], limit)
    except DecodeError as error:
        if not may_be_heavy:  # the limit cannot always distinguish what is malformed from what is only large
            raise HeavyBatch from None
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the batch does not unpack: {error.message}") from error


def _check_contents(payload: bytes, count: int, *, is_packed: bool) -> tuple[int, int, int]:
    """Returns the smallest and the largest time delta, and how many records have no key."""
    position, low, high, keyless = check_records(payload, 0, count, 0)
    if position == len(payload):
        return low, high, keyless
    if position == GARBAGE:
        code = ErrorCode.INVALID_RECORD if is_packed else ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(code, f"a record of the {count} in the batch has a length that the batch does not have")
    if position == MISCOUNTED:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch does not hold the {count} records that it counts, numbered from 0")
    if position < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"what is in a record of the {count} in the batch does not fill it")
    raise KafkaError(ErrorCode.INVALID_RECORD, f"{len(payload) - position} bytes follow the {count} records that the batch counts")


def _refuse_records(view: memoryview, rules: BatchRules, now_ms: int) -> None:
    """Raises RecordsRefused, if a record breaks a rule: a time that is not known breaks none."""
    code, refused = ErrorCode.INVALID_RECORD, list[tuple[int, str]]()
    for index, record in enumerate(walk_records(view, limit=rules.unpacked_bytes_max)):
        if rules.is_compacted and record.key is None:
            text = "Compacted topic cannot accept message without key"
        elif text := "" if rules.is_log_append_time else _time_problem(record.timestamp_ms, rules, now_ms):
            code = ErrorCode.INVALID_TIMESTAMP
        if text:
            refused.append((index, text))
    if refused:
        shown = "; ".join(f"record {index}: {text}" for index, text in refused[:_REPORTED_MAX])
        clock = _clock_shown(now_ms) if code == ErrorCode.INVALID_TIMESTAMP else ""
        raise RecordsRefused(code, f"{len(refused)} of the batch's records are refused, the first of them: {shown}{clock}", refused)


def _time_problem(timestamp_ms: int, rules: BatchRules, now_ms: int) -> str:
    if timestamp_ms == TIME_UNKNOWN:
        return ""
    if timestamp_ms > now_ms + rules.after_ms:
        return f"timestamp {timestamp_ms} is more than message.timestamp.after.max.ms={rules.after_ms} after {now_ms}"
    if rules.before_ms < LONG_MAX and timestamp_ms < now_ms - rules.before_ms:
        return f"timestamp {timestamp_ms} is more than message.timestamp.before.max.ms={rules.before_ms} before {now_ms}"
    return ""


def _clock_shown(now_ms: int) -> str:
    shown = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"; this broker's clock shows {shown}: if that is not the time, it is the broker's clock that is wrong"


def _check_header_times(base_timestamp: int, max_timestamp: int, rules: BatchRules, now_ms: int) -> None:
    """Raises INVALID_TIMESTAMP by the first and the largest time, which is all that a closed batch shows."""
    text = _time_problem(max_timestamp, rules, now_ms) or _time_problem(base_timestamp, rules, now_ms)
    if text:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, text + _clock_shown(now_ms))


def _recompressed(view: memoryview, payload: bytes, attributes: int, rules: BatchRules) -> memoryview:
    """Returns the same batch in the topic's codec."""
    batch = bytearray(view[:HEADER_SIZE])
    batch += compress(rules.codec, payload, rules.level)
    batch[8:12] = (len(batch) - LENGTH_OVERHEAD).to_bytes(4, "big")
    batch[21:23] = (attributes & ~CODEC_MASK | rules.codec).to_bytes(2, "big", signed=True)
    write_crc(batch)
    if len(batch) > rules.message_bytes_max:
        refuse_size(len(batch), rules.message_bytes_max)
    return memoryview(batch)


def refuse_size(size: int, limit: int) -> NoReturn:
    raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {limit}")


# -- in a worker process


class PrepareRequest(msgspec.Struct, frozen=True):
    batch: bytes
    rules: BatchRules
    now_ms: int


class Prepared(msgspec.Struct, frozen=True):
    """The batch, or why it is refused."""

    batch: bytes = b""
    error_code: int = 0
    error_message: str = ""
    record_errors: list[tuple[int, str]] = []


async def _prepare(disk: Disk, request: PrepareRequest, pace: Pace) -> Prepared:
    try:
        whole = memoryview(bytearray(request.batch))
        view, _ = apply_rules(whole, HEADER.unpack_from(whole), request.rules, request.now_ms, may_be_heavy=True)
    except RecordsRefused as error:
        return Prepared(error_code=error.code, error_message=error.message, record_errors=list(error.record_errors))
    except KafkaError as error:
        return Prepared(error_code=error.code, error_message=error.message)
    return Prepared(bytes(view))


PREPARE_JOB: Final = Job(f"{__name__}:PREPARE_JOB", _prepare, PrepareRequest, Prepared)


async def prepare_away(disk: Disk, batch: bytes, rules: BatchRules, now_ms: int) -> memoryview:
    """Applies ``apply_rules`` in a worker process; KAFKA_STORAGE_ERROR, after which a client tries again, when the worker died of it."""
    try:
        prepared = await disk.work(PREPARE_JOB, PrepareRequest(batch, rules, now_ms))
    except WorkerDied as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the batch was not examined: {error}") from error
    if prepared.record_errors:
        raise RecordsRefused(ErrorCode(prepared.error_code), prepared.error_message, prepared.record_errors)
    if prepared.error_code:
        raise KafkaError(prepared.error_code, prepared.error_message)
    return memoryview(bytearray(prepared.batch))

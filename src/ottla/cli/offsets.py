"""The offset language of ``ottla consume -o``, as rpk and kcl have it.

=====================  =======================================================
start, end             where the partition starts; its end at this moment
:end                   from the start to the end at this moment, then stop
N, N:M                 offset N; offsets N to M (M not read), then stop
+N, -N                 N after the start; N before the end
@T, @T1:T2             from time T; from T1 to T2, then stop
=====================  =======================================================

A time is milliseconds since 1970, seconds with a fraction, an ISO date or date and time (UTC unless it has an offset),
``now``, or relative to now: ``-1h``, ``-30m``, ``-2d``, ``-10s``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from ottla.errors import ErrorCode, KafkaError

_RELATIVE = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MILLISECONDS_DIGITS = 12


class Base(Enum):
    """The point that a place is counted from."""

    OFFSET = "offset"
    START = "start"
    END = "end"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class OffsetPoint:
    """``value`` is added to the base; for OFFSET it is the offset, for TIME milliseconds."""

    base: Base
    value: int = 0


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """````stop`` None: never stop."""

    start: OffsetPoint
    stop: OffsetPoint | None = None


def parse_offsets(text: str, now_ms: int) -> OffsetRange:
    """Parses a range of offsets. INVALID_REQUEST for what is not of the language, and for a range that ends before its start."""
    found = _range(text.strip(), now_ms)
    if found.stop is not None and found.stop.base is found.start.base and found.stop.value < found.start.value:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"offset {text.strip()!r}: the range ends before its start")
    return found


def _range(text: str, now_ms: int) -> OffsetRange:
    if text.startswith("@"):
        return _times(text[1:], now_ms)
    if text in ("start", "oldest", "earliest", "beginning"):
        return OffsetRange(OffsetPoint(Base.START))
    if text in ("end", "newest", "latest"):
        return OffsetRange(OffsetPoint(Base.END))
    if text == ":end":
        return OffsetRange(OffsetPoint(Base.START), OffsetPoint(Base.END))
    first, colon, second = text.partition(":")
    if not first and not second:
        raise _refuse(text)
    start = _place(first, text) if first else OffsetPoint(Base.START)
    if not colon:
        return OffsetRange(start)
    stop = OffsetPoint(Base.END) if second == "end" else _place(second, text)
    return OffsetRange(start, stop)


def _place(text: str, whole: str) -> OffsetPoint:
    if re.fullmatch(r"\d+", text):
        return OffsetPoint(Base.OFFSET, int(text))
    if re.fullmatch(r"\+\d+", text):
        return OffsetPoint(Base.START, int(text))
    if re.fullmatch(r"-\d+", text):
        return OffsetPoint(Base.END, int(text))
    raise _refuse(whole)


def _refuse(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"offset {text!r}: expected start, end, N, N:M, +N, -N, :end, @TIME or @TIME:TIME")


def _times(text: str, now_ms: int) -> OffsetRange:
    for split in [None, *(index for index, character in enumerate(text) if character == ":")]:
        first, second = (text, None) if split is None else (text[:split], text[split + 1 :])
        start = _time(first, now_ms)
        stop = None if second is None else _time(second, now_ms)
        if start is not None and (second is None or stop is not None):
            return OffsetRange(OffsetPoint(Base.TIME, start), None if stop is None else OffsetPoint(Base.TIME, stop))
    way_out = "; a range is @T1:T2, with one @" if "@" in text else ""
    known = "milliseconds, seconds, an ISO date, now, or -1h, -30m, -2d"
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"time {text!r}: expected {known}{way_out}")


def _time(text: str, now_ms: int) -> int | None:
    if text == "now":
        return now_ms
    relative = _RELATIVE.fullmatch(text)
    if relative is not None:
        return now_ms - int(float(relative[1]) * _UNIT_MS[relative[2]])
    if re.fullmatch(r"\d+", text):
        return int(text) if len(text) > _MILLISECONDS_DIGITS else int(text) * 1000
    if re.fullmatch(r"\d+\.\d+", text):
        return int(float(text) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)

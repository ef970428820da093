"""Neighbouring rows of encoded columns, for one partition and of one time: what a ``RowWriter`` hands to a delivery."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.types import Headers, TopicPartition


@dataclass(frozen=True, slots=True)
class RowSlice:
    target: TopicPartition
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers] | None  # None: no row has any
    start: int  # 0 <= start < end <= len(values)
    end: int
    timestamp_ms: int

"""CRC-32C (Castagnoli), the checksum of record batches."""

from __future__ import annotations

from fastcrc.crc32 import iscsi

from ottla.ports import Buffer


def crc32c(data: Buffer, value: int = 0) -> int:
    """Returns the checksum of ``data``; ``value`` is that of the bytes before it."""
    result: int = iscsi(data, value)
    return result

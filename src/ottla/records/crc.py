"""CRC-32C (Castagnoli), the checksum of record batches."""

from __future__ import annotations

from ottla.ports import Buffer

try:
    from fastcrc.crc32 import iscsi as _iscsi

    def crc32c(data: Buffer, value: int = 0) -> int:
        """The checksum of ``data``; ``value`` is that of the bytes before it."""
        result: int = _iscsi(data, value)
        return result

except ImportError:  # a platform for which fastcrc has no wheel
    import google_crc32c  # type: ignore[import-not-found,unused-ignore]

    def crc32c(data: Buffer, value: int = 0) -> int:
        """The checksum of ``data``; ``value`` is that of the bytes before it."""
        result: int = google_crc32c.extend(value, bytes(data))
        return result

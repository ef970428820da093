"""Walking the batches of a log file, front to back."""

from __future__ import annotations

from typing import Final

from ottla.errors import DecodeError
from ottla.ports import File
from ottla.records.batch import HEADER_SIZE, BatchHeader, has_valid_crc, read_header

_HEADERS_CHUNK: Final = 8 << 10
_WHOLE_CHUNK: Final = 1 << 20


class BatchWalk:
    """The batches from a position on; with ``check_crc`` each is read completely, else only headers are, and few bytes around them."""

    __slots__ = ("_check_crc", "_chunk", "_chunk_start", "_end", "_file", "_next", "position")

    def __init__(self, file: File, position: int, end: int, *, check_crc: bool = False) -> None:
        self._file = file
        self._next = position
        self._end = end
        self._check_crc = check_crc
        self._chunk = b""
        self._chunk_start = position
        self.position = position
        """Of the batch that ``next`` returned last."""

    @property
    def batch(self) -> bytes:
        """All of the batch that ``next`` returned last; only with ``check_crc``."""
        start = self.position - self._chunk_start
        return self._chunk[start : start + self._next - self.position]

    async def next(self) -> BatchHeader | None:
        """Returns the next batch; None at the end. DecodeError where there is no batch, or one that does not end by the end."""
        self.position = position = self._next
        if position >= self._end:
            return None
        await self._need(HEADER_SIZE)
        header = read_header(self._chunk, position - self._chunk_start)
        if position + header.size_bytes > self._end:
            raise DecodeError(f"{self._file.path}: the batch at byte {position} ends after byte {self._end}")
        if self._check_crc:
            await self._need(header.size_bytes)
            if not has_valid_crc(self._chunk, position - self._chunk_start, header):
                raise DecodeError(f"{self._file.path}: the batch at byte {position} fails its CRC")
        self._next = position + header.size_bytes
        return header

    async def _need(self, size: int) -> None:
        """Reads until the chunk holds ``size`` bytes from the position on, or all that there are."""
        if self.position + size > self._chunk_start + len(self._chunk):
            wanted = max(size, _WHOLE_CHUNK if self._check_crc else _HEADERS_CHUNK)
            self._chunk = await self._file.pread(self.position, min(wanted, self._end - self.position))
            self._chunk_start = self.position

"""A connection in front of another one."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.ports import Buffer, Connection, FileRegion


class PassingConnection:
    """A ``Connection`` that passes everything on to ``_transport``, except what a subclass does otherwise."""

    def __init__(self, transport: Connection) -> None:
        self._transport = transport

    @property
    def peer(self) -> tuple[str, int]:
        return self._transport.peer

    @property
    def local(self) -> tuple[str, int]:
        return self._transport.local

    @property
    def unsent_bytes(self) -> int:
        return self._transport.unsent_bytes

    @property
    def is_closed(self) -> bool:
        return self._transport.is_closed

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        self._transport.send(buffers)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def probe(self) -> None:
        self._transport.probe()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

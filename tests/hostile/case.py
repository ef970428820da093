"""What a bad input is, and the sizes that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

MIB = 1 << 20
INT_MAX, INT_MIN, LONG_MAX, LONG_MIN = 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)
FRAME_BYTES_MAX = 8 * MIB
"""The broker's socket.request.max.bytes in these tests."""


class Case(NamedTuple):
    name: str
    data: bytes | Callable[[], bytes]
    is_answered: bool = True  # or its connection closed; False where the broker may well wait for more, and only must not suffer

    def bytes_to_send(self) -> bytes:
        return self.data if isinstance(self.data, bytes) else self.data()

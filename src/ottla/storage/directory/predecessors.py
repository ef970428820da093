"""Whose records a log directory certainly has: what its marks of a clean stop and of a running process say (KIP-966).

A process that is killed has lost nothing, as long as the machine runs on and the directory is the original: a copy that was made while
the process ran lacks what came later. Its mark names the machine's boot and a file of the directory for that reason.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

_INCARNATIONS_MAX: Final = 16  # that were killed one after the other before they knew their epochs


class BootMark(Struct, frozen=True):
    """The place where a process writes: the machine's boot time, and the number of the directory's first file, of fixed width."""

    boot_id: str
    file: str

    @classmethod
    def of(cls, boot_id: str, file_number: int) -> BootMark:
        return cls(boot_id, f"{file_number:020d}")


class Predecessors(Struct, frozen=True):
    """The processes that had a log directory before, and of which nothing that they had written can be missing (KIP-966)."""

    broker_epoch: int = -1
    """Of the last one that knew its epoch; -1 when that is not known."""
    incarnations: tuple[bytes, ...] = ()
    """Of those that came after it, and may have been registered: each was killed before it could write down its epoch."""

    @classmethod
    def from_mark(cls, mark: bytes, *, place: BootMark | None = None) -> Predecessors:
        """Returns the predecessors that the mark names; none when it says nothing, as before KIP-966, or belongs to another place."""
        try:
            said = json.loads(mark or b"{}")
            if place is not None and (not place.boot_id or said.get("bootId") != place.boot_id or said.get("file") != place.file):
                return cls()
            return cls(int(said.get("brokerEpoch", -1)), tuple(map(bytes.fromhex, said.get("incarnations", ()))))
        except (ValueError, TypeError, AttributeError):
            return cls()

    def to_mark(self, place: BootMark) -> bytes:
        known = [incarnation.hex() for incarnation in self.incarnations]
        said = {"brokerEpoch": self.broker_epoch, "bootId": place.boot_id, "file": place.file, "incarnations": known}
        return json.dumps(said).encode()

    def followed_by(self, incarnation: bytes) -> Predecessors:
        """Adds a process that is about to register: it may be killed before it learns its epoch."""
        return Predecessors(self.broker_epoch, (*self.incarnations, incarnation)[-_INCARNATIONS_MAX:])

    @classmethod
    def of_all(cls, found: Sequence[Predecessors]) -> Predecessors:
        """Returns the predecessors of several log directories together: the processes that had written to each of them."""
        first, *others = found
        epoch = first.broker_epoch if all(other.broker_epoch == first.broker_epoch for other in others) else -1
        return cls(epoch, tuple(one for one in first.incarnations if all(one in other.incarnations for other in others)))

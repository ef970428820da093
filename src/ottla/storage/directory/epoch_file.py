"""``leader-epoch-checkpoint``: which leader wrote which offsets of a log, as a file of its partition directory.

The epochs themselves, and Kafka's format of the file, are in ``records/epochs.py``.
"""

from __future__ import annotations

from ottla.errors import DecodeError
from ottla.ports import Disk
from ottla.records.epochs import CHECKPOINT_NAME, EpochCache
from ottla.storage.disk_errors import PASSING


class EpochFile:
    """The epochs of one log, and whether its file lacks some of them."""

    __slots__ = ("_disk", "epochs", "is_changed")

    def __init__(self, disk: Disk, epochs: EpochCache) -> None:
        self._disk = disk
        self.epochs = epochs
        self.is_changed = False

    def assign(self, epoch: int, start_offset: int) -> None:
        """Starts ``epoch`` at ``start_offset``, unless it already has."""
        if self.epochs.assign(epoch, start_offset):
            self.is_changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Removes offsets below ``start_offset``, which no longer exist."""
        if self.epochs.truncate_from_start(start_offset):
            self.is_changed = True

    def truncate_from_end(self, end_offset: int) -> None:
        """Forgets the epochs of offsets from ``end_offset`` on."""
        if self.epochs.truncate_from_end(end_offset):
            self.is_changed = True

    async def write_changed(self, directory: str) -> None:
        """Writes all that there was at the call to the file, durably, where that is news."""
        if self.is_changed:
            text = self.epochs.to_text()
            await self._disk.write_file_atomic(f"{directory}/{CHECKPOINT_NAME}", text.encode())
            self.is_changed = self.epochs.to_text() != text  # another leader may have come meanwhile

    async def write_if_room(self, directory: str) -> None:
        """Writes as ``write_changed`` does, or leaves that to the next call where there is no room: for callers that need it only soon."""
        try:
            await self.write_changed(directory)
        except OSError as error:
            if error.errno not in PASSING:
                raise


async def read_epochs(disk: Disk, directory: str) -> EpochCache | None:
    """Returns the epochs; None when the file is missing or damaged: every batch must then be asked."""
    try:
        return EpochCache.from_text((await disk.read_file(f"{directory}/{CHECKPOINT_NAME}")).decode())
    except (FileNotFoundError, DecodeError, UnicodeDecodeError):
        return None


async def write_epochs(disk: Disk, directory: str, epochs: EpochCache) -> None:
    """Writes these epochs to the directory's file, durably."""
    await disk.write_file_atomic(f"{directory}/{CHECKPOINT_NAME}", epochs.to_text().encode())

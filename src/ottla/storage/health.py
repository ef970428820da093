"""Whether a log can be trusted, and who is notified when it cannot.

A disk that fails once is not trusted again: the log fails, refuses everything from then on, and its owner is notified. A full
disk, or a shortage of descriptors, passes (``disk_errors.py``): nothing fails but the request. Logs of one directory share its room.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.errors import StorageError
from ottla.storage.directory.room import Room
from ottla.storage.disk_errors import PASSING, is_disk_at_fault


class LogHealth:
    """The health of one log. ``on_failed`` is called once; ``on_disk_failed`` after it, with the error, where the disk is at fault."""

    __slots__ = ("damage", "drop_staged", "is_failed", "is_interrupted", "is_retired", "on_disk_failed", "on_failed", "reason", "room")

    def __init__(self) -> None:
        self.is_failed = False
        self.damage = ""  # what a reader found damaged, for which the log has failed
        self.is_interrupted = False  # it has failed only until it is opened again
        self.reason = ""  # why it has failed, where that is known, for people
        self.room: Room | None = None  # of its directory, where the owner has set it
        self.is_retired = False  # the partition was deleted; a retired log counts as failed
        self.drop_staged: Callable[[], None] = _nothing  # the tail's: what is staged will never be written
        self.on_failed: Callable[[], None] = _nothing
        self.on_disk_failed: Callable[[OSError], None] = lambda error: None

    def check(self, directory: str) -> None:
        """Raises StorageError when the log has failed."""
        if self.is_failed:
            raise StorageError(f"the log in {directory} has failed")

    @property
    def has_no_room(self) -> bool:
        """Whether nothing is to be written: the disk was full, and no write has found room since."""
        return self.room is not None and self.room.is_full

    def on_full(self) -> None:
        """Reports that the disk has refused a write for want of room."""
        if self.room is not None:
            self.room.on_full()

    def fail(self) -> None:
        """Ends all service from the log; what was staged will never be written."""
        if not self.is_failed:
            self.is_failed = True
            self.drop_staged()
            self.on_failed()

    def fail_damaged(self, damage: str) -> None:
        """Fails as ``fail`` does, for a file that is damaged while the disk is well."""
        if not self.is_failed:
            self.damage, self.reason = damage, f"damaged: {damage}"
            self.fail()

    def broken_off(self, error: OSError) -> None:
        """Fails as ``fail`` does, for something was done by half. Opening the log again finishes it, if the error passes."""
        self.on_disk_error(error)
        self.is_interrupted = error.errno in PASSING
        self.fail()

    def fail_with_disk(self, error: OSError) -> None:
        """Fails as ``fail`` does, with the disk, of which that is the error."""
        if not self.is_failed:
            self.fail()
            self.on_disk_failed(error)

    def on_disk_error(self, error: OSError) -> None:
        """Fails the log, alone or with its disk, as the error demands; not at all where the error passes."""
        if is_disk_at_fault(error):
            self.fail_with_disk(error)
        elif error.errno not in PASSING:
            self.fail()

    def retire(self) -> None:
        """Ends all reading and writing: the partition was deleted. What was staged is dropped."""
        self.is_failed = self.is_retired = True
        self.drop_staged()


def _nothing() -> None:
    """Does nothing, without an owner."""

"""Records on their way from a poll to the application, one by one.

The poll took them all; what the application has not come to is not consumed, and no commit covers it. ``next_record`` may be called from
another thread than the loop's, while nothing else of the consumer is used.
"""

from __future__ import annotations

from ottla.client.buffer import AnyRecord
from ottla.types import TopicPartition


class Handout:
    __slots__ = ("_at", "_records")

    def __init__(self) -> None:
        self._records: list[AnyRecord] = []
        self._at = 0

    def fill(self, records: list[AnyRecord]) -> None:
        assert not self.unread, "what was taken before has been handed out or given back"
        self._records, self._at = records, 0

    @property
    def unread(self) -> int:
        """How many records are still to be handed out."""
        return len(self._records) - self._at

    def next_record(self) -> AnyRecord | None:
        """Returns the next record, which counts as consumed; None when there is none."""
        at = self._at
        if at >= len(self._records):
            return None
        self._at = at + 1
        return self._records[at]

    def rest(self) -> list[AnyRecord]:
        """Returns all that is left; it counts as consumed."""
        records = self._records if self._at == 0 else self._records[self._at :]
        self._records, self._at = [], 0
        return records

    def drop(self) -> int:
        """Drops all that is left, and returns how many records that were."""
        count = self.unread
        self._records, self._at = [], 0
        return count

    def first_unread(self) -> dict[TopicPartition, int]:
        """Returns the offset of each partition's first record that is still to be handed out."""
        found: dict[TopicPartition, int] = {}
        for record in self._records[self._at :]:
            found.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return found

"""What groups have committed, as all that clients were answered says it is: plainly, or with a transaction that was committed.

Commits that overlap may take effect in any order. One whose end is not known may take effect at any later time; one of a transaction does
when the transaction is committed, and never when it is aborted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.history.operations import Operation

Partition = tuple[str, int]
GroupPartition = tuple[str, Partition]
"""A group, and a partition."""


@dataclass(slots=True)
class _Found:
    """The commit that was found of a group in a partition: at least ``low``, and one of ``attempted``."""

    low: int = -1
    attempted: Counter[int] = field(default_factory=Counter)
    open: Counter[int] = field(default_factory=Counter)  # commits that have not ended yet, or whose end is unknown

    def begin(self, offset: int) -> None:
        self.attempted[offset] += 1
        self.open[offset] += 1
        self.low = min(self.low, offset)

    def confirm(self, offset: int) -> None:
        self.attempted[offset] += not self.attempted[offset]
        self._close(offset)
        self.low = min((offset, *self.open))

    def refuse(self, offset: int) -> None:
        """Notes a refused commit, which may have been made all the same: it can be found."""
        self._close(offset)

    def _close(self, offset: int) -> None:
        self.open[offset] -= 1
        self.open += Counter()  # without those that are zero


class Commits:
    """``take`` is called for each commit in order, ``end`` for each end of a transaction, ``found`` for each question."""

    def __init__(self) -> None:
        self._at: dict[GroupPartition, _Found] = {}
        self._of_transaction: dict[str, list[tuple[GroupPartition, int]]] = {}
        self._asked: dict[tuple[str | int, str], dict[Partition, int]] = {}  # lower bounds when committed offsets were asked for

    def take(self, operation: Operation) -> None:
        for topic, index, offset in operation.offsets:
            place = operation.group, (topic, index)
            at = self._at.setdefault(place, _Found())
            if operation.transaction:
                if operation.type == "invoke":
                    at.begin(offset)
                    self._of_transaction.setdefault(operation.transaction, []).append((place, offset))
                continue
            match operation.type:
                case "invoke":
                    at.begin(offset)
                case "ok":
                    at.confirm(offset)
                case "fail":
                    at.refuse(offset)
                case "info":
                    continue  # it may take effect at any later time

    def end(self, transaction: str, *, is_commit: bool) -> None:
        """Ends the transaction: what it has committed counts, or never will."""
        for place, offset in self._of_transaction.pop(transaction, ()):
            at = self._at[place]
            if is_commit:
                at.confirm(offset)
            else:
                at.refuse(offset)
                at.attempted[offset] -= 1

    def found(self, operation: Operation) -> Iterator[tuple[str, Partition, str]]:
        """Yields the anomalies of what a group was found to have: kind, partition and text."""
        key = operation.process, operation.group
        if operation.type == "invoke":
            self._asked[key] = {partition: found.low for (group, partition), found in self._at.items() if group == operation.group}
            return
        asked = self._asked.pop(key, None)
        if operation.type != "ok":
            return
        for topic, index, offset in operation.offsets:
            partition = topic, index
            at = self._at.get((operation.group, partition), _Found())
            low = min(at.low, at.low if asked is None else asked.get(partition, -1))
            if offset < low:
                text = f"group {operation.group} was found at offset {offset}, and the commit of {low} was confirmed"
                yield "lost-commit", partition, text
            elif offset >= 0 and at.attempted[offset] <= 0:
                text = f"group {operation.group} was found at offset {offset}, which no client had tried to commit"
                yield "phantom-commit", partition, text

"""Where a consumer waits that has nothing to read, in one line on standard error: a silent command looks like one that hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.cli.output import complain
from ottla.types import TopicPartition

SECONDS: Final = 2.0
NAMES_MAX: Final = 3


class Waiting:
    """The first moments of a consumer. ``describe`` is called once, when no record has come in ``SECONDS`` of them; None says nothing.

    Where it ``is_repeated``, also after records have come, and ``SECONDS`` without one: of a consumer that is not done before the end.
    """

    def __init__(
        self, describe: Callable[[], str | None], clock: Callable[[], float] = time.monotonic, *, is_repeated: bool = False
    ) -> None:
        self._describe = describe
        self._clock = clock
        self._is_repeated = is_repeated
        self._since: float | None = None
        self._is_done = False

    def begin(self) -> None:
        """Counts from now: the partitions are known."""
        if self._since is None:
            self._since = self._clock()

    @property
    def has_begun(self) -> bool:
        """Whether the partitions are known."""
        return self._since is not None

    def look(self, *, came: int) -> None:
        """Notes how many records came just now, and prints the line where none has for long enough."""
        if self._is_done or self._since is None:
            return
        if came:
            self._is_done = not self._is_repeated
            self._since = self._clock()
        elif self._clock() - self._since >= SECONDS:
            self._is_done = True
            text = self._describe()
            if text is not None:
                complain(text)


def where_it_waits(
    positions: Mapping[TopicPartition, int],
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
    group_id: str | None = None,
    *,
    read_committed: bool = False,
) -> str:
    """Returns where a consumer with these positions waits, and how what is before them can be read.

    ``last`` has the end of what it may read: with ``read_committed``, the start of the first open transaction.
    """
    if not positions:
        return f"group {group_id} has given this member no partition: others have them (`ottla group describe {group_id} --members`)"
    topics = sorted({partition.topic for partition in positions})
    count = len(positions)
    names = f"{_names(topics)} ({count} partition{'s'[: count != 1]})"
    before = sum(position - first[partition] for partition, position in positions.items())
    missing = sum(max(0, last[partition] - position) for partition, position in positions.items())
    if missing:
        causes = f"`ottla topic describe {topics[0]}` shows leaders, `ottla txn list` open transactions"
        return f"waiting for {_records(missing)} of {names} that cannot be read yet: {causes}"
    if not before:
        hidden = ", or none that its transaction has committed: `ottla txn list` shows open ones" if read_committed else ""
        return f"waiting for records of {names}: there are none yet{hidden}"
    if group_id is None:
        return f"waiting at the end of {names}; -o start reads the {_records(before)} before it"
    back = f"`ottla group seek {group_id} --to start`, while the group has no members, goes back to the {_records(before)} before it"
    return f"waiting at the end of {names} in group {group_id}; {back}"


def _names(topics: Sequence[str]) -> str:
    more = len(topics) - NAMES_MAX
    return ", ".join(topics[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def _records(count: int) -> str:
    return f"{count} record{'s'[: count != 1]}"

"""Replicated machines: decide, then apply.

A machine is pure state. ``decide`` reads it and returns what should happen; ``apply`` changes it and decides nothing.
A restart is: apply all records of the machine's log, then ``on_loaded``. Time comes in as ``now_ms``; random choices and
new ids arrive inside the command.

What a Decision holds, in the order in which the runner (``broker/coordinators/shard.py``) carries it out:

=========  =====================================================================================================
records    durable: appended to the log, applied; their consequences are visible only once they are committed
marker     in place of records: the end of a transaction of which the log has records
facts      volatile state (a member that waits, a heartbeat seen): applied at once, lost on failover
wakes      keys: the commands that are parked under them are decided again, in this turn
parks      commands that wait under a key; for one that has waited too long its token gets the late reply
timers     a deadline and the command that it becomes
replies    ``(token, value)``; a token of an earlier, parked command may be answered by a later decision
effects    what others must do (write markers at a broker), carried out after the records are committed
=========  =====================================================================================================

An answer without records leaves at once, perhaps from a broker that has been replaced and does not know it yet. Where that would do harm
(a refusal after which the client ends, the offsets from which a transaction continues), the decision has a *confirmation*. That is a
record that changes nothing, and that the log commits for the leader of the present alone. Where other brokers have the log, too, the
answer waits for it. ``groups/confirmations.py`` and ``transactions/coordinator.py`` say which answers these are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from ottla.wire.schema import Stored

R = TypeVar("R")

Token = int
"""Names a command that waits for its reply."""


class Command(Generic[R]):
    """A question that a machine decides; an ``R`` is the reply. Commands of timers have none: ``Command[None]``."""

    __slots__ = ()


class StoredRecord(Struct, frozen=True):
    """One durable change. ``value`` None is a tombstone; ``key`` None is for logs whose records have no keys."""

    key: Stored | None
    value: Stored | None


class Writer(NamedTuple):
    """The producer of whose transaction the records are. They are refused if more than ``marker_count`` of its transactions have ended in
    the log meanwhile: what its coordinator has permitted was for one of them."""

    producer_id: int
    producer_epoch: int
    marker_count: int


class Marker(NamedTuple):
    """The end of a producer's transaction. ``producer_epoch`` is the marker's; at transaction.version 2 its records have the one before."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class Timer(Struct, frozen=True):
    """A command to be decided at ``deadline_ms``. A later timer of the same name replaces an earlier one."""

    name: tuple[str, ...]
    deadline_ms: int
    command: Any


class Park(Struct, frozen=True):
    """The command waits for a decision that wakes ``key``. How long at most, counted from its first decision, is the runner's to know."""

    key: str
    command: Any
    late: Any


class Decision(Struct, frozen=True):
    """The consequences of one command. Empty parts cost nothing.

    The records of an atomic decision are one batch; one that does not fit is refused entirely. Others are split as needed. A decision
    without ``has_limit`` fits always: its batches may be larger than the log's ``max.message.bytes``. Records with a ``writer`` are part of
    its transaction; a ``marker`` ends one, and comes without records. Timers whose names are in ``ended`` are given up, as nothing needs
    them: clients choose how long they run. Replies wait until all that was decided before them is committed; a decision that ``is_free``
    has no records, and its replies promise nothing: they are given at once.
    """

    records: tuple[StoredRecord, ...] = ()
    facts: tuple[Any, ...] = ()
    ended: tuple[tuple[str, ...], ...] = ()
    timers: tuple[Timer, ...] = ()
    replies: tuple[tuple[Token, Any], ...] = ()
    effects: tuple[Any, ...] = ()
    is_atomic: bool = True
    has_limit: bool = True
    wakes: tuple[str, ...] = ()
    parks: tuple[Park, ...] = ()
    writer: Writer | None = None
    marker: Marker | None = None
    confirmation: StoredRecord | None = None
    is_free: bool = False


class ReplicatedMachine(Protocol):
    """A machine, as its runner sees it."""

    def decide(self, command: Any, now_ms: int) -> Decision:
        """Reads state, changes nothing."""
        ...

    def apply(self, record: StoredRecord) -> None:
        """Changes state, decides nothing."""
        ...

    def apply_pending(self, producer_id: int, record: StoredRecord) -> None:
        """Applies a record that counts when the producer's transaction is committed."""
        ...

    def apply_end(self, producer_id: int, *, is_commit: bool) -> None:
        """Ends the producer's transaction, if it had one here."""
        ...

    def apply_fact(self, fact: Any) -> None: ...

    def on_loaded(self, now_ms: int) -> Iterable[Decision]:
        """Yields what follows from the applied records (timers of sessions, for example), in small parts."""
        ...

    def dismantle(self) -> Iterable[None]:
        """Gives up the state of a machine that is no longer used, a small piece at a time, as the iterator is driven."""
        ...

    def snapshot(self) -> Iterable[StoredRecord]:
        """Yields records that rebuild the durable state when applied to an empty machine."""
        ...

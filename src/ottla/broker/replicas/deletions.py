"""Requests to delete records that wait for the followers: a partition's low watermark is to reach the offset that was asked for.

The low watermark is the smallest log start offset of the replicas whose brokers live (``replication/leader.py``): what is below it is
deleted everywhere. Followers report their start with each fetch. Source: KIP-107.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from ottla.errors import KafkaError


class DeletionWaiter(Protocol):
    """A request that waits for records to be deleted."""

    def on_deleted(self, what: Any, low_watermark: int, error: KafkaError | None) -> None:
        """Reports that every live replica starts at ``low_watermark`` or later; or why nothing more will be known of it here."""
        ...


class Deletion(NamedTuple):
    """One wait. ``what`` is for the waiter to know it by."""

    offset: int
    waiter: DeletionWaiter
    what: Any


class Deletions:
    """The requests that wait for deletions in one partition."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[int, Deletion] = {}  # by identity of what is waited for

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, deletion: Deletion) -> None:
        self._waiting[id(deletion.what)] = deletion

    def leave(self, what: Any) -> None:
        """Ends that waiting."""
        self._waiting.pop(id(what), None)

    def advance(self, low_watermark: int) -> None:
        """Answers the requests that wait for nothing else."""
        self._answer([found for found in self._waiting.values() if found.offset <= low_watermark], low_watermark, None)

    def fail(self, error: KafkaError) -> None:
        """Fails the waiting requests: nothing more is known here of the followers."""
        self._answer(list(self._waiting.values()), -1, error)

    def _answer(self, deletions: Iterable[Deletion], low_watermark: int, error: KafkaError | None) -> None:
        for deletion in deletions:
            del self._waiting[id(deletion.what)]
            deletion.waiter.on_deleted(deletion.what, low_watermark, error)

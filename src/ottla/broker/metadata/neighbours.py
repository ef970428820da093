"""Whom a replica of the metadata log deals with: the way to the other voters, and who follows what the log says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.consensus.calls import Answer, Request

OnAnswer = Callable[[Answer | None], None]


class Transport(Protocol):
    """The way to the other voters."""

    def send(self, peer: int, request: Request, on_answer: OnAnswer) -> None:
        """The answer comes by callback; None when it never will."""
        ...

    def probe(self, peer: int, on_proof: Callable[[bool | None], None]) -> None:
        """Finds out whether the peer's process lives: True and False are proofs, None is neither."""
        ...


class Follower(Protocol):
    """Who is told what the metadata log says."""

    def on_committed(self) -> None:
        """There is a newer image."""
        ...

    def on_active(self, epoch: int) -> None:
        """This node's controller may decide from now on."""
        ...

    def on_inactive(self) -> None:
        """It may not any more."""
        ...

    def on_fatal(self, reason: str, error: BaseException) -> None:
        """The node must stop at once."""
        ...

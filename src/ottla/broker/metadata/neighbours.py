"""Whom the metadata log's replica and controller deal with: other voters, who follows what the log says, what is seen of brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

    def on_leader(self) -> None:
        """The metadata log has a leader, which may be another one than before."""
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


class WhileActive(Protocol):
    """A part that is at work while this node's controller is the active one."""

    def begin(self) -> None:
        """It is."""
        ...

    def end(self) -> None:
        """It is not any more."""
        ...


class Evidence(Protocol):
    """What this node sees of the other brokers' processes by itself."""

    is_heard: Callable[[int, int], bool]
    """Asked by it: whether the broker of that epoch is known to live by other means."""
    on_dead: Callable[[int, int], None]
    """Called by it: the process that has registered as the broker with that epoch has ended."""

    def check(self, brokers: Iterable[int] | None = None) -> None:
        """These brokers, or all, are looked at now."""
        ...

    def is_broken(self, broker_id: int, epoch: int) -> bool | None:
        """Whether the connection to the process has ended; None when there never was one."""
        ...

    @property
    def suspected(self) -> frozenset[int]:
        """Those whose connections have ended, without more proof."""
        ...

    def distrust(self, brokers: frozenset[int]) -> None:
        """What is seen of these proves nothing."""
        ...


class NoEvidence:
    """For a node that sees nothing: a lone broker, or one that is to judge by timeouts alone."""

    def __init__(self) -> None:
        self.is_heard: Callable[[int, int], bool] = lambda broker_id, epoch: False
        self.on_dead: Callable[[int, int], None] = lambda broker_id, epoch: None
        self.suspected: frozenset[int] = frozenset()

    def check(self, brokers: Iterable[int] | None = None) -> None:
        pass

    def is_broken(self, broker_id: int, epoch: int) -> bool | None:
        return None

    def distrust(self, brokers: frozenset[int]) -> None:
        pass

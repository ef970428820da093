"""Whom the metadata log's replica and controller deal with: other voters, who follows what the log says, what is seen of brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ottla.consensus.calls import Answer, Request
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.wire.schema import Stored

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


class MetadataHome(Protocol):
    """Where decisions are kept, and how this node knows of them: a replica of the quorum's log, or ZooKeeper."""

    follower: Follower

    @property
    def image(self) -> ClusterImage:
        """The newest committed image that this node has."""
        ...

    @property
    def draft(self) -> ClusterImage:
        """After every decision that this node has taken; while it is active."""
        ...

    @property
    def is_electing(self) -> bool:
        """Whether an active controller is looked for."""
        ...

    @property
    def leader_id(self) -> int:
        """The active controller as far as this node knows; -1 when it knows none."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether this node's controller may decide."""
        ...

    def has_fetched(self, node_id: int) -> bool:
        """Whether the node has fetched the metadata from this one, while this one is active."""
        ...

    async def first_levels(self) -> dict[str, int]:
        """The feature levels that a new cluster begins with; empty when nothing was said."""
        ...

    def start(self) -> None:
        """The node takes part."""
        ...

    async def stop(self) -> None: ...

    def append(self, records: Sequence[Stored]) -> int:
        """The records are decided; where they end. NOT_CONTROLLER unless this node is active."""
        ...

    async def committed(self, end_offset: int) -> None:
        """What ends there is committed, and in the image. NOT_CONTROLLER when that is not known."""
        ...

    def on_request(self, request: Request, on_answer: Callable[[Answer], None]) -> Any:
        """Of another node. The answer comes by callback; the token is for ``on_request_dropped``."""
        ...

    def on_request_dropped(self, token: Any) -> None:
        """Nobody waits for the answer any more."""
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

    def hears(self, broker_id: int) -> bool:
        """Whether a connection is open that the broker has made, or it has yet to make its first one."""
        ...

    def is_broken(self, broker_id: int, epoch: int) -> bool | None:
        """Whether the connection to the process has ended; None when there never was one."""
        ...

    def ask_address(self, broker: BrokerImage) -> None:
        """It is found out who listens where the broker is registered."""
        ...

    def listens_for(self, broker: BrokerImage) -> bytes | None:
        """The incarnation that was found there; None while none was."""
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

    def hears(self, broker_id: int) -> bool:
        return False

    def is_broken(self, broker_id: int, epoch: int) -> bool | None:
        return None

    def ask_address(self, broker: BrokerImage) -> None:
        pass

    def listens_for(self, broker: BrokerImage) -> bytes | None:
        return None

    def distrust(self, brokers: frozenset[int]) -> None:
        pass

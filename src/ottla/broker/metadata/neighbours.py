"""Whom the metadata's store and the controller deal with: who follows what the log says, and where decisions are kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from ottla.consensus.calls import Answer, Request
from ottla.metadata.image import ClusterImage, CommittedImages
from ottla.wire.schema import Stored


class MetadataFollower(Protocol):
    """The receiver of what the metadata log says."""

    def on_committed(self) -> None:
        """Takes a newer image."""
        ...

    def on_leader(self) -> None:
        """Notes that the metadata log has a leader, which may have changed."""
        ...

    def on_active(self, epoch: int) -> None:
        """Notes that this node's controller may decide from now on."""
        ...

    def on_inactive(self) -> None:
        """Notes that it may no longer do so."""
        ...

    def on_fatal(self, reason: str, error: BaseException) -> None:
        """Notes that the node must stop at once."""
        ...


class MetadataStore(Protocol):
    """The store of decisions, from which this node learns them: a replica of the quorum's log, or ZooKeeper."""

    @property
    def images(self) -> CommittedImages:
        """The holder of ``image``, for those who ask for it with every request."""
        ...

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

    @property
    def absent(self) -> Collection[int]:
        """Brokers of the cluster that are not registered while they are down; none where registrations last."""
        ...

    def has_fetched(self, node_id: int) -> bool:
        """True when the node has fetched the metadata from this one, while this one is active."""
        ...

    async def first_image(self) -> ClusterImage:
        """Returns the feature levels and users that a new cluster starts with; empty when nothing was said."""
        ...

    def append(self, records: Sequence[Stored]) -> int:
        """Decides the records, and returns where they end. NOT_CONTROLLER unless this node is active."""
        ...

    async def committed(self, end_offset: int | None = None) -> None:
        """Waits until what ends there, or all that was decided, is committed and in the image. NOT_CONTROLLER when that is not known."""
        ...

    def on_request(self, request: Request, on_answer: Callable[[Answer], None]) -> Any:
        """Takes another node's request. The answer comes by callback; the token is for ``on_request_dropped``."""
        ...

    def on_request_dropped(self, token: Any) -> None:
        """Drops the request, whose answer is no longer waited for."""
        ...

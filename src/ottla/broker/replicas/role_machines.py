"""What a partition of several replicas has while it is led here, and while it is led elsewhere. A lone broker starts without either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.replicas.replication import NOBODY, Commits, Replication
from ottla.metadata.image import PartitionImage
from ottla.replication.high_watermark import HighWatermark

if TYPE_CHECKING:
    from ottla.broker.replicas.leading import Leading
    from ottla.replication.follower import Followed


def leading_of(
    partition: Any, image: PartitionImage, replication: Replication, *, epoch_start_offset: int, waiting: Commits = NOBODY
) -> Leading:
    """This broker leads the partition (``Partition``) of several replicas; some wait for what it wrote in an earlier epoch."""
    from ottla.broker.replicas.leading import Leading

    return Leading(partition, image, replication, epoch_start_offset=epoch_start_offset, waiting=waiting)


def followed_from(leader_id: int, leader_epoch: int, *, committed: HighWatermark, backoff_ms: int) -> Followed:
    """Another broker leads a partition of which this one has a replica."""
    from ottla.replication.follower import Followed

    return Followed(leader_id, leader_epoch, committed=committed, backoff_ms=backoff_ms)

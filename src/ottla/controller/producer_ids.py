"""Producer ids, a block at a time: what is recorded first can be given away without a record for each. Source: KIP-730."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ottla.controller.brokers import check_epoch
from ottla.messages.metadata_records import ProducerIdsRecord
from ottla.metadata.image import ClusterImage

BLOCK_SIZE: Final = 1000


class AllocatedBlock(Struct, frozen=True):
    """A ``Decided``: ids that no producer ever had, and the record that takes them from all other blocks."""

    block: range
    records: tuple[ProducerIdsRecord, ...]


def allocate_block(image: ClusterImage, *, broker_id: int, broker_epoch: int) -> AllocatedBlock:
    """Allocates a block for a broker; STALE_BROKER_EPOCH for an earlier process of it, BROKER_ID_NOT_REGISTERED for any other."""
    check_epoch(image, broker_id, broker_epoch)
    return next_block(image, broker_id=broker_id, broker_epoch=broker_epoch)


def next_block(image: ClusterImage, *, broker_id: int, broker_epoch: int = -1) -> AllocatedBlock:
    """Allocates a block for any broker that asks."""
    block = range(image.next_producer_id, image.next_producer_id + BLOCK_SIZE)
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=block.stop)
    return AllocatedBlock(block, (record,))

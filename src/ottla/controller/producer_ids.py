"""Producer ids, a block at a time: what is recorded first can be given away without a record for each."""

from __future__ import annotations

from typing import Final

from ottla.messages.metadata_records import ProducerIdsRecord
from ottla.metadata.image import ClusterImage

BLOCK_SIZE: Final = 1000


def next_block(image: ClusterImage, *, broker_id: int) -> tuple[range, ProducerIdsRecord]:
    """Ids that no producer ever had, and the record that takes them from all other blocks."""
    block = range(image.next_producer_id, image.next_producer_id + BLOCK_SIZE)
    return block, ProducerIdsRecord(broker_id=broker_id, broker_epoch=-1, next_producer_id=block.stop)

"""Eligibility to lead rests on ``min.insync.replicas``: below it nothing is committed, so a replica that left the ISR then has everything.

Under another value more may be committed than they have. Each change of the value ends their eligibility, therefore, and in the same
group of records, so that no leader knows the one without the other. Where none is in sync nothing is committed: the eligible replicas there
stay so, or the partition could never be led again. Source: KIP-966.
"""

from __future__ import annotations

from ottla.messages.metadata_records import ClearElrRecord, PartitionChangeRecord
from ottla.metadata.image import ClusterImage
from ottla.wire.schema import Stored


def end_eligibility(image: ClusterImage, topic: str = "") -> list[Stored]:
    """Ends all eligibility in the partitions of the topic that have an ISR; of all topics, for an empty name."""
    places, has_eligible, kept = image.index.with_elr, False, list[Stored]()
    for name in [topic] if topic else list(places):
        found = image.topics[name]
        for index in places.get(name, ()):
            partition = found.partitions[index]
            has_eligible |= bool(partition.isr)
            if not partition.isr:
                known, last = list(partition.elr), list(partition.last_known_elr)
                kept.append(PartitionChangeRecord(index, found.topic_id, eligible_leader_replicas=known, last_known_elr=last))
    return [ClearElrRecord(topic), *kept] if has_eligible else []

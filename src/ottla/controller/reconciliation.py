"""What a controller decides about what it finds: brokers that came and went unseen, partitions that are only half made.

A controller whose records are kept in ZooKeeper reads there who is registered, and the last written state of every partition.
A broker that is not registered, or by a later session than the known one, first leaves every ISR. Source: KIP-631, KIP-841.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.controller.decided import Recorded
from ottla.controller.sweeps import Completing, Leaving, OnStep, RulesOf, Suspected
from ottla.controller.topic_rules import is_serving
from ottla.messages.metadata_records import PartitionRecord
from ottla.metadata.image import BrokerImage, ClusterImage, PartitionImage
from ottla.metadata.members import broker_record
from ottla.types import NO_LEADER
from ottla.wire.schema import Stored


class WithoutTheAbsent(Completing):
    """A sweep that removes unregistered brokers from ISRs and leaderships, and gives leaderless partitions a leader where one can lead."""

    _may_be_unclean = True

    def _is_gone(self, image: ClusterImage, partition: PartitionImage, node: int) -> bool:
        return node not in image.brokers


def broker_coming(
    broker: BrokerImage, rules: RulesOf, *, suspected: Suspected = lambda: (), on_step: OnStep = lambda offset: None
) -> Leaving:
    """Returns the sweep that registers the broker, fenced, under its epoch; an earlier process of its id has left first."""
    broker_id, epoch = broker.broker_id, broker.broker_epoch

    def is_wanted(image: ClusterImage) -> bool:
        return broker_id not in image.brokers or image.brokers[broker_id].broker_epoch != epoch

    return Leaving(
        broker_id,
        rules,
        is_wanted,
        last=lambda image, offset: (broker_record(broker),),
        is_clean=lambda image: broker_id not in image.brokers,
        suspected=suspected,
        on_step=on_step,
    )


def born(image: ClusterImage, partitions: Iterable[tuple[str, int, Sequence[int]]]) -> Recorded:
    """Adds partitions to existing topics: replicas that serve are in sync; where none does, the first one is, and there is no leader."""
    records: list[Stored] = []
    for name, index, replicas in partitions:
        topic = image.topics.get(name)
        if topic is None or index in topic.partitions or not replicas:
            continue
        serving = [node for node in replicas if is_serving(image, node)]
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic.topic_id,
                replicas=list(replicas),
                isr=serving or [replicas[0]],
                leader=serving[0] if serving else NO_LEADER,
                leader_epoch=0,
                partition_epoch=0,
            )
        )
    return Recorded(tuple(records))

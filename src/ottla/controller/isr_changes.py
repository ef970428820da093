"""The leader of a partition asks for another ISR: whether it is still the leader, and who may be in sync, is judged here.

Both epochs must be those that the metadata has, so that of two leaders, and of two requests of one, only one changes anything. Each
member is registered, serves, is not stopping, is still the process that the leader has seen, and has its replica: one whose log
directory has failed was in sync when the leader last looked.
Source: KIP-497, KIP-841, KIP-903, KIP-966.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ottla.controller.decided import Recorded
from ottla.controller.partition_change import with_isr
from ottla.controller.topic_rules import TopicRules, has_directory
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage, PartitionImage


class WantedIsr(Struct, frozen=True):
    """``members`` are pairs of broker and broker epoch, -1 where the leader does not know it."""

    broker_id: int
    topic_id: bytes
    index: int
    leader_epoch: int
    partition_epoch: int
    members: Sequence[tuple[int, int]]
    is_recovering: bool = False


def alter_isr(image: ClusterImage, wanted: WantedIsr, *, rules: TopicRules) -> Recorded:
    """Returns the change; nothing to record where the ISR is so already. KafkaError with the code that the leader is answered."""
    name, partition = _find(image, wanted)
    _check_epochs(wanted, partition)
    _check_members(image, wanted, partition)
    isr = [node for node, _ in wanted.members]
    has_recovered = partition.is_recovering and not wanted.is_recovering
    record = with_isr(wanted.topic_id, wanted.index, partition, isr, rules.of(name, partition), has_recovered=has_recovered)
    return Recorded(() if record is None else (record,))


def _find(image: ClusterImage, wanted: WantedIsr) -> tuple[str, PartitionImage]:
    name = image.topic_names.get(wanted.topic_id)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = image.topics[name].partitions.get(wanted.index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has no partition {wanted.index}")
    return name, partition


def _check_epochs(wanted: WantedIsr, partition: PartitionImage) -> None:
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "the leader knows a newer epoch than this controller")
    if wanted.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {partition.leader_epoch}, not {wanted.leader_epoch}")
    if wanted.broker_id != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the leader is broker {partition.leader}, not {wanted.broker_id}")
    if wanted.partition_epoch < partition.partition_epoch:
        text = f"the partition epoch is {partition.partition_epoch}, not {wanted.partition_epoch}"
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)


def _check_members(image: ClusterImage, wanted: WantedIsr, partition: PartitionImage) -> None:
    nodes = [node for node, _ in wanted.members]
    if len(set(nodes)) != len(nodes) or not set(nodes) <= set(partition.replicas) or partition.leader not in nodes:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the ISR {nodes} is not of the replicas {list(partition.replicas)}, with the leader")
    if wanted.is_recovering and (len(nodes) > 1 or not partition.is_recovering):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a leader that recovers is in sync alone, and does not begin to recover by itself")
    for node, epoch in wanted.members:
        broker = image.brokers.get(node)
        if broker is None or broker.is_fenced or broker.in_controlled_shutdown or epoch not in (-1, broker.broker_epoch):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {node} of epoch {epoch} is not registered, or does not serve")
        if not has_directory(image, partition, node):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"the log directory of broker {node}'s replica has failed")

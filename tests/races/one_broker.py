"""One broker, a producer, and a second one that speaks for the same producer: what a coordinator or a zombie of it would send."""

from __future__ import annotations

from tests.broker.transactional import TransactionalProducer

from ottla.broker.parts import Parts
from ottla.broker.replicas.partition import Partition
from ottla.sim.cluster import SimBroker
from ottla.types import TopicPartition


def parts_of(broker: SimBroker) -> Parts:
    assert broker.broker is not None
    return broker.broker.parts


def partition_of(broker: SimBroker, key: TopicPartition) -> Partition:
    assert broker.broker is not None
    return broker.broker.partitions.by_name[key.topic][key.partition]


def twin_of(broker: SimBroker, producer: TransactionalProducer, name: str = "twin") -> TransactionalProducer:
    """The same producer on a connection of its own: the other one's may be held."""
    twin = TransactionalProducer(broker.client(name), producer.transactional_id, level=producer.level)
    twin.producer_id, twin.epoch = producer.producer_id, producer.epoch
    return twin


def nothing_is_open(broker: SimBroker, key: TopicPartition) -> bool:
    partition = partition_of(broker, key)
    return partition.last_stable_offset == partition.log.log_end_offset

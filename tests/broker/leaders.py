"""A broker beside another one that is in the image alone: partitions are given from one to the other, as a controller would."""

from __future__ import annotations

from ottla.controller.decided import Recorded
from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.image import BrokerImage, ClusterImage, EndpointImage
from ottla.sim.cluster import SimBroker
from ottla.types import NO_LEADER

OTHER = 42
OTHER_HOST, OTHER_PORT = "elsewhere", 9192
NOBODY = NO_LEADER


async def add_other(broker: SimBroker, *, is_fenced: bool = False, address: tuple[str, int] = (OTHER_HOST, OTHER_PORT)) -> None:
    """Broker ``OTHER`` is in the image, reached on the listener that the tests' clients use."""
    assert broker.broker is not None
    endpoints = {"PLAINTEXT": EndpointImage("PLAINTEXT", *address)}
    await broker.broker.controller.register_broker(BrokerImage(OTHER, 1000, endpoints, "rack-b", is_fenced=is_fenced))


async def give(broker: SimBroker, leader: int, topic: str = "t", index: int = 0) -> int:
    """The partition is led by ``leader``, and this broker has followed that; the leader epoch."""
    assert broker.broker is not None
    node_id = broker.broker.node_id
    replicas = [node_id, OTHER]

    def decide(image: ClusterImage) -> Recorded:
        topic_id = image.topics[topic].topic_id
        isr = replicas if leader == NOBODY else [leader]
        return Recorded((PartitionChangeRecord(index, topic_id, isr=isr, leader=leader, replicas=replicas),))

    [_] = await broker.broker.controller.decide([decide])
    return broker.broker.image.topics[topic].partitions[index].leader_epoch


async def give_all(broker: SimBroker, leader: int, count: int, topic: str = "t") -> None:
    """The first ``count`` partitions are led by ``leader``, by one image, and this broker has followed that."""
    assert broker.broker is not None
    replicas = [broker.broker.node_id, OTHER]

    def decide(image: ClusterImage) -> Recorded:
        topic_id = image.topics[topic].topic_id
        changes = (PartitionChangeRecord(index, topic_id, isr=[leader], leader=leader, replicas=replicas) for index in range(count))
        return Recorded(tuple(changes))

    await broker.broker.controller.decide([decide])


def own_id(broker: SimBroker) -> int:
    assert broker.broker is not None
    return broker.broker.node_id

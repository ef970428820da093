"""DescribeQuorum, versions 0-2: who holds the metadata log, and how far (KIP-595, KIP-836)."""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.broker.tasks.slices import Slices
from ottla.consensus.roles import Progress
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import Operation
from ottla.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionQuorum,
    ReplicaState,
    TopicQuorum,
)
from ottla.types import CLUSTER_METADATA_TOPIC


async def handle(parts: Parts, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    slices = Slices(parts.world.clock)
    topics = []
    unclean = parts.controller.unclean_election_count if request.asks_unclean_elections else 0
    async for topic in slices.over(request.topics):
        name = topic.topic_name
        partitions = [_quorum(parts, name, wanted.partition_index, unclean) async for wanted in slices.over(topic.partitions)]
        topics.append(TopicQuorum(name, partitions))
    return DescribeQuorumResponse(topics=topics, nodes=_nodes(parts))


def _nodes(parts: Parts) -> list[Node]:
    """Returns where the voters are; a lone broker's only voter is where the broker is, if it has no listener of its own."""
    if parts.home.voters:
        name = parts.controller_endpoints[0].listener
        return [Node(voter, [Listener(name, host, port)]) for voter, (host, port) in sorted(parts.home.voters.items())]
    own = parts.controller_endpoints or [end for _, end in sorted(parts.image.brokers[parts.node_id].endpoints.items())]
    return [Node(parts.node_id, [Listener(end.listener, end.host, end.port) for end in own])]


def _quorum(parts: Parts, topic: str, index: int, unclean: int) -> PartitionQuorum:
    if (topic, index) != (CLUSTER_METADATA_TOPIC, 0):
        return PartitionQuorum(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=None)
    quorum = parts.home.quorum
    assert quorum is not None, "a broker in ZooKeeper mode does not serve this"
    voters, observers = quorum.progress()
    now_ms, mono_ms = parts.world.clock.now_ms(), parts.world.clock.monotonic_ms()

    def state(replica_id: int, progress: Progress) -> ReplicaState:
        fetched, caught_up = (now_ms - (mono_ms - when) if when >= 0 else -1 for when in (progress.fetched_ms, progress.caught_up_ms))
        return ReplicaState(replica_id, progress.directory_id, progress.end_offset, fetched, caught_up)

    own = ReplicaState(parts.node_id, quorum.settings.fetched_directory_id, quorum.log.end_offset, now_ms, now_ms)
    return PartitionQuorum(
        index,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[own, *(state(voter, progress) for voter, progress in sorted(voters.items()))],
        observers=[state(replica_id, progress) for (replica_id, _), progress in sorted(observers.items())],
        unclean_election_count=unclean,
    )


SERVICE = service(DescribeQuorumRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True, needs=Operation.DESCRIBE)

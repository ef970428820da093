"""ElectLeaders, versions 0-2: preferred or unclean elections, one result for each partition (KIP-183, KIP-460).

Without partitions in the request, all are considered, and those that need no election are not listed. v1 knows unclean ones.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.broker.tasks.slices import Slices, drained
from ottla.controller.decided import Recorded
from ottla.controller.elections import ElectionType, elect_leader
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from ottla.metadata.image import ClusterImage


async def handle(parts: Parts, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.election_type not in ElectionType.__members__.values():
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    kind = ElectionType(request.election_type)
    slices = Slices(parts.world.clock)
    asks_for_all = request.topic_partitions is None
    if request.topic_partitions is None:
        wanted = [(name, index) for name, topic in sorted(parts.image.topics.items()) for index in sorted(topic.partitions)]
    else:
        asked = ((topic.topic, index) for topic in request.topic_partitions for index in topic.partitions)
        wanted = [pair async for pair in slices.over(asked)]
    outcomes = await parts.controller.decide(_election(parts, topic, index, kind) for topic, index in wanted)
    results: dict[str, ReplicaElectionResult] = {}
    async for (topic, index), outcome in slices.over(zip(wanted, drained(outcomes), strict=True)):
        result = PartitionResult(index, error_message=None)
        if isinstance(outcome, KafkaError):
            if asks_for_all and outcome.code == ErrorCode.ELECTION_NOT_NEEDED:
                continue
            result.error_code, result.error_message = outcome.code, outcome.message
        results.setdefault(topic, ReplicaElectionResult(topic)).partition_result.append(result)
    return ElectLeadersResponse(replica_election_results=list(results.values()))


def _election(parts: Parts, topic: str, index: int, kind: ElectionType) -> Callable[[ClusterImage], Recorded]:
    """Returns the election. A lone broker counts what it knows of its own replicas; in a cluster the image says whose are up."""
    offline = [parts.node_id] if not parts.home.voters and parts.partitions.is_offline(topic, index) else []
    rules = parts.controller.rules
    return lambda image: elect_leader(image, topic, index, kind, rules=rules(image), offline=offline)


def _refused(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """Returns the refusal; version 0 has a place for the code beside each partition alone."""
    results = [
        ReplicaElectionResult(topic.topic, [PartitionResult(index, code, None) for index in topic.partitions])
        for topic in request.topic_partitions or []
    ]
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


SERVICE = service(
    ElectLeadersRequest,
    handle,
    roles=BROKER_AND_CONTROLLER,
    is_forwarded=True,
    needs=Operation.ALTER,
    refused=_refused,
)

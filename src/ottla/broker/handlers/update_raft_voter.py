"""UpdateRaftVoter, version 0: a voter of Apache Kafka says where it is reached, once to each leader (KIP-853).

Voters are static here (``controller.quorum.voters`` says where they are): the leader knows all of it, and records nothing.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import CONTROLLER, service
from ottla.consensus.quorum import Quorum
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import Operation
from ottla.messages.update_raft_voter import CurrentLeader, UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.types import NO_LEADER


def handle(parts: Parts, context: RequestContext, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    quorum = parts.home.quorum
    assert quorum is not None, "a broker in ZooKeeper mode has no controllers' listener"
    host, port = parts.home.voters.get(quorum.leader_id, ("", 0))
    leader = None if quorum.leader_id == NO_LEADER else CurrentLeader(quorum.leader_id, quorum.epoch, host, port)
    return UpdateRaftVoterResponse(error_code=_refusal(parts, quorum, request), current_leader=leader)


def _refusal(parts: Parts, quorum: Quorum, request: UpdateRaftVoterRequest) -> ErrorCode:
    if request.cluster_id not in (None, parts.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.current_leader_epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.current_leader_epoch > quorum.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if quorum.leader_id != parts.node_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if request.voter_id not in quorum.settings.voters:
        return ErrorCode.VOTER_NOT_FOUND
    supported = request.k_raft_version_feature
    if not request.listeners or not supported.min_supported_version <= 0 <= supported.max_supported_version:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


SERVICE = service(UpdateRaftVoterRequest, handle, roles=CONTROLLER, needs=Operation.CLUSTER_ACTION)

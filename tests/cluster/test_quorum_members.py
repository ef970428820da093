"""What the leader of the metadata quorum tells of its members, and what it answers to a voter that says where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.processes import CLUSTER_ID, ClusterProcesses
from tests.foreign_clients.wire import RawClient
from tests.waiting import eventually

from ottla.errors import ErrorCode
from ottla.messages.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest, VoterEndpoint
from ottla.types import uuid_bytes


def directory_of(data: Path) -> bytes:
    lines = (data / "meta.properties").read_text().splitlines()
    return uuid_bytes(next(line.removeprefix("directory.id=") for line in lines if line.startswith("directory.id=")))


@pytest.mark.slow
def test_voters_and_observers_are_told_with_their_directories_and_a_voter_that_says_where_it_is_is_heard(tmp_path: Path) -> None:
    """kafka-metadata-quorum shows a directory id for each; Kafka's voters send UpdateRaftVoter to each new leader."""
    with ClusterProcesses(tmp_path) as cluster:
        cluster.add(4)
        found = eventually(lambda: cluster.quorum(4), lambda quorum: len(quorum.current_voters) == 3 and len(quorum.observers) == 1)
        told = {state.replica_id: state.replica_directory_id for state in (*found.current_voters, *found.observers)}
        assert told == {node: directory_of(process.data) for node, process in cluster.nodes.items()}

        leader, ports = found.leader_id, dict(entry.split("@") for entry in cluster.voters.split(","))
        other = next(node for node in (1, 2, 3) if node != leader)

        def update(asked: int, voter: int, *, epoch: int = found.leader_epoch, cluster_id: str | None = CLUSTER_ID, low: int = 0) -> Any:
            host, port = ports[str(asked)].split(":")
            request = UpdateRaftVoterRequest(
                cluster_id, epoch, voter, told[voter], [VoterEndpoint("CONTROLLER", "127.0.0.1", 9)], KRaftVersionFeature(low, 1)
            )
            with RawClient(int(port), host) as client:
                return client.ask(request, 0)

        heard = update(leader, other)
        assert (heard.error_code, heard.current_leader.leader_id) == (ErrorCode.NONE, leader)
        assert (heard.current_leader.host, heard.current_leader.port) == ("127.0.0.1", int(ports[str(leader)].split(":")[1]))
        assert update(other, other).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert update(leader, 4).error_code == ErrorCode.VOTER_NOT_FOUND
        assert update(leader, other, epoch=found.leader_epoch - 1).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert update(leader, other, epoch=found.leader_epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert update(leader, other, cluster_id="foreign").error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert update(leader, other, low=1).error_code == ErrorCode.INVALID_REQUEST

"""The values of the metadata log's control records: who leads, where a snapshot starts and ends, who votes (KIP-595, 630, 853)."""

from __future__ import annotations

from ottla.wire.schema import Stored, Struct, array, int16, int32, int64, string, struct, uint16, uuid


class LeaderChangeVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid(since=1)


class LeaderChangeMessage(Stored, api_key=-1, versions=(0, 1), flexible=0):
    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)


class SnapshotHeaderRecord(Stored, api_key=-1, versions=(0, 0), flexible=0):
    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Stored, api_key=-1, versions=(0, 0), flexible=0):
    version: int = int16()


class KRaftVersionRecord(Stored, api_key=-1, versions=(0, 0), flexible=0):
    version: int = int16()
    k_raft_version: int = int16()


class VoterEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class Voter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(Stored, api_key=-1, versions=(0, 0), flexible=0):
    version: int = int16()
    voters: list[Voter] = array(Voter)

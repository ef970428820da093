"""The values of the metadata log's control records: who leads, where a snapshot starts and ends (KIP-595, 630)."""

from __future__ import annotations

from ottla.wire.schema import Stored, Struct, array, int16, int32, int64, uuid


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

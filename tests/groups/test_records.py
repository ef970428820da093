"""The records of ``__consumer_offsets``, and a coordinator that is rebuilt from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.groups.coordinator_runner import SESSION_MS, Runner

from ottla.errors import DecodeError, ErrorCode
from ottla.groups.records import decode_record, encode_record
from ottla.machine import StoredRecord
from ottla.messages.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata, OffsetCommitKey, OffsetCommitValue
from ottla.wire.compiler import encode

COMMIT = StoredRecord(OffsetCommitKey("g", "t", 2), OffsetCommitValue(42, 7, "m", 1_000))
COMMIT_KEY = b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\2"


def test_an_offset_commit_has_type_1_in_its_key_and_version_3_in_its_value() -> None:
    key, value = encode_record(COMMIT)
    assert key == COMMIT_KEY
    assert value == b"\0\3" + (42).to_bytes(8, "big") + (7).to_bytes(4, "big") + b"\0\1m" + (1_000).to_bytes(8, "big")
    assert decode_record(key, value) == COMMIT


def test_group_metadata_has_type_2_in_its_key_and_version_3_in_its_value() -> None:
    member = MemberMetadata("m", "i", "c", "/h", 60_000, 10_000, b"sub", b"asg")
    record = StoredRecord(GroupMetadataKey("g"), GroupMetadataValue("consumer", 5, "range", "m", 1_000, [member]))
    key, value = encode_record(record)
    assert key == b"\0\2" + b"\0\1g"
    assert value is not None
    assert value[:2] == b"\0\3"
    assert decode_record(key, value) == record


def test_the_oldest_key_type_is_an_offset_commit_too() -> None:
    value = b"\0\0" + encode(OffsetCommitValue(42, metadata="m", commit_timestamp=1_000), 0)
    assert decode_record(b"\0\0" + COMMIT_KEY[2:], value) == StoredRecord(COMMIT.key, OffsetCommitValue(42, -1, "m", 1_000))


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_the_values_is_read(version: int) -> None:
    prefix = version.to_bytes(2, "big")
    commit = decode_record(COMMIT_KEY, prefix + encode(OffsetCommitValue(42, -1, "m", 1_000), version))
    assert commit == StoredRecord(COMMIT.key, OffsetCommitValue(42, -1, "m", 1_000))
    metadata = GroupMetadataValue("consumer", 5, "range", "m", -1, [MemberMetadata("m", None, "c", "/h", -1, 10_000, b"s", b"a")])
    assert decode_record(b"\0\2\0\1g", prefix + encode(metadata, version)) == StoredRecord(GroupMetadataKey("g"), metadata)


@pytest.mark.parametrize("record_type", [9, 17, -1, 32767])
def test_record_types_of_other_kinds_of_groups_are_skipped(record_type: int) -> None:
    assert decode_record(record_type.to_bytes(2, "big", signed=True) + b"whatever", b"\0\0") is None


@pytest.mark.parametrize("version", [5, -1])
def test_a_version_of_the_future_is_refused(version: int) -> None:
    with pytest.raises(DecodeError):
        decode_record(COMMIT_KEY, version.to_bytes(2, "big", signed=True) + b"\0" * 40)


@pytest.mark.parametrize("record", [COMMIT, StoredRecord(GroupMetadataKey("g"), None)])
def test_a_tombstone_keeps_its_key_and_has_no_value(record: StoredRecord) -> None:
    key, value = encode_record(StoredRecord(record.key, None))
    assert value is None
    assert decode_record(key, None) == StoredRecord(record.key, None)


@given(st.binary(max_size=40), st.none() | st.binary(max_size=80))
def test_damaged_bytes_are_a_decode_error_and_nothing_worse(key: bytes, value: bytes | None) -> None:
    try:
        decode_record(key, value)
    except DecodeError:
        pass


@given(st.sampled_from([b"\0\0", b"\0\1", b"\0\2"]), st.integers(0, 4), st.binary(max_size=80))
def test_damaged_values_are_a_decode_error_and_nothing_worse(record_type: bytes, version: int, body: bytes) -> None:
    key = record_type + (b"\0\1g" if record_type == b"\0\2" else COMMIT_KEY[2:])
    try:
        decode_record(key, version.to_bytes(2, "big") + body)
    except DecodeError:
        pass


def test_members_survive_a_restart_of_the_coordinator_and_have_a_fresh_session() -> None:
    runner = Runner()
    generation = runner.stable("a", "b", instances={"b": "i-b"})
    runner.advance(SESSION_MS - 1)
    runner.restart()
    described = runner.describe()
    assert (described.state, described.protocol_name) == ("Stable", "range")
    assert [(member.member_id, member.group_instance_id, member.assignment) for member in described.members] == [
        ("a", None, b"a"),
        ("b", "i-b", b"b"),
    ]
    runner.advance(SESSION_MS - 1)
    assert runner.heartbeat("a", generation) == ErrorCode.NONE
    runner.advance(1)
    assert runner.describe().members[0].member_id == "a"
    assert len(runner.describe().members) == 1


def test_after_a_restart_each_member_finds_its_assignment_again() -> None:
    runner = Runner()
    generation = runner.stable("a", "b")
    runner.restart()
    assert runner.synced(runner.sync("b", generation)).assignment == b"b"
    assert runner.joined(runner.join("b")).generation_id == generation


def test_a_restart_in_the_middle_of_a_rebalance_goes_back_to_the_generation_before() -> None:
    runner = Runner()
    generation = runner.stable("a")
    runner.join(fresh="b")
    runner.join("a")
    assert runner.state() == "CompletingRebalance"
    runner.restart()
    assert runner.state() == "Stable"
    assert runner.heartbeat("a", generation) == ErrorCode.NONE
    assert runner.heartbeat("a", generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert runner.heartbeat("b", generation + 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_snapshot_holds_what_the_log_holds() -> None:
    runner = Runner()
    generation = runner.stable("a", "b")
    runner.commit({("orders", 0): 1}, member_id="a", generation_id=generation)
    runner.commit({("orders", 0): 9}, group="simple")
    runner.join("a")
    before = [encode_record(record) for record in runner.machine.snapshot()]
    runner.log = before
    runner.restart()
    assert [encode_record(record) for record in runner.machine.snapshot()] == before
    assert len(before) == 3

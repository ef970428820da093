"""The records of consumer groups are those that Kafka 4.3.0's own classes write (``golden``), and older ones are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.groups.consumer.group import ConsumerGroup, ResolvedRegex
from ottla.groups.consumer.member import ConsumerMember, MemberState
from ottla.groups.records import decode_record, encode_record
from ottla.machine import StoredRecord
from ottla.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    PartitionRacks,
    SubscribedTopicMetadata,
)

_LINES = (Path(__file__).parent / "golden" / "consumer_records_kafka_4_3.tsv").read_text().splitlines()
GOLDEN = {name: (bytes.fromhex(key), bytes.fromhex(value)) for name, key, value in (line.split("\t") for line in _LINES)}
TOPIC = bytes(range(1, 17))
AT_MS = 1_700_000_000_000
GROUP = ConsumerGroup("g")
MEMBER = ConsumerMember(
    "m", "i", "r", "c", "/127.0.0.1", ("orders", "payments"), "o.*", 30_000, "range",
    epoch=6, previous_epoch=5, state=MemberState.UNREVOKED_PARTITIONS, assigned={TOPIC: {0: 4, 2: 6}}, revoking={TOPIC: {5: 4}},
)  # fmt: skip
CLASSIC = ConsumerMember(
    "m", "", "", "c", "/h", ("orders",), "", 30_000, "",
    classic=ClassicMemberMetadata(45_000, [ClassicProtocol("range", b"\1\2")]),
)  # fmt: skip
RACKS = SubscribedTopicMetadata(TOPIC, "orders", 6, [PartitionRacks(1, ["r"])])

OURS = {
    "metadata": GROUP.epoch_record(7, -5),
    "metadata-of-4.0": GROUP.epoch_record(7, 0),
    "partition-metadata": StoredRecord(ConsumerGroupPartitionMetadataKey("g"), ConsumerGroupPartitionMetadataValue([RACKS])),
    "member": MEMBER.metadata_record("g"),
    "classic-member": CLASSIC.metadata_record("g"),
    "target": GROUP.target_epoch_record(7, AT_MS),
    "target-of-4.2": GROUP.target_epoch_record(7, 0),
    "target-of-a-member": GROUP.target_record("m", {TOPIC: frozenset({2, 0})}),
    "current": MEMBER.current_record("g"),
    "regex": GROUP.regex_record("o.*", ResolvedRegex(frozenset({"orders"}), 42, AT_MS)),
}


@pytest.mark.parametrize("name", OURS)
def test_records_are_kafkas_byte_for_byte(name: str) -> None:
    assert encode_record(OURS[name]) == GOLDEN[name]
    assert decode_record(*GOLDEN[name]) == OURS[name]


def test_every_vector_is_looked_at() -> None:
    assert GOLDEN.keys() - OURS.keys() == {"current-of-4.2"}


def test_partitions_of_before_assignment_epochs_were_assigned_in_the_members_epoch() -> None:
    group = replayed("member", "current-of-4.2")
    assert group.members["m"].assigned == {TOPIC: {0: 6, 2: 6}}
    assert group.owners == {(TOPIC, 0): "m", (TOPIC, 2): "m"}


def test_a_group_is_what_its_records_say() -> None:
    group = replayed("metadata", "member", "target", "target-of-a-member", "current", "regex", "partition-metadata")
    assert (group.epoch, group.metadata_hash, group.target_epoch, group.target_timestamp_ms) == (7, -5, 7, AT_MS)
    assert group.members == {"m": MEMBER}
    assert group.static_members == {"i": "m"}
    assert group.targets == {"m": {TOPIC: frozenset({0, 2})}}
    assert group.regexes["o.*"].topics == {"orders"}
    assert group.has_partition_metadata


def test_a_state_that_came_later_is_reconciled_again() -> None:
    key, value = GOLDEN["current"]
    at = 2 + 8  # after the version and the two epochs
    record = decode_record(key, value[:at] + bytes([100]) + value[at + 1 :])
    assert record is not None
    group = ConsumerGroup("g")
    group.apply(record.key, record.value)  # type: ignore[arg-type]
    assert group.members["m"].state is MemberState.UNRELEASED_PARTITIONS


@pytest.mark.parametrize("name", GOLDEN)
def test_a_tombstone_of_what_is_not_known_is_nothing(name: str) -> None:
    record = decode_record(GOLDEN[name][0], None)
    assert record is not None
    assert record.value is None


def replayed(*names: str) -> ConsumerGroup:
    group = ConsumerGroup("g")
    for name in names:
        record = decode_record(*GOLDEN[name])
        assert record is not None
        assert record.key is not None
        group.apply(record.key, record.value)
    return group

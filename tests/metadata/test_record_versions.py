"""Records are written in the versions of the cluster's metadata.version, and every node has what whoever reads them has."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metadata.test_replay import histories

from ottla.broker.metadata.log import encoded_groups
from ottla.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla.metadata.image import EMPTY_IMAGE
from ottla.metadata.record_versions import METADATA_VERSION, NEWEST, version_at, written_at
from ottla.metadata.records import decode_record, encode_record
from ottla.metadata.replay import replay
from ottla.metadata.transactions import Transactions
from ottla.records.batch import iterate_batches
from ottla.records.iteration import iterate_records
from ottla.wire.schema import Stored


@pytest.mark.parametrize(
    ("level", "register", "change", "partition"),
    [(7, 1, 1, 0), (8, 2, 1, 0), (16, 2, 1, 0), (17, 3, 2, 1), (21, 3, 2, 1), (22, 3, 2, 1), (23, 3, 2, 2), (29, 3, 2, 2), (30, 4, 3, 2)],
)
def test_the_versions_are_those_that_kafka_writes_at_the_level(level: int, register: int, change: int, partition: int) -> None:
    assert version_at(RegisterBrokerRecord, level) == register
    assert version_at(BrokerRegistrationChangeRecord, level) == change
    assert version_at(PartitionRecord, level) == version_at(PartitionChangeRecord, level) == partition
    assert version_at(TopicRecord, level) == 0
    assert encode_record(PartitionRecord(0, bytes(16)), level)[2] == partition


@given(histories(), st.integers(7, NEWEST))
def test_what_is_read_is_what_was_decided_as_it_is_written(records: list[Stored], level: int) -> None:
    records = [record for record in records if not isinstance(record, FeatureLevelRecord)]
    kept = written_at(records, level)
    read = [decode_record(encode_record(record, level)) for record in records]
    assert read == list(kept)
    assert replay(EMPTY_IMAGE, read) == replay(EMPTY_IMAGE, kept)


def batches_of(groups: list[list[Stored]], level: int) -> list[list[bytes]]:
    async def main() -> list[bytearray]:
        return [batch async for batch in encoded_groups(groups, 0, level)]

    data = asyncio.run(main())
    return [[record.value or b"" for record in iterate_records(batch, 0)] for batch in data for _ in iterate_batches(batch)]


def test_records_after_a_change_of_level_are_written_at_the_new_level() -> None:
    partition = PartitionRecord(0, bytes(16), directories=[b"d" * 16])
    groups: list[list[Stored]] = [[partition], [FeatureLevelRecord(METADATA_VERSION, 17), partition], [partition]]
    [values] = batches_of(groups, 7)
    assert [value[2] for value in values] == [0, 0, 1, 1]
    kept = written_at([*groups[0], *groups[1]], 7)
    assert [record.directories for record in kept if isinstance(record, PartitionRecord)] == [[], [b"d" * 16]]


@pytest.mark.parametrize(("level", "is_framed"), [(12, False), (13, True)])
def test_a_large_group_is_one_batch_where_brokers_know_no_transactions(level: int, is_framed: bool) -> None:
    group: list[Stored] = [TopicRecord(f"t-{number}", number.to_bytes(16, "big")) for number in range(5000)]
    batches = batches_of([group], level)
    assert len(batches) == (5 if is_framed else 1)
    assert Transactions().counting(decode_record(value) for batch in batches for value in batch) == group

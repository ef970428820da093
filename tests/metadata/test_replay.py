"""Records to image and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import DecodeError
from ottla.messages.metadata_records import (
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from ottla.metadata.image import EMPTY_IMAGE, RESOURCE_TOPIC
from ottla.metadata.records import TYPES, decode_record, encode_record
from ottla.metadata.replay import ImageBuilder, replay, snapshot_records
from ottla.wire.schema import Stored

ID = bytes(range(16))


def topic_records(name: str = "orders", topic_id: bytes = ID, partitions: int = 2) -> list[Stored]:
    made = [PartitionRecord(index, topic_id, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0) for index in range(partitions)]
    return [TopicRecord(name, topic_id), *made]


def test_a_topic_and_its_partitions_are_in_the_image() -> None:
    image = replay(EMPTY_IMAGE, topic_records())
    assert image.topic_names[ID] == "orders"
    assert sorted(image.topics["orders"].partitions) == [0, 1]
    assert image.topics["orders"].partitions[0].leader == 1


FRAMING = {BeginTransactionRecord, EndTransactionRecord}  # the reader of a log takes them out


@pytest.mark.parametrize("cls", sorted(set(TYPES.values()) - FRAMING, key=str))
def test_replay_knows_every_record_that_is_declared(cls: type[Stored]) -> None:
    assert "replay knows every metadata record" not in refusal_of(cls())


def refusal_of(record: Stored) -> str:
    """Why the empty image does not take the record: most of them change something that is not in it."""
    try:
        ImageBuilder(EMPTY_IMAGE).add(record)
    except (AssertionError, KeyError) as error:
        return str(error)
    return ""


def test_a_removed_topic_leaves_no_state() -> None:
    image = replay(EMPTY_IMAGE, [*topic_records(), ConfigRecord(RESOURCE_TOPIC, "orders", "segment.bytes", "2048")])
    assert image.topic_configs("orders") == {"segment.bytes": "2048"}
    image = replay(image, [RemoveTopicRecord(ID)])
    assert image == EMPTY_IMAGE


def test_an_image_does_not_change_when_another_is_made_of_it() -> None:
    before = replay(EMPTY_IMAGE, topic_records())
    replay(before, [RemoveTopicRecord(ID), *topic_records("payments", bytes(15) + b"\1")])
    assert list(before.topics) == ["orders"]
    assert len(before.topics["orders"].partitions) == 2


def test_a_builder_never_changes_an_image_that_it_gave_away() -> None:
    builder = ImageBuilder(EMPTY_IMAGE)
    images = []
    groups: list[list[Stored]] = [
        topic_records("a.b"),
        [ConfigRecord(RESOURCE_TOPIC, "a.b", "segment.bytes", "2048"), PartitionChangeRecord(0, ID, isr=[2], leader=2)],
        [PartitionRecord(2, ID, [1], [1], leader=1, leader_epoch=0, partition_epoch=0), PartitionChangeRecord(0, ID, isr=[2])],
        [RemoveTopicRecord(ID), *topic_records("a.b", bytes(15) + b"\1", 1), ProducerIdsRecord(1, -1, 1000)],
    ]
    for group in groups:
        for record in group:
            builder.add(record)
        images.append(builder.image())
    expected = EMPTY_IMAGE
    for group, image in zip(groups, images, strict=True):
        expected = replay(expected, group)
        assert image == expected
    assert images[0].metric_names == {"a_b": "a.b"}


def test_a_new_leader_raises_the_leader_epoch_and_every_change_the_partition_epoch() -> None:
    image = replay(EMPTY_IMAGE, topic_records())
    image = replay(image, [PartitionChangeRecord(0, ID, isr=[2], leader=2), PartitionChangeRecord(1, ID, isr=[1])])
    changed, kept = image.topics["orders"].partitions[0], image.topics["orders"].partitions[1]
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch, changed.isr) == (2, 1, 1, (2,))
    assert (kept.leader, kept.leader_epoch, kept.partition_epoch, kept.isr) == (1, 0, 1, (1,))


def test_a_leader_outside_the_isr_is_our_own_mistake() -> None:
    image = replay(EMPTY_IMAGE, topic_records())
    with pytest.raises(AssertionError, match="the leader is in the ISR"):
        replay(image, [PartitionChangeRecord(0, ID, isr=[2])])


def test_producer_ids_are_never_handed_out_twice() -> None:
    image = replay(EMPTY_IMAGE, [ProducerIdsRecord(1, -1, 1000)])
    with pytest.raises(AssertionError, match="handed out once"):
        replay(image, [ProducerIdsRecord(1, -1, 500)])


def test_a_change_for_another_process_of_the_same_id_is_our_own_mistake() -> None:
    image = replay(EMPTY_IMAGE, [RegisterBrokerRecord(1, broker_epoch=3)])
    for record in (FenceBrokerRecord(1, 2), UnfenceBrokerRecord(1, 4), UnregisterBrokerRecord(1, 2), BrokerRegistrationChangeRecord(1, 2)):
        with pytest.raises(AssertionError, match="the epoch of the broker's registration"):
            replay(image, [record])


names = st.text("abcdefgh", min_size=1, max_size=4)


ids = st.binary(min_size=16, max_size=16)


@st.composite
def memberships(draw: st.DrawFn) -> list[Stored]:
    """Brokers and controllers come, change and go."""
    levels = [BrokerFeature("metadata.version", 7, draw(st.integers(7, 30)))]
    end = BrokerEndpoint("PLAINTEXT", "h", 9092, draw(st.integers(0, 3)))
    records: list[Stored] = []
    for broker in (1, 2):
        directories = draw(st.lists(ids, max_size=2))
        rack = draw(st.none() | names)
        records.append(RegisterBrokerRecord(broker, False, draw(ids), 3, [end], levels, rack, draw(st.booleans()), False, directories))
        for _ in range(draw(st.integers(0, 3))):
            change = BrokerRegistrationChangeRecord(broker, 3, draw(st.sampled_from([-1, 0, 1])), draw(st.integers(0, 1)))
            change.log_dirs, change.cordoned_log_dirs = draw(st.lists(ids, max_size=2)), draw(st.none() | st.lists(ids, max_size=2))
            records.append(draw(st.sampled_from([change, FenceBrokerRecord(broker, 3), UnfenceBrokerRecord(broker, 3)])))
    if draw(st.booleans()):
        records.append(UnregisterBrokerRecord(2, 3))
    controller_end = ControllerEndpoint("CONTROLLER", "h", 9093, 0)
    records.append(RegisterControllerRecord(3, draw(ids), False, [controller_end], [ControllerFeature("metadata.version", 7, 30)]))
    return records


@st.composite
def changes(draw: st.DrawFn, topic_id: bytes) -> Stored:
    """A change of partition 0 of a topic whose replicas are 1 and 2, and whose leader is 1 or nobody."""
    replicas = draw(st.none() | st.just([1, 2, 3]))
    is_reassigned = replicas is not None
    return PartitionChangeRecord(
        0,
        topic_id,
        isr=[1],
        leader=draw(st.sampled_from([-2, -1, 1])),
        replicas=replicas,
        adding_replicas=[3] if is_reassigned else None,
        removing_replicas=[1] if is_reassigned else None,
        leader_recovery_state=draw(st.sampled_from([-1, 0, 1])),
        directories=draw(st.none() | st.lists(ids, min_size=2, max_size=2)),
        eligible_leader_replicas=draw(st.none() | st.just([2])),
        last_known_elr=draw(st.none() | st.just([1])),
    )


@st.composite
def secrets(draw: st.DrawFn) -> list[Stored]:
    """Credentials, ACLs and delegation tokens, of which some are removed again."""
    records: list[Stored] = []
    for name in draw(st.lists(names, unique=True, max_size=3)):
        records.append(UserScramCredentialRecord(name, draw(st.integers(1, 2)), b"salt", draw(st.binary(max_size=9)), b"server", 4096))
        records.append(AccessControlEntryRecord(draw(ids), 2, name, 3, f"User:{name}", "*", 3, 3))
        records.append(DelegationTokenRecord(f"User:{name}", "User:r", ["User:o"], 1, 3, 2, name))
        if draw(st.booleans()):
            records.append(RemoveUserScramCredentialRecord(name, 1))
            records.append(RemoveDelegationTokenRecord(name))
            records.append(RemoveAccessControlEntryRecord(draw(ids)))
    return records


@st.composite
def histories(draw: st.DrawFn) -> list[Stored]:
    """Groups of records that fit together."""
    records: list[Stored] = draw(memberships())
    for index, name in enumerate(draw(st.lists(names, unique=True, max_size=5))):
        records += topic_records(name, bytes(15) + bytes([index + 1]), draw(st.integers(1, 3)))
        for key in draw(st.lists(st.sampled_from(["a", "b"]), unique=True)):
            records.append(ConfigRecord(RESOURCE_TOPIC, name, key, draw(names)))
        records += draw(st.lists(changes(bytes(15) + bytes([index + 1])), max_size=3))
        if draw(st.booleans()):
            records.append(ClearElrRecord(name))
        if draw(st.booleans()):
            records.append(RemoveTopicRecord(bytes(15) + bytes([index + 1])))
    if draw(st.booleans()):
        records.append(FeatureLevelRecord("metadata.version", draw(st.integers(1, 30))))
    for kind in draw(st.lists(st.sampled_from(["user", "client-id"]), unique=True)):
        entity = [QuotaEntity(kind, draw(st.none() | names))]
        records.append(ClientQuotaRecord(entity, "producer_byte_rate", draw(st.floats(1, 1e9)), False))
        records.append(ClientQuotaRecord(entity, "request_percentage", 1.0, draw(st.booleans())))
    records += draw(secrets())
    if draw(st.booleans()):
        records.append(ProducerIdsRecord(1, -1, draw(st.integers(1, 2**40))))
    return records


@given(histories())
def test_a_snapshot_replayed_over_nothing_gives_the_same_image(records: list[Stored]) -> None:
    image = replay(EMPTY_IMAGE, records)
    assert replay(EMPTY_IMAGE, snapshot_records(image)) == image


@given(histories())
def test_a_record_survives_its_bytes(records: list[Stored]) -> None:
    assert [decode_record(encode_record(record)) for record in records] == records


@given(st.binary(max_size=60))
def test_only_decode_errors_escape_from_random_bytes(data: bytes) -> None:
    try:
        decode_record(data)
    except DecodeError:
        pass


@pytest.mark.parametrize("data", [b"", b"\1", b"\2\2\0", b"\1\x7f\0", b"\1\2\x09"])
def test_an_unknown_frame_type_or_version_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(data)

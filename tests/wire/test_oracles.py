"""Our bytes are those of two other implementations: what they decode, they encode to the same bytes.

Names and order of the fields are compared in ``test_declarations``; here it is the encoding that is compared.
"""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.api_message import ApiMessage
from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from tests.wire.strategies import CLASSES, CLASSES_AND_VERSIONS, messages, name_of, one_in
from tests.wire.test_declarations import KIO_HAS

from ottla.messages import consumer_group_records
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.broker_registration import BrokerRegistrationRequest
from ottla.messages.consumer_protocol import StickyUserData
from ottla.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.messages.envelope import EnvelopeResponse
from ottla.messages.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from ottla.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
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
    ZkMigrationStateRecord,
)
from ottla.messages.transaction_records import TransactionLogKey, TransactionLogValue
from ottla.wire.compiler import decode, encode
from ottla.wire.schema import ZERO_UUID, Message, Request, Response

KAFKA_PYTHON: dict[str, Any] = {
    name: value
    for package in (admin, consumer, metadata, producer, sasl)
    for name, value in vars(package).items()
    if isinstance(value, type) and issubclass(value, ApiMessage)
}
WITH_KAFKA_PYTHON = [
    (cls, version)
    for cls, version in CLASSES_AND_VERSIONS
    if cls.__name__ in KAFKA_PYTHON and version <= KAFKA_PYTHON[cls.__name__].max_version
]


def kio_entity(cls: type[Message], version: int) -> tuple[str, int, Any]:
    """By which name, version and type kio's index has the class."""
    kind: Any = EntityType.request if issubclass(cls, Request) else EntityType.response if issubclass(cls, Response) else EntityType.data
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", re.sub("(Request|Response)$", "", cls.__name__)).lower()
    return name, version, kind


def kio_has(cls: type[Message], version: int) -> bool:
    """The index says it: its 500 modules are loaded by the tests that need them, not by each process that collects tests."""
    name, version, kind = kio_entity(cls, version)
    return kind in schema_name_map.get(name, {}).get(version, {})


WITH_KIO = [(cls, version) for cls, version in CLASSES_AND_VERSIONS if kio_has(cls, version)]


def test_every_message_but_the_records_of_internal_topics_is_compared() -> None:
    exchanged = {cls for cls in CLASSES if issubclass(cls, Request | Response)}
    assert {cls.__name__ for cls in exchanged - {cls for cls, _ in WITH_KAFKA_PYTHON}} == {
        f"{name}{kind}" for name in KIO_HAS for kind in ("Request", "Response")
    }
    assert exchanged <= {cls for cls, _ in WITH_KAFKA_PYTHON + WITH_KIO}
    only_ours = set(CLASSES_AND_VERSIONS) - set(WITH_KIO)
    assert {cls for cls, _ in only_ours} == {
        *(OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue, StickyUserData),
        *(TransactionLogKey, TransactionLogValue),
        *(found for found in vars(consumer_group_records).values() if found in CLASSES),
        *(TopicRecord, PartitionRecord, PartitionChangeRecord, RemoveTopicRecord, ConfigRecord),
        *(RegisterBrokerRecord, FeatureLevelRecord, ProducerIdsRecord, ClientQuotaRecord, NoOpRecord),
        *(BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord),
        *(UnregisterBrokerRecord, FenceBrokerRecord, UnfenceBrokerRecord, BrokerRegistrationChangeRecord),
        *(RegisterControllerRecord, ClearElrRecord, ZkMigrationStateRecord),
        *(UserScramCredentialRecord, RemoveUserScramCredentialRecord, AccessControlEntryRecord, RemoveAccessControlEntryRecord),
        *(DelegationTokenRecord, RemoveDelegationTokenRecord),
    }


@pytest.mark.parametrize(("cls", "version"), WITH_KAFKA_PYTHON, ids=name_of)
@one_in(16)
@given(data=st.data())
def test_kafka_python_reads_our_bytes_and_writes_the_same(cls: type[Message], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version))
    if isinstance(message, ApiVersionsResponse):
        message.error_code = 0  # with an error kafka-python reads version 0, whatever it is told
    _without_own(message)
    wire = encode(message, version)
    theirs = KAFKA_PYTHON[cls.__name__].decode(wire, version=version)
    theirs.with_header()  # it cannot encode without one, and leaves it out
    assert theirs.encode() == wire


def _without_own(message: Message) -> None:
    """Neither of them writes a tag that it does not know, as these of ottla's own."""
    if isinstance(message, EnvelopeResponse):
        message.metadata_end_offset = -1
    elif isinstance(message, BrokerRegistrationRequest):
        message.previous_incarnations = []
    elif isinstance(message, ApiVersionsRequest):
        message.asks_incarnation, message.node_id = False, -1
    elif isinstance(message, ApiVersionsResponse):
        message.incarnation_id = ZERO_UUID
    elif isinstance(message, DescribeQuorumRequest):
        message.asks_unclean_elections = False
    elif isinstance(message, DescribeQuorumResponse):
        for topic in message.topics:
            for partition in topic.partitions:
                partition.unclean_election_count = 0


@pytest.mark.parametrize(("cls", "version"), WITH_KIO, ids=name_of)
@one_in(16)
@given(data=st.data())
def test_kio_reads_our_bytes_and_writes_the_same(cls: type[Message], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version, narrow=True))
    _without_own(message)
    wire = encode(message, version)
    kio = load_entity_schema(*kio_entity(cls, version))
    theirs, size = entity_reader(kio)(wire, 0)
    assert size == len(wire)
    buffer = io.BytesIO()
    entity_writer(kio)(buffer, theirs)
    assert decode(cls, version, buffer.getvalue()) == message
    assert buffer.getvalue() == wire

"""Thousands that come and go, each of them honest: what a broker keeps of one that has gone would fill its memory in the end.

The objects of this process are counted, which has the broker in a thread, after as many rounds as its caches need, and after more.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType
from typing import Any, Final

import pytest
from tests.foreign_clients.wire import RawClient, batch_of, produce_request
from tests.waiting import eventually

from ottla.errors import ErrorCode
from ottla.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.delete_groups import DeleteGroupsRequest
from ottla.messages.delete_topics import DeleteTopicsRequest
from ottla.messages.end_txn import EndTxnRequest
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.messages.leave_group import LeaveGroupRequest
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.replication import purgatory
from ottla.runtime.serve import BrokerThread

ROUNDS: Final = 60
WAIT_MS_MAX: Final = 2**31 - 1
"""As long as a client may say that something waits for it."""
SESSION_MS_MAX: Final = 1_800_000
TOPIC: Final = "kept"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path_factory.mktemp("logs")), "num.partitions": "1"}
    properties |= {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    properties |= {"group.initial.rebalance.delay.ms": "0"}
    with BrokerThread(properties) as broker:
        [(_, found)] = broker.addresses.values()
        with RawClient(found) as client:
            make(client, TOPIC)
            for coordinator in (FindCoordinatorRequest("any", 0), FindCoordinatorRequest("any", 1)):
                eventually(partial(client.ask, coordinator, 3), lambda found: not found.error_code)
        yield found


def make(client: RawClient, topic: str) -> None:
    [made] = client.ask(CreateTopicsRequest([CreatableTopic(topic, 1, 1)]), 5).topics
    assert made.error_code == ErrorCode.NONE


def connections(port: int, number: int) -> None:
    with RawClient(port) as client:
        client.ask(ApiVersionsRequest(), 0)


def fetches_that_wait(port: int, number: int) -> None:
    """Their connections end before they are answered."""
    partition = FetchPartition(fetch_offset=0)
    with RawClient(port) as client:
        client.send(FetchRequest(max_wait_ms=WAIT_MS_MAX, min_bytes=WAIT_MS_MAX, topics=[FetchTopic(TOPIC, partitions=[partition])]), 4)


def topics(port: int, number: int) -> None:
    with RawClient(port) as client:
        make(client, f"topic-{number}")
        client.ask(produce_request(f"topic-{number}", batch_of(b"v")), 7)
        [deleted] = client.ask(DeleteTopicsRequest(topic_names=[f"topic-{number}"]), 4).responses
        assert deleted.error_code == ErrorCode.NONE


def unknown_topics(port: int, number: int) -> None:
    with RawClient(port) as client:
        client.ask(MetadataRequest([MetadataRequestTopic(name=f"unknown-{number}")], allow_auto_topic_creation=False), 4)
        client.ask(produce_request(f"unknown-{number}", batch_of(b"v")), 7)


def configurations(port: int, number: int) -> None:
    with RawClient(port) as client:
        change = AlterableConfig("retention.ms", 0, str(100_000 + number))
        client.ask(IncrementalAlterConfigsRequest([AlterConfigsResource(2, TOPIC, [change])]), 0)


def producers(port: int, number: int) -> None:
    with RawClient(port) as client:
        client.ask(InitProducerIdRequest(None, 1000), 3)


def transactions(port: int, number: int) -> None:
    with RawClient(port) as client:
        found = client.ask(InitProducerIdRequest("id", SESSION_MS_MAX // 2), 3)
        producer, epoch = found.producer_id, found.producer_epoch
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id", v3_and_below_producer_id=producer, v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(TOPIC, [0])],
        )  # fmt: skip
        client.ask(added, 3)
        ended = EndTxnRequest("id", producer, epoch, committed=number % 2 == 0)
        assert client.ask(ended, 3).error_code == ErrorCode.NONE


def members(port: int, number: int) -> None:
    """Of one group."""
    with RawClient(port) as client:
        protocols = [JoinGroupRequestProtocol("range", b"")]
        joined = client.ask(JoinGroupRequest("classic", SESSION_MS_MAX, WAIT_MS_MAX, "", None, "consumer", protocols), 3)
        client.ask(LeaveGroupRequest("classic", joined.member_id), 2)


def ids_of_members(port: int, number: int) -> None:
    """They leave before they have joined."""
    with RawClient(port) as client:
        protocols = [JoinGroupRequestProtocol("range", b"")]
        named = client.ask(JoinGroupRequest("classic", SESSION_MS_MAX, WAIT_MS_MAX, "", None, "consumer", protocols), 4)
        client.ask(LeaveGroupRequest("classic", named.member_id), 2)


def consumers(port: int, number: int) -> None:
    """Members of the consumer protocol, of one group."""
    with RawClient(port) as client:
        fields: dict[str, Any] = {"rebalance_timeout_ms": WAIT_MS_MAX, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
        assert client.ask(ConsumerGroupHeartbeatRequest("new", f"m{number}", 0, **fields), 1).error_code == ErrorCode.NONE
        assert client.ask(ConsumerGroupHeartbeatRequest("new", f"m{number}", -1), 1).error_code == ErrorCode.NONE


def groups(port: int, number: int) -> None:
    with RawClient(port) as client:
        offsets = [OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, 1)])]
        client.ask(OffsetCommitRequest(f"group-{number}", topics=offsets), 7)
        client.ask(DeleteGroupsRequest([f"group-{number}"]), 1)


COMING: Final[tuple[Callable[[int, int], None], ...]] = (
    connections, fetches_that_wait, topics, unknown_topics, configurations, producers, transactions, members, ids_of_members, consumers,
    groups,
)  # fmt: skip


def objects() -> int:
    """Of ottla's own types, and functions: other threads of this process make others."""
    gc.collect()
    kinds = (found if isinstance(found, FunctionType) else type(found) for found in gc.get_objects())
    return sum(str(kind.__module__).startswith("ottla.") for kind in kinds)


@pytest.mark.parametrize("come", COMING, ids=lambda come: come.__name__)
def test_nothing_is_left_of_those_that_have_gone(come: Callable[[int, int], None], port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purgatory, "HUSKS_MAX", 0)
    numbers = iter(range(2 * ROUNDS))
    for _ in range(ROUNDS):
        come(port, next(numbers))
    before = objects()
    for number in numbers:
        come(port, number)
    eventually(lambda: objects() - before, lambda left: left < ROUNDS)

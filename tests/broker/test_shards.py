"""Coordinators and their log: decisions larger than a batch, decisions that the log refuses. In the simulated world."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.quiet import silence

from ottla.broker.coordinators import batches
from ottla.broker.coordinators import shard as shards
from ottla.broker.coordinators.groups import GroupShards
from ottla.broker.coordinators.runtime import partition_of
from ottla.broker.coordinators.shard import Shard
from ottla.broker.node import Broker
from ottla.broker.replicas.partition import Partition
from ottla.broker.tasks import eager
from ottla.client.admin import Admin, NewTopic, Topic, TransactionDescription
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import CommitOffsets, ListGroups, OffsetToCommit
from ottla.groups.records import encode_record
from ottla.machine import Command, Decision, StoredRecord, Timer
from ottla.messages.group_records import OffsetCommitKey, OffsetCommitValue
from ottla.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.records.builder import BatchBuilder
from ottla.records.control import build_end_marker
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.disk import VOLUME_BYTES
from ottla.sim.loop import run
from ottla.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition

Act = Callable[[SimBroker, Admin], Awaitable[None]]
PARTITIONS = 60
BATCH_BYTES = 1000
"""What a batch of the coordinator may have: about 20 offsets."""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def play(act: Act, **properties: str) -> None:
    fixed = {"offsets.topic.num.partitions": "1"}
    broker = SimBroker(Simulation(1), fixed | {name.replace("_", "."): value for name, value in properties.items()})

    async def main() -> None:
        await broker.start()
        admin = Admin(broker.client("admin"))
        await admin.create_topics([NewTopic("t", PARTITIONS)])
        for part in (range(30), range(30, PARTITIONS)):  # before the limit is lowered
            assert set(await commit(admin, part)) == {0}
        await limit_batches(admin, BATCH_BYTES)
        await act(broker, admin)
        await admin.close()

    run(main())


async def commit(admin: Admin, partitions: range, group_id: str = "g") -> list[int]:
    """The error code of each partition."""
    offsets = [OffsetCommitRequestPartition(index, 7) for index in partitions]
    topic_id = (await admin.describe_topic("t")).topic_id
    request = OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitRequestTopic("t", topic_id, offsets)])
    answer = await admin._cluster.ask(await admin._coordinator(group_id), request, OffsetCommitResponse)
    return [result.error_code for topic in answer.topics for result in topic.partitions]


async def limit_batches(admin: Admin, size: int) -> None:
    await admin.replace_configs(Topic(GROUP_METADATA_TOPIC), {"cleanup.policy": "compact", "max.message.bytes": str(size)})


def broker_of(broker: SimBroker) -> Broker:
    assert broker.broker is not None
    return broker.broker


def groups_of(broker: SimBroker) -> GroupShards:
    assert broker.broker is not None
    return broker.broker.groups


def parked_count(broker: SimBroker) -> int:
    return sum(shard.parked_count for shard in groups_of(broker)._shards.values())


def test_offsets_of_a_deleted_topic_go_however_many_they_are() -> None:
    """Kafka writes these tombstones in as many batches as it takes."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        assert await admin.delete_topics(["t"]) == {"t": None}
        assert await admin.committed_offsets("g") == {}
        await broker.stop()
        await broker.start()
        assert await admin.committed_offsets("g") == {}

    play(act)


def test_a_topic_is_deleted_though_no_log_of_offsets_takes_anything() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        for group_id in "abcdefgh":  # some in each shard
            assert set(await commit(admin, range(3), group_id)) == {0}
        await admin.create_topics([NewTopic("refused", 1)])
        broker.machine.disk.capacity_bytes = broker.machine.disk.used_bytes
        producer = Producer(broker.client("producer"), ProducerSettings(delivery_timeout_ms=1000, linger_ms=0))
        with pytest.raises(KafkaError):
            await (await producer.send("refused", b"x"))
        assert await admin.delete_topics(["t"]) == {"t": None}
        broker.machine.disk.capacity_bytes = VOLUME_BYTES
        assert await admin.create_topics([NewTopic("later", 1)]) == {"later": None}
        assert "later" in broker_of(broker).partitions.by_name, "it is answered by who has it"
        await producer.close()

    play(act, offsets_topic_num_partitions="4")


def test_offsets_expire_however_many_they_are_and_so_do_later_ones() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        await asyncio.sleep(180)
        assert await admin.committed_offsets("g") == {}
        assert set(await commit(admin, range(3))) == {0}
        await asyncio.sleep(180)
        assert await admin.committed_offsets("g") == {}

    play(act, offsets_retention_minutes="1", offsets_retention_check_interval_ms="7000")


def test_a_commit_larger_than_a_batch_is_refused_entirely() -> None:
    """Kafka's answer is UNKNOWN_SERVER_ERROR for each partition, and nothing of it is stored."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        before = await admin.committed_offsets("g")
        assert await commit(admin, range(PARTITIONS)) == [ErrorCode.UNKNOWN_SERVER_ERROR] * PARTITIONS
        assert await admin.committed_offsets("g") == before
        assert set(await commit(admin, range(10))) == {0}
        assert parked_count(broker) == 0

    play(act)


def test_a_group_with_more_offsets_than_a_batch_takes_is_not_deleted_in_part() -> None:
    """Kafka deletes a group in one batch or not at all: UNKNOWN_SERVER_ERROR."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        [problem] = (await admin.delete_groups(["g"])).values()
        assert problem is not None
        assert problem.code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(await admin.committed_offsets("g")) == PARTITIONS
        assert parked_count(broker) == 0

    play(act)


@pytest.mark.parametrize(("version", "is_gone"), [(2, True), (4, True), (5, False)])
def test_offsets_are_kept_for_as_long_as_an_old_client_says(version: int, is_gone: bool) -> None:
    """OffsetCommit v2-4: Kafka stores when the offset expires (OffsetCommitValue v1). v5 has no such field."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        connection = await admin._cluster.connection(await admin._coordinator("old"))
        topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 7)])]
        request = OffsetCommitRequest(group_id="old", retention_time_ms=60_000, topics=topics)
        await connection.ask(request, OffsetCommitResponse, timeout_ms=1000, version_max=version)
        await asyncio.sleep(50)
        await broker.stop()
        await broker.start()
        assert len(await admin.committed_offsets("old")) == 1
        await asyncio.sleep(20)
        assert len(await admin.committed_offsets("old")) == (0 if is_gone else 1)

    play(act, offsets_retention_check_interval_ms="5000")


class Ticking:
    """A machine with a timer that the log refuses twice."""

    def __init__(self) -> None:
        self.decided: list[Any] = []
        self.applied: list[StoredRecord] = []

    def decide(self, command: Any, now_ms: int) -> Decision:
        self.decided.append(command)
        size = 10 if len(self.decided) > 2 else 10 * BATCH_BYTES
        return Decision(records=(StoredRecord(OffsetCommitKey("x" * size, "t", 0), None),))

    def apply(self, record: StoredRecord) -> None:
        self.applied.append(record)

    def apply_pending(self, producer_id: int, record: StoredRecord) -> None: ...

    def apply_end(self, producer_id: int, *, is_commit: bool) -> None: ...

    def apply_fact(self, fact: Any) -> None:
        raise AssertionError("there are no facts")

    def on_loaded(self, now_ms: int) -> list[Decision]:
        return [Decision(timers=(Timer(("tick",), now_ms + 100, "tick"),))]

    def dismantle(self) -> list[None]:
        return []

    def snapshot(self) -> list[StoredRecord]:
        return []


def test_a_timer_whose_records_the_log_refuses_comes_again() -> None:
    """A timer of Kafka's coordinators is tried again after 500 ms."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        assert broker.broker is not None
        partition = broker.broker.partitions.by_name[GROUP_METADATA_TOPIC][0]
        machine = Ticking()
        shard = Shard(broker.broker.world, partition, machine, encode_record, lambda key, value: None, lambda: None)
        await shard.load()
        await asyncio.sleep(10)
        assert machine.decided == ["tick"] * 3
        assert len(machine.applied) == 1
        shard.close()

    play(act)


def test_a_client_gets_a_member_id_though_nothing_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would join with another one, and the group's next rebalance would wait for the first: for its session timeout."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        is_held = asyncio.Event()

        async def held(written: Partition) -> None:
            is_held.set()
            await asyncio.get_running_loop().create_future()

        await admin.describe_group("g")
        monkeypatch.setattr(Partition, "flush_until_committed", held)
        committing = asyncio.ensure_future(commit(admin, range(1), "g"))
        await asyncio.wait_for(is_held.wait(), 10)
        request = JoinGroupRequest("g", 45_000, 60_000, "", protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", b"")])
        cluster = broker.client("member")
        answer = await asyncio.wait_for(cluster.ask(await cluster.coordinator("g"), request, JoinGroupResponse), 1)
        assert (answer.error_code, bool(answer.member_id)) == (ErrorCode.MEMBER_ID_REQUIRED, True)
        await cluster.close()
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)

    play(act)


def test_members_that_come_and_go_leave_no_timers() -> None:
    """Clients choose how long sessions and rebalances last: timers that run on would fill the memory."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        cluster = broker.client("member")
        coordinator, protocols = await cluster.coordinator("h"), [JoinGroupRequestProtocol("range", b"")]
        [shard] = groups_of(broker)._shards.values()
        before = set(shard._timers._handles)
        for _ in range(3):
            request = JoinGroupRequest("h", 1_800_000, 2**31 - 1, "", "i", "consumer", protocols)
            member_id = (await cluster.ask(coordinator, request, JoinGroupResponse)).member_id
            assert {kind for kind, *_ in shard._timers._handles.keys() - before} == {"session", "sync"}
            left = await cluster.ask(coordinator, LeaveGroupRequest("h", members=[MemberIdentity(member_id)]), LeaveGroupResponse)
            assert [member.error_code for member in left.members] == [ErrorCode.NONE]
            assert set(shard._timers._handles) == before
        await cluster.close()

    play(act)


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_one_coordinator_cannot_commit_keeps_nothing_from_being_listed(is_refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with too few replicas in sync. Kafka's coordinators answer such questions by what they have, and wait for nobody."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        producer, other = Producer(broker.client("p"), ProducerSettings(transactional_id="x")), Admin(broker.client("other"))
        await producer.init_transactions()
        await other.list_topics()
        flush = Partition.flush_until_committed
        stuck = {(GROUP_METADATA_TOPIC, partition_of("h", 2)), (TRANSACTION_STATE_TOPIC, partition_of("y", 2))}
        assert stuck == {(GROUP_METADATA_TOPIC, 1 - partition_of("g", 2)), (TRANSACTION_STATE_TOPIC, 1 - partition_of("x", 2))}

        are_held = asyncio.Event()
        waiting = set[tuple[str, int]]()

        async def held(written: Partition) -> None:
            place = written.topic, written.index
            if place not in stuck:
                await flush(written)
                return
            waiting.add(place)
            if waiting == stuck:
                are_held.set()
            if is_refused:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            await asyncio.get_running_loop().create_future()

        monkeypatch.setattr(Partition, "flush_until_committed", held)
        committing = [asyncio.ensure_future(commit(other, range(1), "h")), asyncio.ensure_future(await_id(broker))]
        await asyncio.wait_for(are_held.wait(), 10)
        clock = broker_of(broker).world.clock
        began_ms = clock.monotonic_ms()
        assert sorted(group.group_id for group in await admin.list_groups()) == ["g", "h"]
        assert sorted(found.transactional_id for found in await admin.list_transactions()) == ["x", "y"]
        assert (await admin.describe_group("h")).state == "Empty"
        assert {key: found.offset for key, found in (await admin.committed_offsets("h")).items()} == {TopicPartition("t", 0): 7}
        shown = (await admin.describe_transactions(["y"]))["y"]
        assert isinstance(shown, TransactionDescription)
        assert shown.state == "Empty"
        assert clock.monotonic_ms() - began_ms < 5000
        stuck.clear()
        for asking in committing:
            asking.cancel()
        await asyncio.gather(*committing, return_exceptions=True)
        await other.close()
        await producer.close()

    async def await_id(broker: SimBroker) -> None:
        other = Producer(broker.client("o"), ProducerSettings(transactional_id="y"))
        try:
            await other.init_transactions()
        finally:
            await other.close()

    play(act, offsets_topic_num_partitions="2", transaction_state_log_num_partitions="2")


class Resuming(Ticking):
    """A machine that has something to write as soon as it is loaded."""

    def on_loaded(self, now_ms: int) -> list[Decision]:
        return [Decision(records=(StoredRecord(OffsetCommitKey("g", "t", 0), None),))]


def test_a_shard_whose_log_lacks_replicas_when_it_is_loaded_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        assert broker.broker is not None
        partition = broker.broker.partitions.by_name[GROUP_METADATA_TOPIC][0]
        lost: list[str] = []

        def refuse(*_: object) -> None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too few replicas are in sync")

        def load() -> Shard[Any]:
            return Shard(
                broker_of(broker).world, partition, Resuming(), encode_record, lambda key, value: None, lambda: lost.append("lost")
            )  # fmt: skip

        with monkeypatch.context() as patch:
            patch.setattr(shards, "stage", refuse)
            await load().load()
        assert lost == ["lost"]
        await load().load()
        assert lost == ["lost"]

    play(act)


class Asking(Ticking):
    """A machine whose first decision has something done by others, and nobody waits for a reply."""

    def decide(self, command: Any, now_ms: int) -> Decision:
        self.decided.append(command)
        return Decision(records=(StoredRecord(OffsetCommitKey("g", "t", 0), None),), effects=("mark the partition",))


@pytest.mark.parametrize("is_committed", [True, False])
def test_what_others_are_to_do_is_done_once_the_decision_is_committed_and_not_before(
    is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        assert broker.broker is not None
        partition = broker.broker.partitions.by_name[GROUP_METADATA_TOPIC][0]
        flush, may_commit = Partition.flush_until_committed, asyncio.Event()

        async def held(written: Partition) -> None:
            await may_commit.wait()
            if not is_committed:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await flush(written)

        monkeypatch.setattr(Partition, "flush_until_committed", held)
        machine, done = Asking(), list[str]()
        world = broker.broker.world

        def note(_: object, effect: str) -> None:
            done.append(effect)

        shard = Shard(world, partition, machine, encode_record, lambda key, value: None, lambda: None, on_effect=note)
        await shard.load()
        await asyncio.sleep(1)
        assert machine.decided == ["tick"]
        assert done == []
        may_commit.set()
        await asyncio.sleep(1)
        assert done == (["mark the partition"] if is_committed else [])
        shard.close()

    play(act)


TURNS = 10
"""Of the loop: more than an answer and what follows from it take."""


class Answering(Asking):
    def decide(self, command: Any, now_ms: int) -> Decision:
        replies = ((command, "decided"),) if isinstance(command, int) else ()
        return replace(super().decide(command, now_ms), replies=replies)


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("is_committed_at_once", [True, False])
def test_a_client_is_answered_before_others_are_asked_to_do_what_follows(
    is_committed_at_once: bool, is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        assert broker.broker is not None
        partition = broker.broker.partitions.by_name[GROUP_METADATA_TOPIC][0]
        flush, order = Partition.flush_until_committed, list[str]()
        answered, marked = asyncio.Event(), asyncio.Event()

        async def late(written: Partition) -> None:
            await asyncio.sleep(1)
            await flush(written)

        def note(_: object, effect: str) -> None:
            order.append(effect)
            marked.set()

        world = broker.broker.world
        shard = Shard(world, partition, Answering(), encode_record, lambda key, value: None, lambda: None, on_effect=note)
        await shard.load()
        await asyncio.sleep(5)  # of simulated time, as all here: the timer of the load has come
        order.clear()
        marked.clear()
        if not is_committed_at_once:
            monkeypatch.setattr(Partition, "flush_until_committed", late)

        def answer(value: str | None, error: BaseException | None) -> None:  # as a request's, which leaves when its handler has ended
            order.append(value or repr(error))
            answered.set()
            if is_closed:
                shard.close()

        eager.run(shard.ask(lambda token: cast("Command[str]", token)), answer)
        async with asyncio.timeout(3):  # of simulated time
            await (answered if is_closed else marked).wait()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert order == (["decided"] if is_closed else ["decided", "mark the partition"])
        shard.close()

    play(act)


def test_a_client_that_no_longer_waits_leaves_nothing_parked() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        [shard] = groups_of(broker)._shards.values()
        for mistake in (KeyError("a mistake of ours"), asyncio.CancelledError()):

            def make(token: int, mistake: BaseException = mistake) -> ListGroups:
                raise mistake

            with pytest.raises(type(mistake)):
                await shard.ask(make)
        with pytest.raises(KeyError):
            await shard.ask(lambda token: Command[None]())
        assert parked_count(broker) == 0
        assert (await admin.list_groups())[0].group_id == "g"

    play(act)


def test_what_comes_during_a_large_decision_is_decided_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (shards, batches):
        monkeypatch.setattr(module, "SLICE_RECORDS", 10)

    async def act(broker: SimBroker, admin: Admin) -> None:
        await limit_batches(admin, 1 << 20)
        [shard] = groups_of(broker)._shards.values()
        order: list[str] = []

        async def take(name: str, partitions: range, offset: int) -> None:
            offsets = tuple(OffsetToCommit("t", index, offset, -1, "") for index in partitions)
            await shard.ask(lambda token: CommitOffsets(token, "g", -1, "", None, offsets))
            order.append(name)

        await asyncio.gather(take("large", range(PARTITIONS), 8), take("small", range(5), 9))
        assert order == ["large", "small"]
        offsets = await admin.committed_offsets("g")
        assert [offsets[TopicPartition("t", index)].offset for index in (0, 4, 5, PARTITIONS - 1)] == [9, 9, 8, 8]

    play(act)


@pytest.mark.parametrize(("is_commit", "wanted"), [(True, 99), (False, 7), (None, 7)])
def test_a_group_that_is_loaded_has_the_offsets_of_transactions_that_were_committed_and_of_no_others(
    is_commit: bool | None, wanted: int
) -> None:
    """Kafka's brokers in the cluster write them today."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        assert broker.broker is not None
        partition = broker.broker.partitions.by_name[GROUP_METADATA_TOPIC][0]
        log = partition.log
        value = OffsetCommitValue(offset=99, metadata="", commit_timestamp=1)
        key, data = encode_record(StoredRecord(OffsetCommitKey("g", "t", 0), value))
        builder = BatchBuilder()
        builder.append(key, data, timestamp_ms=1)
        view = builder.build(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
        log.stage(memoryview(view), leader_epoch=partition.led_epoch, now_ms=1, from_client=False)
        if is_commit is not None:
            marker = build_end_marker(is_commit=is_commit, producer_id=5, producer_epoch=0, coordinator_epoch=1, timestamp_ms=1)
            log.stage(memoryview(marker), leader_epoch=partition.led_epoch, now_ms=1, from_client=False)
        await broker.machine.run(partition.flush())
        await broker.stop()
        await broker.start()
        offsets = await Admin(broker.client("asking")).committed_offsets("g")
        assert offsets[TopicPartition("t", 0)].offset == wanted

    play(act)

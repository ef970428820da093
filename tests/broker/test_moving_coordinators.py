"""Coordinators come and go with the leadership of their partitions: loaded in slices, one at work, nothing left parked. Simulated."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.broker.leaders import OTHER, add_other, give, own_id
from tests.broker.test_elected_leaders import led_by
from tests.broker.test_leadership import hold
from tests.broker.test_shards import commit, groups_of
from tests.quiet import silence

from ottla.broker.coordinators.shard import Shard
from ottla.broker.replicas.partition import Partition
from ottla.broker.tasks.slices import SHORT_SLICE_US, SLICE_US
from ottla.client.admin import Admin, NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import DeleteTopicOffsets, DescribeGroup, FetchOffsets, FetchResult, JoinGroup, OffsetToCommit
from ottla.groups.coordinator import GroupCoordinator
from ottla.groups.offsets import commit_record
from ottla.groups.records import decode_record, encode_record
from ottla.groups.settings import GroupSettings
from ottla.machine import Command, Decision, StoredRecord, Timer
from ottla.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.messages.transaction_records import TransactionLogKey
from ottla.records.builder import BatchBuilder
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run
from ottla.transactions.coordinator import TransactionCoordinator, TransactionSettings
from ottla.transactions.transaction import Transaction, TransactionState
from ottla.types import GROUP_METADATA_TOPIC

LOOK_US = 500
"""What the clock of a test advances by each look at it: the simulated one stands still while the loop works."""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def play(act: Any, **properties: str) -> None:
    fixed = {"offsets.topic.num.partitions": "1"} | {name.replace("_", "."): value for name, value in properties.items()}
    broker = SimBroker(Simulation(1), fixed, disk_delay_ms_max=0)  # while a test keeps the loop turning, no simulated time passes

    async def main() -> None:
        await broker.start()
        admin = Admin(broker.client("admin"))
        await admin.create_topics([NewTopic("t", 60)])
        assert set(await commit(admin, range(60))) == {0}
        await add_other(broker)
        await act(broker, admin)
        await admin.close()

    run(main())


def partition_of(broker: SimBroker) -> Partition:
    assert broker.broker is not None
    return broker.broker.partitions.by_name[GROUP_METADATA_TOPIC][0]


class TickingClock:
    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._us = 0

    def monotonic_us(self) -> int:
        self._us += LOOK_US
        return self._us

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


class Counting:
    """A machine that notes in which turn of the loop what happens to it."""

    def __init__(self, decisions: int = 0) -> None:
        self.turn = 0
        self.applied: dict[int, int] = {}
        self.given_up: dict[int, int] = {}
        self._decisions = decisions

    def _note(self, counts: dict[int, int]) -> None:
        counts[self.turn] = counts.get(self.turn, 0) + 1

    def decide(self, command: Any, now_ms: int) -> Decision:
        return Decision()

    def apply(self, record: StoredRecord) -> None:
        self._note(self.applied)

    def apply_pending(self, producer_id: int, record: StoredRecord) -> None: ...

    def apply_end(self, producer_id: int, *, is_commit: bool) -> None: ...

    def apply_fact(self, fact: Any) -> None:
        self._note(self.applied)

    def on_loaded(self, now_ms: int) -> Iterator[Decision]:
        for number in range(self._decisions):
            yield Decision(facts=(number,), timers=(Timer((str(number),), now_ms + 600_000, None),))

    def dismantle(self) -> Iterator[None]:
        for _ in range(self._decisions):
            self._note(self.given_up)
            yield

    def snapshot(self) -> list[StoredRecord]:
        return []

    async def count_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turn += 1


def shard_of(broker: SimBroker, machine: Any) -> Shard:
    assert broker.broker is not None
    world = msgspec.structs.replace(broker.broker.world, clock=TickingClock(broker.broker.world.clock))
    return Shard(world, partition_of(broker), machine, encode_record, decode_record, lambda: None)


async def write(partition: Partition, count: int) -> None:
    """So many commits as one batch: that a log is long must not matter, nor that a batch is."""
    builder = BatchBuilder()
    for number in range(count):
        key, value = encode_record(commit_record("large", OffsetToCommit("t", number, number, -1, ""), 1))
        builder.append(key, value, timestamp_ms=1)
    partition.stage_own(memoryview(builder.build()), leader_epoch=partition.led_epoch, now_ms=1)
    await partition.flush()


def test_a_long_log_is_loaded_in_slices_and_requests_meanwhile_are_told_so() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        for _ in range(3):
            await write(partition_of(broker), 5000)
        machine = Counting(decisions=5000)
        shard = shard_of(broker, machine)
        turning = asyncio.ensure_future(machine.count_turns())
        loading = asyncio.ensure_future(shard.load())
        refused = 0
        while not shard._is_loaded:
            with pytest.raises(KafkaError) as caught:
                await shard.ask(lambda token: Command[None]())
            assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            refused += 1
            await asyncio.sleep(0)
        await loading
        assert sum(machine.applied.values()) == 60 + 15_000 + 5000
        assert refused > 100
        assert max(machine.applied.values()) <= 2 * (32 * SHORT_SLICE_US // LOOK_US) + 32, "two slices a turn, at most"
        machine.turn += 1
        shard.close()
        for _ in range(1000):
            await asyncio.sleep(0)
        assert sum(machine.given_up.values()) == 5000
        assert max(machine.given_up.values()) <= 2 * (32 * SLICE_US // LOOK_US) + 32
        turning.cancel()

    play(act)


def test_a_shard_that_is_closed_while_it_loads_applies_nothing_more() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        await write(partition_of(broker), 5000)
        machine = Counting(decisions=100)
        shard = shard_of(broker, machine)
        loading = asyncio.ensure_future(shard.load())
        while not machine.applied:
            await asyncio.sleep(0)
        shard.close()
        before = sum(machine.applied.values())
        await loading
        assert sum(machine.applied.values()) == before < 5000
        with pytest.raises(KafkaError) as caught:
            await shard.ask(lambda token: Command[None]())
        assert caught.value.code == ErrorCode.NOT_COORDINATOR

    play(act)


def test_a_shard_that_is_closed_while_it_reads_what_was_loaded_looks_at_nothing_that_is_given_up() -> None:
    """It looked for the next id, which was no longer there: its load ended as a KeyError, and the log had a traceback."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        assert broker.broker is not None
        machine = TransactionCoordinator(TransactionSettings())
        for number in range(200):
            transaction = Transaction(number, 0, 60_000, TransactionState.EMPTY, 1)
            machine.apply(StoredRecord(TransactionLogKey(f"id-{number}"), transaction.to_value()))
        world = msgspec.structs.replace(broker.broker.world, clock=TickingClock(broker.broker.world.clock))
        shard = Shard(world, partition_of(broker), machine, encode_record, lambda key, value: None, lambda: None)
        loading = asyncio.ensure_future(shard.load())
        while not machine._transactions and not loading.done():  # a turn at a time: it is closed in the middle
            await asyncio.sleep(0)
        read = len(machine._transactions)
        shard.close()
        await loading
        assert 0 < read < 200
        assert machine._transactions == {}
        assert not shard._timers._handles

    play(act)


def test_many_parked_requests_fail_some_at_a_time() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        shard = shard_of(broker, Counting())
        await shard.load()
        asking = [asyncio.ensure_future(shard.ask(lambda token: Command[None]())) for _ in range(1000)]
        await asyncio.sleep(0)
        assert shard.parked_count == 1000
        shard.close()
        ended = [sum(future.done() for future in asking)]
        for _ in range(100):
            await asyncio.sleep(0)
            ended.append(sum(future.done() for future in asking))
        assert max(later - earlier for earlier, later in itertools.pairwise(ended)) <= 100
        assert ended[-1] == 1000
        codes = {future.exception().code for future in asking}  # type: ignore[union-attr]
        assert codes == {ErrorCode.NOT_COORDINATOR}

    play(act)


def test_a_coordinator_gives_up_all_that_it_has() -> None:
    machine = GroupCoordinator(GroupSettings())
    for number in range(10):
        machine.apply(commit_record(f"g{number % 3}", OffsetToCommit("t", number, 1, -1, ""), 1))
    for decision in machine.on_loaded(1):
        for fact in decision.facts:
            machine.apply_fact(fact)
    assert sum(1 for _ in machine.dismantle()) == 10 + 3
    assert list(machine.snapshot()) == []


def describe(token: int) -> DescribeGroup:
    return DescribeGroup(token, "g")


async def code_of(broker: SimBroker) -> int:
    try:
        await groups_of(broker).ask("g", describe)
    except KafkaError as error:
        return error.code
    return 0


def test_a_group_is_coordinated_by_whoever_leads_its_partition() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        assert await code_of(broker) == 0
        [shard] = groups_of(broker)._shards.values()
        await give(broker, OTHER, GROUP_METADATA_TOPIC)
        assert await code_of(broker) == ErrorCode.NOT_COORDINATOR
        assert shard.is_closed
        assert not shard._timers._handles
        answer = await admin._cluster.ask(None, FindCoordinatorRequest("g", 0, ["g"]), FindCoordinatorResponse)
        assert [(found.node_id, found.error_code) for found in answer.coordinators] == [(OTHER, 0)]
        await give(broker, -1, GROUP_METADATA_TOPIC)
        answer = await admin._cluster.ask(None, FindCoordinatorRequest("g", 0, ["g"]), FindCoordinatorResponse)
        assert [(found.node_id, found.error_code) for found in answer.coordinators] == [(-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        assert await code_of(broker) == ErrorCode.NOT_COORDINATOR
        await give(broker, own_id(broker), GROUP_METADATA_TOPIC)
        while await code_of(broker) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0.01)
        assert len(await admin.committed_offsets("g")) == 60
        [later] = groups_of(broker)._shards.values()
        assert later is not shard
        assert later.leader_epoch == shard.leader_epoch + 3

    play(act)


def test_members_that_wait_for_their_group_are_sent_away_when_the_coordinator_goes() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        def join(token: int) -> JoinGroup:
            return JoinGroup(token, "g", "", "m", None, "c", "h", 10_000, 60_000, "consumer", (("range", b""),), False, False)

        joining = asyncio.ensure_future(groups_of(broker).ask("g", join))
        await asyncio.sleep(1)
        assert not joining.done(), "the first rebalance of a group waits for others"
        await give(broker, OTHER, GROUP_METADATA_TOPIC)
        with pytest.raises(KafkaError) as caught:
            await asyncio.wait_for(joining, 10)
        assert caught.value.code == ErrorCode.NOT_COORDINATOR

    play(act, group_initial_rebalance_delay_ms="60000")


def test_a_commit_in_flight_when_the_coordinator_leaves_is_refused_and_the_next_coordinator_has_it() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        partition = partition_of(broker)
        held = hold(partition)
        committing = asyncio.ensure_future(commit(admin, range(60)))
        await held.began.wait()
        [shard] = groups_of(broker)._shards.values()
        giving = asyncio.ensure_future(give(broker, own_id(broker), GROUP_METADATA_TOPIC))
        assert set(await committing) == {ErrorCode.NOT_COORDINATOR}
        await giving
        assert shard.is_closed
        assert await code_of(broker) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "its epoch begins where that write ends"
        end_offset = partition.log.log_end_offset
        held.gate.set()
        while await code_of(broker) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0.01)
        assert partition.log.log_end_offset == end_offset + 60
        assert len(await admin.committed_offsets("g")) == 60

    play(act)


def test_offsets_from_which_a_transaction_continues_are_those_of_the_coordinator_of_the_present() -> None:
    """One that has been replaced, and does not know it, would have a pipeline do again what it has done: no replica follows it."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        def fetch(*, require_stable: bool) -> asyncio.Future[FetchResult]:
            return asyncio.ensure_future(groups_of(broker).ask("g", lambda token: FetchOffsets(token, "g", None, require_stable)))

        partition = partition_of(broker)
        await led_by(broker, own_id(broker), GROUP_METADATA_TOPIC)
        while await code_of(broker) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0.01)
        leading = partition.leading
        assert leading is not None
        leading.on_follower_fetch(OTHER, broker_epoch=-1, offset=partition.log.log_end_offset, start_offset=0)
        assert len((await fetch(require_stable=False)).offsets) == 60

        followed = fetch(require_stable=True)
        assert await asyncio.wait({followed}, timeout=1) == (set(), {followed})
        assert leading.on_follower_fetch(OTHER, broker_epoch=-1, offset=partition.log.log_end_offset, start_offset=0)
        leading.committed()
        assert len((await followed).offsets) == 60
        replaced = fetch(require_stable=True)
        await give(broker, OTHER, GROUP_METADATA_TOPIC)
        with pytest.raises(KafkaError) as caught:
            await replaced
        assert caught.value.code == ErrorCode.NOT_COORDINATOR, "the client asks the next one"

    play(act)


def test_commits_that_an_earlier_leader_had_and_that_are_committed_later_are_loaded() -> None:
    """They lie between the high watermark, as the new leader knows it, and the end of its log."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        await led_by(broker, own_id(broker), GROUP_METADATA_TOPIC)
        partition = partition_of(broker)
        await write(partition, 5)
        for leader in (OTHER, own_id(broker)):
            await led_by(broker, leader, GROUP_METADATA_TOPIC)
        while await code_of(broker) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0.01)
        end_offset, leading = partition.log.log_end_offset, partition.leading
        assert partition.high_watermark == end_offset - 5
        assert leading is not None
        assert leading.on_follower_fetch(OTHER, broker_epoch=-1, offset=end_offset, start_offset=0)
        leading.committed()
        assert len(await admin.committed_offsets("large")) == 5

    play(act)


def test_a_topic_that_is_deleted_while_its_offsets_are_loaded_leaves_none() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        await write(partition_of(broker), 5000)
        machine = GroupCoordinator(GroupSettings())
        shard = shard_of(broker, machine)
        loading = asyncio.ensure_future(shard.load())
        while not any(True for _ in machine.snapshot()):
            await asyncio.sleep(0)
        assert not loading.done()
        shard.tell(DeleteTopicOffsets(0, ("t",)))
        await loading
        while any(True for _ in machine.snapshot()):
            await asyncio.sleep(0.01)
        shard.close()

    play(act)

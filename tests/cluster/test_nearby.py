"""A consumer that names its rack reads from a replica in it (KIP-392), as soon and as exactly as it would from the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.cluster.in_simulation import SimNodes, play

from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.config.keys.cluster import LEADER_ALONE, RACK_AWARE
from ottla.errors import ErrorCode
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.types import TopicPartition

LEADER, FOLLOWER, OTHER = 1, 2, 3
LONG_MS = 100_000


def play_nearby(body: Callable[[SimNodes], Awaitable[None]], **properties: str) -> None:
    """With three nodes, each in a rack of its own."""
    play(body, **{"broker_rack": "rack-{node}", "replica_selector_class": RACK_AWARE, **properties})  # type: ignore[arg-type]


async def fetch(nodes: SimNodes, node: int, rack: str, offset: int, *, epoch: int = -1, wait_ms: int = 0) -> PartitionData:
    """What that node answers to a consumer of the rack."""

    async def body(cluster: Cluster) -> PartitionData:
        await cluster.refresh({"t"})
        wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
        topic = FetchTopic("t", cluster.topics["t"].topic_id, [wanted])
        request = FetchRequest(min_bytes=1, max_wait_ms=wait_ms, topics=[topic], rack_id=rack)
        answer = await cluster.ask(node, request, FetchResponse)
        [found] = answer.responses[0].partitions
        return found

    return await nodes.act(body)


def consumer_of(cluster: Cluster, rack: str, isolation_level: str = "read_uncommitted", wait_ms: int = LONG_MS) -> Consumer:
    fetching = FetchSettings(
        fetch_max_wait_ms=wait_ms, auto_offset_reset="earliest", isolation_level=isolation_level, client_rack=rack
    )  # fmt: skip
    return Consumer(cluster, ConsumerSettings(fetch=fetching))


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(4 * LONG_MS / 1000):
        while len(found) < count:
            found += [record.value for record in await consumer.poll(LONG_MS)]
    return found


def read_bytes(nodes: SimNodes, node: int) -> int:
    """How much consumers have read of the topic there."""
    return nodes.partition(node, "t").meters.bytes_out


def test_records_are_read_from_the_replica_in_the_rack_as_soon_as_they_are_committed() -> None:
    """The consumer waits there, and so does that replica at its leader, each for longer than the test lasts."""

    async def body(nodes: SimNodes) -> None:
        loop = asyncio.get_running_loop()
        await nodes.create("t", [LEADER, FOLLOWER, OTHER])
        await nodes.send("t", b"before")

        async def session(cluster: Cluster) -> None:
            consumer = consumer_of(cluster, f"rack-{FOLLOWER}")
            consumer.assign([TopicPartition("t", 0)])
            assert await read(consumer, 1) == [b"before"]
            for value in (b"a", b"b", b"c"):
                reading = asyncio.ensure_future(read(consumer, 1))
                await nodes.until(lambda: bool(nodes.partition(FOLLOWER, "t").waiters))
                began = loop.time()
                await nodes.send("t", value)
                assert await reading == [value]
                assert loop.time() - began < 1
            await consumer.close()

        await nodes.act(session)
        assert (read_bytes(nodes, LEADER), read_bytes(nodes, OTHER)) == (0, 0)
        assert read_bytes(nodes, FOLLOWER) == nodes.partition(FOLLOWER, "t").log.size_bytes

    play_nearby(body, replica_fetch_wait_max_ms=str(LONG_MS), replica_lag_time_max_ms=str(4 * LONG_MS))


def test_a_replica_that_is_stopped_gives_its_consumers_back_to_the_leader() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [LEADER, FOLLOWER, OTHER])
        await nodes.send("t", b"a")

        async def session(cluster: Cluster) -> None:
            consumer = consumer_of(cluster, f"rack-{FOLLOWER}")
            consumer.assign([TopicPartition("t", 0)])
            assert await read(consumer, 1) == [b"a"]
            nodes.nodes[FOLLOWER].kill(power_cut=False)
            await nodes.send("t", b"b")
            began = asyncio.get_running_loop().time()
            assert await read(consumer, 1) == [b"b"]
            assert asyncio.get_running_loop().time() - began < 10
            await consumer.close()

        await nodes.act(session)
        assert read_bytes(nodes, LEADER) > 0

    play_nearby(body)


def test_an_offset_that_a_replica_lacks_is_asked_of_the_leader_before_it_is_given_up() -> None:
    """By its reset policy the consumer would read everything again."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [LEADER, FOLLOWER])
        await nodes.send("t", b"a")

        async def session(cluster: Cluster) -> None:
            consumer = consumer_of(cluster, f"rack-{FOLLOWER}", wait_ms=100)
            consumer.assign([TopicPartition("t", 0)])
            assert await read(consumer, 1) == [b"a"]
            nodes.simulation.fabric.clog_link(nodes.nodes[LEADER].machine.name, nodes.nodes[FOLLOWER].machine.name, 3_000)
            producer = Producer(cluster, ProducerSettings(acks="1", linger_ms=0))
            for value in (b"b", b"c"):
                await producer.send_and_wait("t", value, partition=0)
            assert nodes.partition(FOLLOWER, "t").log.log_end_offset == 1
            consumer.seek(TopicPartition("t", 0), 2)
            assert await read(consumer, 1) == [b"c"]
            await producer.close()
            await consumer.close()

        await nodes.act(session)

    play_nearby(body)


def test_what_was_aborted_is_not_read_from_a_follower_either() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [LEADER, FOLLOWER, OTHER])

        async def write(cluster: Cluster) -> None:
            producer = Producer(cluster, ProducerSettings(acks="all", linger_ms=0, transactional_id="x"))
            await producer.init_transactions()
            for value, is_kept in ((b"a", True), (b"b", False), (b"c", True)):
                await producer.begin_transaction()
                await producer.send_and_wait("t", value, partition=0)
                await (producer.commit_transaction if is_kept else producer.abort_transaction)()
            await producer.close()

        async def session(cluster: Cluster) -> None:
            consumer = consumer_of(cluster, f"rack-{FOLLOWER}", "read_committed")
            consumer.assign([TopicPartition("t", 0)])
            reading = asyncio.ensure_future(read(consumer, 2))
            await nodes.act(write)
            assert await reading == [b"a", b"c"]
            await consumer.close()

        await nodes.act(session)
        assert read_bytes(nodes, LEADER) == 0

    play_nearby(body)


def test_a_leader_names_a_replica_of_the_rack_that_is_in_sync_and_has_the_offset() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [LEADER, FOLLOWER, OTHER])
        await nodes.send("t", b"a")

        async def named(rack: str, offset: int = 0) -> int:
            found = await fetch(nodes, LEADER, rack, offset)
            assert not found.error_code
            assert (not found.records) == (found.preferred_read_replica >= 0 or offset == 2), "it names another one, or reads itself"
            return found.preferred_read_replica

        assert [await named(rack) for rack in ("rack-1", "rack-2", "rack-3", "rack-4", "")] == [-1, FOLLOWER, OTHER, -1, -1]
        assert await named("rack-2", 1) == FOLLOWER, "it may wait there"
        controller = nodes.broker(OTHER)
        assert controller is not None
        is_active = controller.controller.is_active  # the leader has to reach the controller
        behind, follower = (FOLLOWER, OTHER) if is_active else (OTHER, FOLLOWER)
        nodes.simulation.fabric.clog_link(nodes.nodes[LEADER].machine.name, nodes.nodes[behind].machine.name, LONG_MS)
        await nodes.send("t", b"b")
        await nodes.until(lambda: behind not in nodes.in_sync(LEADER, "t"))
        assert (await fetch(nodes, LEADER, f"rack-{behind}", 0)).preferred_read_replica == -1, "though it has that offset, and is live"
        nodes.simulation.fabric.heal()
        assert (await fetch(nodes, LEADER, f"rack-{follower}", 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        nodes.nodes[follower].kill(power_cut=True)
        await nodes.until(lambda: follower not in nodes.in_sync(LEADER, "t"))
        assert await named(f"rack-{follower}") == -1

    play_nearby(body)


def test_a_follower_serves_committed_records_to_consumers_that_name_their_rack() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [LEADER, FOLLOWER, OTHER])
        await nodes.send("t", b"a")
        await nodes.until(lambda: nodes.partition(FOLLOWER, "t").high_watermark == 1)
        epoch = nodes.partition(LEADER, "t").leader_epoch

        async def code(rack: str, offset: int, of_epoch: int = epoch) -> tuple[ErrorCode, int]:
            found = await fetch(nodes, FOLLOWER, rack, offset, epoch=of_epoch)
            return ErrorCode(found.error_code), found.high_watermark

        assert await code("rack-2", 0) == (ErrorCode.NONE, 1)
        assert await code("elsewhere", 1) == (ErrorCode.NONE, 1)
        assert await code("rack-2", 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)
        assert await code("rack-2", 0, epoch + 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
        assert await code("", 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    play_nearby(body)


@pytest.mark.parametrize("selector", [{}, {"replica_selector_class": LEADER_ALONE}])
def test_without_a_selector_every_consumer_reads_from_the_leader(selector: dict[str, str]) -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [LEADER, FOLLOWER])
        await nodes.send("t", b"a")
        assert (await fetch(nodes, LEADER, "rack-2", 0)).records

    play(body, broker_rack="rack-{node}", **selector)  # type: ignore[arg-type]


def test_many_partitions_in_a_watched_session_are_read_nearby() -> None:
    count = 40

    async def body(nodes: SimNodes) -> None:
        replicas: Sequence[list[int]] = [[LEADER, FOLLOWER]] * count
        await nodes.create("t", *replicas)

        async def session(cluster: Cluster) -> None:
            consumer = consumer_of(cluster, f"rack-{FOLLOWER}")
            consumer.assign([TopicPartition("t", index) for index in range(count)])
            for value in (b"a", b"b"):
                reading = asyncio.ensure_future(read(consumer, count))
                for index in range(count):
                    await nodes.send("t", value, index=index)
                assert await reading == [value] * count
            await consumer.close()

        await nodes.act(session)
        assert read_bytes(nodes, LEADER) == 0

    play_nearby(body)

"""The controller's place in ZooKeeper, part by part, on the simulated service: who may write, what a watch sees, what is unknown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.homes.zookeeper.brokers import Registered, read_brokers
from ottla.broker.homes.zookeeper.election import depose, depose_dead, elect
from ottla.broker.homes.zookeeper.loading import Loader, cluster_id, make_persistent
from ottla.broker.homes.zookeeper.metadata import ZookeeperMetadata
from ottla.broker.homes.zookeeper.notices import Notices
from ottla.broker.homes.zookeeper.registration import Registration
from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.served_log import EPOCH_SPAN, ServedLog
from ottla.broker.homes.zookeeper.serving import Serving
from ottla.broker.metadata.applied import AppliedImages
from ottla.consensus.calls import Answer, Fetch, FetchSnapshot, SnapshotId
from ottla.coordination import OPEN_ACCESS, ConnectionLostError, Create, MultiFailedError, Session
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from ottla.metadata import znodes
from ottla.metadata.image import EMPTY_IMAGE, BrokerImage, EndpointImage
from ottla.metadata.znode_reader import Cluster, read_cluster
from ottla.metadata.znode_writer import ZnodeWriter
from ottla.ports import World
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run
from ottla.sim.zookeeper import SimZooKeeper
from ottla.wire.schema import Stored

ID = bytes(range(16))
TOPIC: list[Stored] = [TopicRecord("t", ID), PartitionRecord(0, ID, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0)]


class Service:
    """A ZooKeeper with what every cluster has, and sessions from hosts of their own."""

    def __init__(self) -> None:
        self.zookeeper = SimZooKeeper(random.Random(3))
        self.world: World = Simulation(3).machine("node").boot()

    async def session(self, host: str, *, timeout_ms: int = 60_000) -> Session:
        session = await self.zookeeper.coordination(host).connect("zookeeper:2181", session_timeout_ms=timeout_ms)
        await make_persistent(session, open_to_all)
        return session

    async def read(self, session: Session) -> Cluster:
        return read_cluster(await Loader(session, 10).cluster(), {})

    async def reign(self, session: Session, node: int, *, bytes_max: int = 1_000_000) -> Reign:
        """The node is elected, and has read the znodes."""
        elected = None
        while elected is None:
            elected = await elect(session, node, 0, open_to_all)
        found = await self.read(session)
        image = replace(found.image, end_offset=elected.epoch * EPOCH_SPAN, epoch=elected.epoch)
        served = ServedLog()
        served.start_over(image)
        applied = AppliedImages(served, image, lambda: None)
        applied.begin_own()
        writer = ZnodeWriter(found.known, controller_epoch=elected.epoch, broker_id=node)
        return Reign(
            self.world, session, applied, served, writer, epoch=elected.epoch, epoch_version=elected.version, bytes_max=bytes_max,
            bytes_between_snapshots=1 << 20,
        )  # fmt: skip

    @property
    def tree(self) -> dict[str, bytes]:
        return self.zookeeper.tree.paths()


def open_to_all(path: str) -> Any:
    return OPEN_ACCESS


def on_service(test: Callable[[Service], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def wrapped() -> None:
        async def main() -> None:
            await test(Service())

        run(main())

    wrapped.__name__ = test.__name__
    return wrapped


async def carried_out(reign: Reign) -> None:
    """Everything that is decided is written. What ends the reign is raised."""
    carrying = asyncio.ensure_future(reign.carry_out())
    await asyncio.wait({carrying}, timeout=1)
    if carrying.done():
        carrying.result()
    carrying.cancel()


async def _refused(work: Awaitable[Any], error: type[Exception]) -> Exception:
    with pytest.raises(error) as raised:
        await work
    return raised.value


@on_service
async def test_nothing_of_an_earlier_controller_gets_through(service: Service) -> None:
    first, second = await service.session("a"), await service.session("b")
    old = await service.reign(first, 1)
    old.append(TOPIC)
    await carried_out(old)
    await first.delete(znodes.CONTROLLER)
    new = await service.reign(second, 2)
    assert new.epoch == old.epoch + 1
    old.append([TopicRecord("late", bytes(16))])
    error = await _refused(carried_out(old), MultiFailedError)
    assert isinstance(error, MultiFailedError)
    assert error.index == 0
    assert "/brokers/topics/late" not in service.tree
    new.append([PartitionChangeRecord(0, ID, isr=[2], leader=2)])
    await carried_out(new)
    assert b'"leader":2' in service.tree["/brokers/topics/t/partitions/0/state"]


@on_service
async def test_a_write_with_unknown_outcome_is_not_repeated(service: Service) -> None:
    session = await service.session("a")
    reign = await service.reign(session, 1)
    reign.append(TOPIC)
    service.zookeeper.loses_answers = True
    carrying = asyncio.ensure_future(reign.carry_out())
    await asyncio.sleep(0.1)
    assert not carrying.done()
    service.zookeeper.stop()
    service.zookeeper.loses_answers = False
    service.zookeeper.start()
    await asyncio.sleep(1)
    await _refused(carrying, ConnectionLostError)
    assert "t" in (await service.read(session)).image.topics, "it was done; whoever reads the znodes knows"


@on_service
async def test_two_that_stand_at_once_are_not_both_elected(service: Service) -> None:
    sessions = [await service.session(host) for host in "abc"]
    await elect(sessions[0], 0, 0, open_to_all)  # makes the first epoch
    elected = await asyncio.gather(*(elect(session, node, 0, open_to_all) for node, session in enumerate(sessions)))
    assert [found.epoch for found in elected if found is not None] == [1]


@on_service
async def test_only_the_controller_that_was_meant_is_deposed(service: Service) -> None:
    session, other = await service.session("a"), await service.session("b")
    first = await service.reign(session, 1)
    await depose(other, first.check.version)
    second = await service.reign(other, 2)
    await depose(session, first.check.version)
    await depose_dead(session, 1, first.epoch)
    await depose_dead(session, 2, first.epoch)
    assert znodes.decode_controller(service.tree[znodes.CONTROLLER]) == 2
    await depose_dead(session, 2, second.epoch)
    assert znodes.CONTROLLER not in service.tree


@on_service
async def test_a_change_after_the_reading_began_is_seen_by_the_watch(service: Service) -> None:
    session, other = await service.session("a"), await service.session("b")
    changes = 0

    def on_change() -> None:
        nonlocal changes
        changes += 1

    class Slow:
        """A session on which a broker comes just after the first answer."""

        async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
            names = await session.children(path, watch)
            if "2" not in names:
                await other.create("/brokers/ids/2", b"{}", is_ephemeral=True)
            return names

        def __getattr__(self, name: str) -> Any:
            return getattr(session, name)

    slow: Any = Slow()
    await read_brokers(slow, on_change)
    await asyncio.sleep(0.1)
    assert changes == 1


@on_service
async def test_a_large_group_is_written_in_several_requests_and_committed_as_one(service: Service) -> None:
    session = await service.session("a")
    reign = await service.reign(session, 1, bytes_max=3000)
    partitions = [PartitionRecord(index, ID, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0) for index in range(50)]
    reign.append([TopicRecord("t", ID), *partitions])
    await carried_out(reign)
    assert len((await service.read(session)).image.topics["t"].partitions) == 50


@on_service
async def test_a_topic_that_is_too_large_for_a_znode_is_refused(service: Service) -> None:
    session = await service.session("a")
    reign = await service.reign(session, 1, bytes_max=1000)
    partitions = [PartitionRecord(index, ID, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0) for index in range(100)]
    with pytest.raises(KafkaError) as refused:
        reign.append([TopicRecord("t", ID), *partitions])
    assert refused.value.code == ErrorCode.INVALID_PARTITIONS
    reign.append(TOPIC)
    await carried_out(reign)
    assert "/brokers/topics/t" in service.tree


@on_service
async def test_the_log_of_an_epoch_is_an_image_and_what_came_after_it(service: Service) -> None:
    session = await service.session("a")
    reign = await service.reign(session, 1)
    reign.append(TOPIC)
    reign.append([PartitionChangeRecord(0, ID, isr=[2], leader=2)])
    await carried_out(reign)
    served = reign._served
    assert (served.start_offset, served.end_offset) == (EPOCH_SPAN, EPOCH_SPAN + 3)
    assert served.read(EPOCH_SPAN, 1 << 20)
    assert await served.snapshot(SnapshotId(1, EPOCH_SPAN), 0) is not None
    assert await served.snapshot(SnapshotId(0, 0), 0) is None
    follower = ServedLog()
    follower.start_over(replace(EMPTY_IMAGE, end_offset=EPOCH_SPAN, epoch=1))
    follower.append_fetched(served.read(EPOCH_SPAN, 1 << 20))
    applied = AppliedImages(follower, replace(EMPTY_IMAGE, end_offset=EPOCH_SPAN, epoch=1), lambda: None)
    await applied.apply(follower.end_offset)
    assert applied.committed.topics["t"].partitions[0].leader == 2
    served.begin_at(reign._applied.committed)
    assert (served.start_offset, served.size_bytes) == (EPOCH_SPAN + 3, 0)


def own(port: int) -> BrokerImage:
    return BrokerImage(7, -1, {"PLAINTEXT": EndpointImage("PLAINTEXT", "h", port)}, None, False)


@on_service
async def test_the_znode_of_an_earlier_process_makes_way_and_that_of_another_broker_does_not(service: Service) -> None:
    old, new = await service.session("old"), await service.session("new")
    epochs: list[int] = []

    leads_here = True

    async def is_ours() -> bool:
        return leads_here

    def registration(port: int) -> Registration:
        broker = own(port)
        return Registration(
            service.world, broker.broker_id, lambda: broker, open_to_all, leads_here=is_ours, wait_ms_max=500, on_epoch=epochs.append
        )  # fmt: skip

    first = asyncio.ensure_future(registration(1).keep(old, asyncio.Event()))
    await asyncio.sleep(0.1)
    first.cancel()
    second = asyncio.ensure_future(registration(1).keep(new, asyncio.Event()))
    await asyncio.sleep(0.1)
    assert len(epochs) == 2
    assert epochs[1] > epochs[0]
    error = await _refused(registration(2).keep(old, asyncio.Event()), KafkaError)
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    leads_here = False  # a copy, which advertises the other one's address
    error = await _refused(registration(1).keep(old, asyncio.Event()), KafkaError)
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    await old.delete("/brokers/ids/7")  # by mistake
    await asyncio.sleep(0.1)
    assert len(epochs) == 3
    assert (await read_brokers(new))[7] == Registered(7, epochs[2], 0, (await read_brokers(new))[7].znode)
    second.cancel()


@on_service
async def test_a_cluster_has_one_id(service: Service) -> None:
    sessions = [await service.session(host) for host in "abc"]
    ids = await asyncio.gather(*(cluster_id(session, f"id-{index}", open_to_all) for index, session in enumerate(sessions)))
    assert len(set(ids)) == 1


def test_an_active_controller_counts_from_its_own_epoch_before_it_is_known_who_leads() -> None:
    """Between its election and the moment when its node has noted it, heartbeats come."""
    home = ZookeeperMetadata.__new__(ZookeeperMetadata)
    home.epoch, home._reign = -1, cast("Reign", SimpleNamespace(epoch=3))
    assert home.base_offset == 3 * EPOCH_SPAN
    home.epoch, home._reign = 4, None
    assert home.base_offset == 4 * EPOCH_SPAN


def test_the_server_of_the_metadata_refuses_impossible_numbers() -> None:
    async def body() -> None:
        world: World = Simulation(3).machine("node").boot()
        served = ServedLog()
        served.start_over(replace(EMPTY_IMAGE, end_offset=EPOCH_SPAN, epoch=1))
        serving = Serving(world, served, "cluster", lambda: True, lambda: (1, 1))

        async def error_of(request: Fetch | FetchSnapshot) -> ErrorCode:
            future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            serving.on_request(request, future.set_result)
            return ErrorCode((await future).error)

        snapshot_id = served.snapshot_id
        for position, max_bytes, error in (
            (0, 100, ErrorCode.NONE), (0, -1, ErrorCode.INVALID_REQUEST), (0, 0, ErrorCode.INVALID_REQUEST),
            (-1, 100, ErrorCode.POSITION_OUT_OF_RANGE), (1 << 40, 100, ErrorCode.POSITION_OUT_OF_RANGE),
        ):  # fmt: skip
            assert await error_of(FetchSnapshot(1, 2, snapshot_id, position, max_bytes)) == error
        assert await error_of(Fetch(1, 2, -1, 1)) == ErrorCode.INVALID_REQUEST
        assert await error_of(Fetch(1, 2, EPOCH_SPAN, 1, max_bytes=-1)) == ErrorCode.INVALID_REQUEST
        for node in range(-5, 3000):
            assert await error_of(Fetch(1, node, EPOCH_SPAN, 1)) == ErrorCode.NONE
        assert len(serving.fetched_offsets) == 1000
        assert min(serving.fetched_offsets) == 2000

    run(body())


@on_service
async def test_a_notice_of_a_changed_configuration_stays_for_fifteen_minutes(service: Service) -> None:
    """For brokers that read late, those of Kafka among them; one that cannot be read is passed over, and goes with the others."""
    session = await service.session("a")
    reign = await service.reign(session, 1)
    notices = Notices(service.world, cast("ActiveController", None))
    following = asyncio.ensure_future(notices.follow_configs(reign))

    async def there_after_another() -> list[str]:
        await session.multi([Create(znodes.CONFIG_CHANGE_PREFIX, b"{", is_sequential=True)])
        await asyncio.sleep(1)
        return sorted(await session.children(znodes.CONFIG_CHANGES))

    [first] = await there_after_another()
    await asyncio.sleep(14 * 60)
    _, second = both = await there_after_another()
    assert both == [first, second]
    await asyncio.sleep(2 * 60)
    _, third = both = await there_after_another()
    assert both == [second, third]
    following.cancel()

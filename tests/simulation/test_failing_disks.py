"""A start that meets a disk which fails only when it is read: the broker goes on without that directory."""

from __future__ import annotations

import asyncio
import errno

import pytest
import structlog
from tests.simulation.failing_disks import DIRECTORIES
from tests.simulation.quorum_nodes import QuorumNode, started
from tests.simulation.zookeeper_nodes import nodes_in_zookeeper

from ottla.client.admin import Admin, NewTopic
from ottla.errors import StorageError
from ottla.sim.cluster import SimBroker, SimClient, Simulation
from ottla.sim.disk_faults import Fault
from ottla.sim.loop import run
from ottla.storage.directory.predecessors import Predecessors

PARTITIONS = 4
WAIT_SECONDS = 10
FILES = ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "partition.metadata"]


def failing(suffix: str, *within: str, operation: str = "read_file") -> list[Fault]:
    return [Fault(operation, suffix, errno.EIO, lasts=True, within=directory) for directory in within]


def open_here(node: QuorumNode) -> set[int]:
    assert node.broker is not None
    return {partition.index for partition in node.broker.partitions.all() if partition.topic == "t" and not partition.log.is_failed}


async def begin(simulation: Simulation) -> list[QuorumNode]:
    """Three nodes with a topic, of which the second one is down."""
    nodes: list[QuorumNode] = list(nodes_in_zookeeper(simulation))
    for node in nodes:
        node.begin()
    await started(nodes)
    client = SimClient(simulation, "admin", nodes[0].bootstrap)

    async def create() -> None:
        admin = Admin(client.cluster())
        assert await admin.create_topics([NewTopic("t", PARTITIONS, 3)]) == {"t": None}
        await admin.close()

    await client.machine.run(create())
    await asyncio.sleep(WAIT_SECONDS)
    assert open_here(nodes[1]) == set(range(PARTITIONS))
    nodes[1].kill(power_cut=False)
    return nodes


@pytest.mark.parametrize("file", FILES)
def test_a_directory_of_which_something_cannot_be_read_is_offline_and_the_broker_starts(file: str) -> None:
    """One bad sector kept it from starting, whatever else it had. What lies there is not made again elsewhere, and comes back with it."""

    async def main() -> None:
        _, node, _ = await begin(Simulation(3))
        node.machine.disk.faults += failing(file, DIRECTORIES[1])
        node.begin()
        await started([node])
        await asyncio.sleep(WAIT_SECONDS)
        assert node.broker is not None
        assert [directory.path for directory in node.broker.directories.opened if directory.is_failed] == [DIRECTORIES[1]]
        there = open_here(node)
        assert 0 < len(there) < PARTITIONS
        assert {key.partition for key in node.broker.partitions.offline if key.topic == "t"} == set(range(PARTITIONS)) - there
        assert node.broker.directories.predecessors == Predecessors(), "it may have lost what it had"
        node.kill(power_cut=False)
        node.machine.disk.faults.clear()
        node.begin()
        await started([node])
        await asyncio.sleep(WAIT_SECONDS)
        assert open_here(node) == set(range(PARTITIONS))
        assert node.broker.directories.predecessors == Predecessors(), "one of them was not had by the process before"

    with structlog.testing.capture_logs() as events:
        run(main())
    assert not [event for event in events if event["event"] in ("replica_found_twice", "stray_replica_kept")]


def test_a_broker_none_of_whose_directories_can_be_read_does_not_start() -> None:
    async def main() -> None:
        _, node, _ = await begin(Simulation(3))
        node.machine.disk.faults += failing(FILES[0], *DIRECTORIES)
        with pytest.raises(StorageError, match="all log directories have failed"):
            await node.start()

    with structlog.testing.capture_logs():
        run(main())


def test_a_disk_that_does_not_say_whether_a_directory_is_there_gives_it_no_other_identity() -> None:
    """Taken for absent, it became that of another cluster, and the broker never started again."""

    async def main() -> None:
        broker = SimBroker(Simulation(1), {"log.dirs": ",".join(DIRECTORIES)})
        await broker.start()
        await broker.stop()
        disk = broker.machine.disk
        before = await disk.read_file(f"{DIRECTORIES[0]}/meta.properties")
        disk.faults.append(Fault("exists", DIRECTORIES[0], errno.EIO))
        with pytest.raises(StorageError, match=DIRECTORIES[0]):
            await broker.start()
        assert await disk.read_file(f"{DIRECTORIES[0]}/meta.properties") == before
        broker.kill(power_cut=False)
        await broker.start()

    run(main())


def test_directories_that_could_not_be_opened_are_counted_and_a_lack_of_descriptors_is_no_failing_disk() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), {"log.dirs": ",".join(DIRECTORIES)})
        await broker.start()
        await broker.stop()
        broker.machine.disk.faults.append(Fault("read_file", "meta.properties", errno.EMFILE, within=DIRECTORIES[1]))
        with pytest.raises(StorageError, match=f"{DIRECTORIES[1]} cannot be opened"):
            await broker.start()
        broker.kill(power_cut=False)
        broker.machine.disk.faults.append(Fault("read_file", "meta.properties", errno.EIO, within=DIRECTORIES[1]))
        await broker.start()
        assert broker.broker is not None
        assert broker.broker.partitions.offline_directory_count == 1

    run(main())

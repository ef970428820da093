"""A simulated broker and its clients: started, stopped, crashed, restarted.

The broker is ``ottla.broker.node.Broker``, unchanged; the clients are ``ottla.client``'s.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

from ottla.broker.node import Broker
from ottla.client.cluster import Cluster
from ottla.client.security import ClientSecurity
from ottla.config import BrokerConfig
from ottla.ports import World
from ottla.sim.network import Fabric
from ottla.sim.trace import Trace
from ottla.sim.world import Machine
from ottla.storage.log.replay import records_between
from ottla.types import GROUP_METADATA_TOPIC, TopicPartition

PORT = 9092
DATA_DIRECTORY = "/data"


class Simulation:
    """Everything of one run hangs on one seed."""

    def __init__(self, seed: int, *, network_delay_ms_max: float = 1.0) -> None:
        self.seed = seed
        self.trace = Trace()
        self.fabric = Fabric(self.random, self.trace, delay_ms_max=network_delay_ms_max)
        self._machines: Counter[str] = Counter()

    def random(self, component: str) -> random.Random:
        """Returns the random numbers of one component, which do not depend on how many another component draws."""
        return random.Random(f"{self.seed}/{component}")

    def machine(self, name: str, *, disk_delay_ms_max: float = 2.0) -> Machine:
        """Makes a machine. A new name gets a place on the network; a name that is in use shares its place."""
        self._machines[name] += 1
        component = f"{name}/{self._machines[name]}"
        return Machine(self.random, self.trace, self.fabric, name, component=component, disk_delay_ms_max=disk_delay_ms_max)


class SimBroker:
    """One broker on one machine."""

    def __init__(
        self, simulation: Simulation, properties: Mapping[str, str] = {}, *, name: str = "broker", disk_delay_ms_max: float = 2.0
    ) -> None:
        self._simulation = simulation
        self.machine = simulation.machine(name, disk_delay_ms_max=disk_delay_ms_max)
        self._properties: Mapping[str, str] = {
            "listeners": f"PLAINTEXT://{name}:{PORT}",
            "log.dirs": DATA_DIRECTORY,
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
        } | dict(properties)
        self.broker: Broker | None = None
        self.failure_count = 0
        """How often a broker here could not go on."""

    @property
    def bootstrap(self) -> str:
        return f"{self.machine.name}:{PORT}"

    async def start(self, *, crash_at: int | None = None, on_crash: Callable[[], None] | None = None) -> None:
        """Serves clients, unless the machine dies on the way: before disk operation ``crash_at``, with a call of ``on_crash``."""
        world = self.boot()
        self.machine.disk.crash_at, self.machine.disk.on_crash = crash_at, on_crash
        broker = Broker(world, BrokerConfig(self._properties), self._note_failure)
        await self.machine.run(broker.start())
        self.broker = broker

    def boot(self) -> World:
        """Boots the machine for its next process, and returns that process's world."""
        return self.machine.boot()

    def _note_failure(self) -> None:
        self.failure_count += 1

    @property
    def is_up(self) -> bool:
        """It has started, and has been neither stopped nor killed."""
        return self.broker is not None

    async def stop(self) -> None:
        assert self.broker is not None, "the broker was started"
        broker, self.broker = self.broker, None
        await self.machine.run(broker.stop())
        self.machine.end_process()

    def kill(self, *, power_cut: bool) -> None:
        """Kills the process; with ``power_cut`` what was not synced is lost."""
        if power_cut:
            self.machine.cut_power()
        else:
            self.machine.kill_process()
        self.broker = None

    def client(self, name: str, *, security: ClientSecurity | None = None, **settings: int) -> Cluster:
        """Returns a client's view of the cluster, on a machine of its own."""
        world = self._simulation.machine(name).boot()
        return Cluster(world, self.bootstrap, client_id=name, security=security, **settings)

    async def logs(self) -> dict[TopicPartition, list[tuple[int, bytes]]]:
        """Returns the offset and value of every record that a reader would find, without internal topics."""
        assert self.broker is not None, "the broker runs"
        logs: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        for partition in self.broker.partitions.all():
            if partition.topic == GROUP_METADATA_TOPIC:
                continue
            reading = records_between(partition.log, partition.log.log_start_offset, partition.high_watermark, check_crc=True)
            records = [(record.offset, record.value or b"") async for found in reading for record in found]
            logs[TopicPartition(partition.topic, partition.index)] = records
        return logs


class SimClient:
    """A client's process on a host of its own."""

    def __init__(self, simulation: Simulation, name: str, bootstrap: str, **settings: int) -> None:
        self.machine = simulation.machine(name)
        self._world = self.machine.boot()
        self._bootstrap = bootstrap
        self._settings = settings

    def cluster(self) -> Cluster:
        """Returns the process's view of the cluster, for one producer, consumer or admin."""
        return Cluster(self._world, self._bootstrap, client_id=self.machine.name, security=None, **self._settings)

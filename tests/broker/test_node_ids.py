"""Ids of brokers in ZooKeeper mode: given, kept by the log directories, or generated, each by one rule (the simulated service)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from ottla.broker.homes.zookeeper.node_id import settle_node_id
from ottla.broker.node import Broker
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.ports import World
from ottla.sim.cluster import PORT, SimBroker, Simulation
from ottla.sim.loop import run
from ottla.sim.zookeeper import SimZooKeeper
from ottla.storage.directory.directory import DirectoryIdentity, LogDirectory


class Machine(SimBroker):
    """A broker that was given no id, and its log directories."""

    def __init__(self, simulation: Simulation, service: SimZooKeeper, name: str, **properties: str) -> None:
        given = {"zookeeper.connect": "zookeeper:2181/cluster", "log.dirs": "/a,/b", "listeners": f"PLAINTEXT://{name}:{PORT}"}
        super().__init__(simulation, given | {key.replace("_", "."): value for key, value in properties.items()}, name=name)
        self.service = service

    def boot(self) -> World:
        return replace(super().boot(), coordination=self.service.coordination(self.machine.name))

    async def settled(self, **properties: str) -> int:
        """The id that a process with these properties would have."""
        config = BrokerConfig({**self._properties, **{key.replace("_", "."): value for key, value in properties.items()}})
        world = self.boot()
        await self.machine.run(settle_node_id(world, config))
        self.machine.end_process()
        return config.node_id

    async def refused(self, **properties: str) -> KafkaError | StorageError:
        with pytest.raises((KafkaError, StorageError)) as raised:
            await self.settled(**properties)
        return raised.value

    async def format(self, path: str, node_id: int) -> None:
        ids = DirectoryIdentity("c", node_id, "d")
        world = self.boot()
        await self.machine.run(LogDirectory.open(world.disk, path, node_id=node_id, cluster_id=None, new_ids=ids))
        self.machine.end_process()


Made = Callable[..., Machine]


def simulated(test: Callable[[SimZooKeeper, Made], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def wrapped() -> None:
        simulation = Simulation(5)
        service = SimZooKeeper(random.Random(5), delay_ms_max=5)
        run(test(service, lambda name, **properties: Machine(simulation, service, name, **properties)))

    wrapped.__name__ = test.__name__
    return wrapped


@simulated
async def test_brokers_that_start_at_the_same_time_get_different_ids_and_keep_them(service: SimZooKeeper, made: Made) -> None:
    machines = [made(name) for name in "abc"]
    await asyncio.gather(*(machine.start() for machine in machines))
    ids = [running(machine).node_id for machine in machines]
    assert sorted(ids) == [1001, 1002, 1003]
    for machine in machines:
        assert running(machine).config["broker.id"] == running(machine).node_id
        assert {directory.identity.node_id for directory in running(machine).directories.opened} == {running(machine).node_id}
    assert {f"/cluster/brokers/ids/{node_id}" for node_id in ids} <= service.tree.paths().keys()
    machines[0].kill(power_cut=True)
    await machines[1].stop()
    for machine in machines[:2]:
        await machine.start()
    assert [running(machine).node_id for machine in machines] == ids
    for machine in machines:
        await machine.stop()


@simulated
async def test_a_write_whose_answer_was_lost_is_repeated_and_costs_a_number(service: SimZooKeeper, made: Made) -> None:
    assert await made("a").settled(reserved_broker_max_id="20") == 21
    service.loses_answers = True
    settling = asyncio.ensure_future(made("b").settled())
    await asyncio.sleep(0.2)
    service.loses_answers = False
    service.stop()
    service.start()
    assert await settling > 1001


@simulated
async def test_the_log_directories_have_the_last_word(service: SimZooKeeper, made: Made) -> None:
    machine = made("a")
    await machine.format("/b", 7)
    assert await machine.settled() == await machine.settled(broker_id="7") == await machine.settled(broker_id="-1") == 7
    assert await machine.settled(node_id="7", broker_id_generation_enable="false") == 7
    error = await machine.refused(broker_id="8")
    assert isinstance(error, StorageError)
    assert "broker.id=8" in error.message
    assert "/b of broker.id=7" in error.message
    await machine.format("/a", 9)
    assert "different brokers" in (await machine.refused()).message
    assert service.tree.paths().keys() == {"/"}, "nothing was asked for"


@simulated
async def test_what_the_configuration_rules_out_is_refused_with_the_way_out(service: SimZooKeeper, made: Made) -> None:
    error = await made("a").refused(broker_id_generation_enable="false")
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.INVALID_CONFIG
    assert "set broker.id" in error.message
    assert "broker.id=1001 is above reserved.broker.max.id=1000" in (await made("b").refused(broker_id="1001")).message
    assert await made("c").settled(broker_id="1001", broker_id_generation_enable="false") == 1001
    assert await made("d").settled(broker_id="0") == 0


def running(machine: Machine) -> Broker:
    assert machine.broker is not None, "it runs"
    return machine.broker

"""Brokers that are no controllers, beside the nodes of ``quorum_nodes``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.simulation.quorum_nodes import CLUSTER_ID, CONTROLLER_PORT, NODES

from ottla.broker.formatting import format_log_dirs
from ottla.config import BrokerConfig
from ottla.sim.cluster import DATA_FOLDER, PORT, SimBroker, Simulation

BROKER_ID: Final = 4
KNOCKS_MS: Final = 5000
"""For so long it tries to register: less than the session of a broker that says nothing."""


def broker(simulation: Simulation, host: str, given: Mapping[str, str] = {}) -> SimBroker:
    """Broker 4, on a host of that name."""
    properties = {
        "node.id": str(BROKER_ID),
        "process.roles": "broker",
        "controller.quorum.voters": ",".join(f"{node}@node-{node}:{CONTROLLER_PORT}" for node in range(1, NODES + 1)),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{PORT}",
        "log.dirs": DATA_FOLDER,
        "initial.broker.registration.timeout.ms": str(KNOCKS_MS),
    } | dict(given)
    made = SimBroker(simulation, properties, name=host)
    made._properties = properties
    return made


async def format_broker(made: SimBroker) -> None:
    world = made.machine.boot()
    await made.machine.run(format_log_dirs(world, BrokerConfig(dict(made._properties)), cluster_id=CLUSTER_ID, features={}))
    made.machine.end_process()

"""Brokers that are no controllers and knock for a while, beside the nodes of ``quorum_nodes``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.simulation.quorum_nodes import broker_alone

from ottla.sim.cluster import SimBroker, Simulation

BROKER_ID: Final = 4
KNOCKS_MS: Final = 5000
"""For so long it tries to register: less than the session of a broker that says nothing."""


def broker(simulation: Simulation, host: str, given: Mapping[str, str] = {}) -> SimBroker:
    """Broker 4, on a host of that name."""
    return broker_alone(simulation, BROKER_ID, host, {"initial.broker.registration.timeout.ms": str(KNOCKS_MS)} | dict(given))

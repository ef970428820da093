"""Randomness by name: what one component draws is no business of another's."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from ottla.client.producer_settings import ProducerSettings
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import SimLoop, run
from ottla.sim.workload import History, count_up
from ottla.types import TopicPartition


def events_of(name: str, component: str, draws: int) -> list[tuple[float, str]]:
    """What happens to one of two brokers and its client, and when, while a component draws so many more random numbers."""
    simulation = Simulation(5)
    events: list[tuple[float, str]] = []
    add = simulation.trace.add

    def note(event: str) -> None:
        add(event)
        if name in event:
            events.append((cast(SimLoop, asyncio.get_running_loop()).now, event))

    simulation.trace.add = note  # type: ignore[method-assign]

    async def main() -> None:
        brokers = {name: SimBroker(simulation, name=name) for name in ("one", "two")}
        await asyncio.gather(*(broker.start() for broker in brokers.values()))
        clients = {name: broker.client(f"client-{name}") for name, broker in brokers.items()}
        drawn = {
            "disk": brokers["one"].machine.disk._rng,
            "process": clients["one"].world.random,
            "link": simulation.fabric.link("client-one", "one")._rng,
            "network": simulation.fabric._rng,
        }
        for _ in range(draws):
            drawn[component].random()
        work = [
            count_up(History(), client, name, [TopicPartition("t", 0)], records=30, settings=ProducerSettings(linger_ms=1))
            for name, client in clients.items()
        ]
        await asyncio.gather(*work)

    run(main())
    return events


@pytest.mark.parametrize("component", ["disk", "process", "link", "network"])
def test_more_draws_of_one_component_leave_the_others_as_they_were(component: str) -> None:
    assert len(events_of("two", component, 0)) > 60
    assert events_of("two", component, 1) == events_of("two", component, 0)
    if component in ("disk", "link"):
        assert events_of("one", component, 1) != events_of("one", component, 0)


def test_machines_that_share_a_name_share_no_numbers() -> None:
    async def main() -> None:
        simulation = Simulation(1)
        worlds = [simulation.machine("client").boot() for _ in range(2)]
        machine = simulation.machine("host")
        worlds += [machine.boot(), machine.boot()]
        assert len({world.random.random() for world in worlds}) == 4

    run(main())


def test_another_seed_is_other_numbers() -> None:
    assert Simulation(1).random("disk").random() == Simulation(1).random("disk").random()
    assert len({Simulation(seed).random(name).random() for seed in range(3) for name in ("disk", "network")}) == 6

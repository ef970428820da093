"""Three simulated nodes over SASL_SSL: they elect, replicate and authenticate again while nodes are killed; strangers are not let in."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from tests.simulation.guarded_nodes import properties, security
from tests.simulation.quorum_nodes import NODES, QuorumNode, started

from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import PORT, Simulation
from ottla.sim.loop import run

BOOTSTRAP: Final = ",".join(f"node-{node}:{PORT}" for node in range(1, NODES + 1))


@pytest.mark.parametrize("seed", range(6))
def test_a_secured_cluster_outlives_the_kills_of_its_controllers(seed: int) -> None:
    simulation = Simulation(seed)

    async def main() -> None:
        nodes = [QuorumNode(simulation, node, properties(node)) for node in range(1, NODES + 1)]
        for node in nodes:
            await node.format()
            node.begin()
        await started(nodes)
        world = simulation.machine("client").boot()
        cluster = Cluster(world, BOOTSTRAP, client_id="alice", security=security())
        admin = Admin(cluster)
        for number in range(3):
            assert await until(lambda number=number: admin.create_topics([NewTopic(f"t{number}", 2, 3)])) == {f"t{number}": None}
            active = next(node for node in nodes if node.broker is not None and node.broker.controller.is_active)
            active.kill(power_cut=bool(number % 2))
            assert await until(lambda number=number: admin.create_topics([NewTopic(f"u{number}", 1, 2)])) == {f"u{number}": None}
            await asyncio.sleep(6)  # sessions end meanwhile
            active.begin()
            await started([active])
        topics = await until(admin.list_topics)
        assert {f"{kind}{number}" for kind in "tu" for number in range(3)} <= topics.keys()
        tallies = [node.broker.gate.threshold.tally for node in nodes if node.broker is not None]
        assert sum(tally.succeeded for tally in tallies) > 10
        assert sum(tally.failed for tally in tallies) == 0
        await cluster.close()
        for stranger in (security(password="guessed"), security(trusted="CN=other")):
            other = Cluster(world, BOOTSTRAP, client_id="stranger", security=stranger)
            with pytest.raises(KafkaError) as caught:
                await other.refresh()
            assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
            await other.close()

    run(main())


async def until(ask: Any) -> Any:
    """What the cluster answers once it does: leaders change meanwhile, and what was asked may be done although the answer was lost."""
    async with asyncio.timeout(120):
        while True:
            try:
                found = await ask()
                problems = [value for value in found.values() if isinstance(value, KafkaError)]
            except KafkaError as error:
                found, problems = {}, [error]
            assert all(problem.code != ErrorCode.SASL_AUTHENTICATION_FAILED for problem in problems)
            if all(problem.code == ErrorCode.TOPIC_ALREADY_EXISTS for problem in problems):
                return {name: None if isinstance(value, KafkaError) else value for name, value in found.items()}
            await asyncio.sleep(0.5)

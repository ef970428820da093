"""What a node has of the metadata log and does not know to be committed is in no image of it: another leader may take it away."""

from __future__ import annotations

import asyncio

from tests.cluster.in_simulation import SimNodes, play
from tests.cluster.test_producer_ids import broker_of, id_of

from ottla.broker.metadata.replica import MetadataReplica
from ottla.consensus.quorum import Quorum
from ottla.consensus.roles import Leader


def quorum_of(nodes: SimNodes, node: int) -> Quorum:
    replica = broker_of(nodes, node).controller.replica
    assert isinstance(replica, MetadataReplica)
    return replica.quorum


def is_waiting(leader: Quorum, node: int) -> bool:
    """A fetch of the node is parked."""
    return isinstance(leader.role, Leader) and any(parked.request.replica_id == node for parked in leader.role.parked.values())


def test_a_node_that_has_a_record_and_cannot_say_so_does_not_act_on_it() -> None:
    """Of three voters one is cut off, and what the other one sends is lost: nothing that the leader decides is committed."""

    async def body(nodes: SimNodes) -> None:
        [active] = [number for number in nodes.nodes if broker_of(nodes, number).controller.is_active]
        follower, away = [number for number in nodes.nodes if number != active]
        fabric, name = nodes.simulation.fabric, {number: node.machine.name for number, node in nodes.nodes.items()}
        broker, leader = broker_of(nodes, follower), quorum_of(nodes, active)
        before = broker.image.next_producer_id
        fabric.darken(name[away])
        await nodes.until(lambda: quorum_of(nodes, follower).high_watermark == leader.log.end_offset and is_waiting(leader, follower))
        fabric.cut_link(name[follower], name[active])
        asked = asyncio.ensure_future(nodes.nodes[active].machine.run(id_of(broker_of(nodes, active))))
        await nodes.until(lambda: quorum_of(nodes, follower).log.end_offset == leader.log.end_offset > leader.high_watermark)
        await asyncio.sleep(0.5)
        assert not asked.done()
        assert broker.image.next_producer_id == before
        fabric.join_link(name[follower], name[active])
        fabric.lighten(name[away])
        assert await asked, "it is committed now: the leader had not been given up yet"
        await nodes.until(lambda: all(broker_of(nodes, number).image.next_producer_id > before for number in nodes.nodes))

    play(body, metadata_log_max_record_bytes_between_snapshots=str(1 << 20))  # none is written meanwhile

"""Producer ids: no two producers have one, whichever controllers have given the blocks that they are from."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.handlers import allocate_producer_ids
from ottla.broker.node import Broker
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.allocate_producer_ids import AllocateProducerIdsRequest

NO_CONTEXT: Any = None


def broker_of(nodes: SimNodes, node: int) -> Broker:
    broker = nodes.nodes[node].broker
    assert broker is not None
    return broker


async def block_of(controller: Broker, node: int) -> range:
    """What the node's controller answers to another broker; nothing unless it is active, and remains so until the block is committed."""
    asking = controller.image.brokers[node]
    request = AllocateProducerIdsRequest(asking.broker_id, asking.broker_epoch)
    answer = await allocate_producer_ids.handle(controller.parts, NO_CONTEXT, request)
    if answer.error_code != ErrorCode.NONE:
        return range(0)
    return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)


async def id_of(broker: Broker) -> range:
    try:
        producer_id = await broker.controller.next_producer_id()
    except KafkaError:
        return range(0)
    return range(producer_id, producer_id + 1)


def test_no_block_is_given_twice_when_the_controller_that_gave_it_is_replaced() -> None:
    """It is cut off, and decides without being able to commit."""

    async def body(nodes: SimNodes) -> None:
        [cut_off] = [number for number in nodes.nodes if broker_of(nodes, number).controller.is_active]
        others = [number for number in nodes.nodes if number != cut_off]
        old, fabric = broker_of(nodes, cut_off), nodes.simulation.fabric
        machine = nodes.nodes[cut_off].machine
        given = [await machine.run(block_of(old, others[0]))]
        fabric.darken(machine.name)
        asked = [asyncio.ensure_future(machine.run(asking)) for asking in (block_of(old, others[0]), id_of(old))]
        await nodes.until(lambda: any(broker_of(nodes, other).controller.is_active for other in others))
        [number] = [other for other in others if broker_of(nodes, other).controller.is_active]
        new, machine = broker_of(nodes, number), nodes.nodes[number].machine
        given += [await machine.run(asking) for asking in (block_of(new, number), id_of(new))]
        assert all(given)
        fabric.lighten(nodes.nodes[cut_off].machine.name)
        ids = [producer_id for block in (*given, *await asyncio.gather(*asked)) for producer_id in block]
        assert len(set(ids)) == len(ids)

    play(body)

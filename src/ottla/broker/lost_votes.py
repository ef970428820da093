"""Whether a controller that has no metadata log was in its quorum before: the other voters are asked, as far as they answer.

One that was has forgotten how it voted, and what it helped to commit. Formatted as if it were new it could help to elect a controller that
lacks what was decided. Those who start for the first time are in no other's metadata: each controller registers (KIP-919).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from ottla.broker.metadata.log import has_metadata
from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.peers import Peers, SetUp
from ottla.broker.requests.between_nodes import read_introductions
from ottla.broker.roles import NodeRoles
from ottla.config import BrokerConfig
from ottla.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.ports import World

WAIT_MS: Final = 3_000
CONTROLLERS: Final = 2
"""The endpoint type of DescribeCluster."""


async def voter_that_knows(world: World, config: BrokerConfig, roles: NodeRoles) -> str | None:
    """Returns the address of another voter that has this one in its metadata, where this one has none.

    None where no other voter says so within ``WAIT_MS``, and for a node that is no voter of several. INVALID_CONFIG where this node could
    not make itself known to others: none was asked.
    """
    others = [address for node_id, address in sorted(roles.voters.items()) if node_id != config.node_id]
    if config.node_id not in roles.voters or not others or await has_metadata(world.disk, config.log_dirs[0]):
        return None
    introductions = await read_introductions(world, config, roles)
    peers = Peers(
        introductions.controllers.over(world), CallerName("ottla-storage-format"), silence_ms_max=WAIT_MS, set_up=SetUp(WAIT_MS, WAIT_MS)
    )
    asking = [asyncio.ensure_future(_knows(peers, address, config.node_id)) for address in others]
    try:
        with contextlib.suppress(TimeoutError):
            for answer in asyncio.as_completed(asking, timeout=WAIT_MS / 1000):
                if (found := await answer) is not None:
                    return found
    finally:
        for task in asking:
            task.cancel()
        peers.close()
    return None


async def _knows(peers: Peers, address: tuple[str, int], node_id: int) -> str | None:
    answer = await peers.ask(address, DescribeClusterRequest(endpoint_type=CONTROLLERS))
    if not isinstance(answer, DescribeClusterResponse) or all(controller.broker_id != node_id for controller in answer.brokers):
        return None
    return f"{address[0]}:{address[1]}"

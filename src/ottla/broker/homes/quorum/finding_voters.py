"""Where the voters are, from servers of which one may know it (``controller.quorum.bootstrap.servers``, KIP-853)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.peers import Address, Peers
from ottla.loggers import get_logger
from ottla.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, PartitionData, TopicData
from ottla.ports import World
from ottla.types import CLUSTER_METADATA_TOPIC

log = get_logger(__name__)

SILENCE_MS_MAX: Final = 2_000
RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 1_000


async def find_voters(world: World, servers: Sequence[Address], name: CallerName) -> dict[int, Address]:
    """Returns the voters by the first server that knows them; each is asked in turn, until one does: a broker waits for its controllers."""
    peers, delay_ms = Peers(world, name, silence_ms_max=SILENCE_MS_MAX), RETRY_MS
    try:
        while True:
            for server in servers:
                found = await _ask(peers, server)
                if found:
                    log.info("voters_found", server=server, voters=found)
                    return found
            if delay_ms == RETRY_MS:
                log.warning("voters_not_found", servers=list(servers), reason="none of them answers; they are asked until one does")
            await asyncio.sleep(delay_ms / 1000)
            delay_ms = min(delay_ms * 2, RETRY_MS_MAX)
    finally:
        peers.close()


async def _ask(peers: Peers, server: Address) -> dict[int, Address]:
    request = DescribeQuorumRequest([TopicData(CLUSTER_METADATA_TOPIC, [PartitionData(0)])])
    answer = await peers.ask(server, request)
    if not isinstance(answer, DescribeQuorumResponse) or answer.error_code:
        return {}
    return {node.node_id: (node.listeners[0].host, node.listeners[0].port) for node in answer.nodes if node.listeners}

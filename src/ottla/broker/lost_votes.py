"""Whether a controller that has no metadata log was in its quorum before: the other voters are asked, as far as they answer.

One that was has forgotten how it voted, and what it helped to commit. Formatted as if it were new it could help to elect a controller that
lacks what was decided. Those who start for the first time are in no other's metadata: each controller registers (KIP-919).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, NamedTuple

from ottla.broker.metadata.log import has_metadata
from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.peers import Peers, SetUp
from ottla.broker.requests.between_nodes import read_introductions
from ottla.broker.roles import NodeRoles
from ottla.config import BrokerConfig
from ottla.errors import StorageError
from ottla.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.ports import World
from ottla.storage.directory.directory import read_identity

WAIT_MS: Final = 3_000
CONTROLLERS: Final = 2
"""The endpoint type of DescribeCluster."""


class Asked(NamedTuple):
    """The answers about a controller without a metadata log: ``evidence`` that it was in its quorum before, None where there is none.

    ``silent`` are all other voters where none of them could say it: none answers, or those that do have no metadata either.
    """

    evidence: str | None = None
    silent: tuple[str, ...] = ()


async def ask_others(world: World, config: BrokerConfig, roles: NodeRoles) -> Asked:
    """Returns whether this node's votes are lost, as its other directories and the other voters say within ``WAIT_MS``.

    Nothing is asked, and nothing known, of a node that has its metadata log, or is no voter of several. INVALID_CONFIG where this node
    could not make itself known to others: none was asked.
    """
    others = [address for node_id, address in sorted(roles.voters.items()) if node_id != config.node_id]
    if config.node_id not in roles.voters or not others or await has_metadata(world.disk, config.log_dirs[0]):
        return Asked()
    if (path := await _formatted_before(world, config)) is not None:
        return Asked(f"{path} is formatted for it")
    introductions = await read_introductions(world, config, roles)
    peers = Peers(
        introductions.controllers.over(world), CallerName("ottla-storage-format"), silence_ms_max=WAIT_MS, set_up=SetUp(WAIT_MS, WAIT_MS)
    )
    asking = [asyncio.ensure_future(_known_to(peers, address)) for address in others]
    can_tell = False
    try:
        with contextlib.suppress(TimeoutError):
            for answer in asyncio.as_completed(asking, timeout=WAIT_MS / 1000):
                address, known = await answer
                if config.node_id in known:
                    return Asked(f"{address} knows it")
                can_tell |= bool(known)
    finally:
        for task in asking:
            task.cancel()
        peers.close()
    return Asked(silent=() if can_tell else tuple(f"{host}:{port}" for host, port in others))


async def _formatted_before(world: World, config: BrokerConfig) -> str | None:
    """Returns a directory of this node that is formatted, where that of the metadata log, which is formatted first, is not."""
    first, *others = config.log_dirs
    for path in [first, *others]:
        with contextlib.suppress(StorageError, OSError):  # one that cannot be read says nothing; formatting it is refused
            identity = await read_identity(world.disk, path)
            if identity is not None:
                return path if path != first and identity.node_id == config.node_id else None
    return None


async def _known_to(peers: Peers, address: tuple[str, int]) -> tuple[str, set[int]]:
    """Returns the address, and the controllers that the voter there has in its metadata: none where it does not answer."""
    answer = await peers.ask(address, DescribeClusterRequest(endpoint_type=CONTROLLERS))
    known = {controller.broker_id for controller in answer.brokers} if isinstance(answer, DescribeClusterResponse) else set()
    return f"{address[0]}:{address[1]}", known

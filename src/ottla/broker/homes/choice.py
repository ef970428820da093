"""Which home a node has: asked here, and nowhere else. A home is imported when a node has it: a lone broker starts without the others."""

from __future__ import annotations

from typing import assert_never

from ottla.broker.home import Basis, Home
from ottla.broker.roles import HomeKind


async def open_home(basis: Basis) -> Home:
    """Opens the node's home, with its log directories and the metadata. KafkaError or StorageError says what was wrong."""
    match basis.roles.home:
        case HomeKind.LONE:
            from ottla.broker.homes.lone import LoneHome

            return await LoneHome.open(basis)
        case HomeKind.QUORUM:
            from ottla.broker.homes.quorum.home import QuorumHome

            return await QuorumHome.open(basis)
        case HomeKind.ZOOKEEPER:
            from ottla.broker.homes.zookeeper.home import ZookeeperHome

            return await ZookeeperHome.open(basis)
        case kind:
            assert_never(kind)

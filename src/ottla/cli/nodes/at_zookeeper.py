"""A cluster of this machine whose metadata is in ZooKeeper: in one that runs somewhere, or in one beside the nodes.

The ZooKeeper beside them is Apache's, from PySpark's jars and with any Java that is there. It ends with the supervisor, whatever ends that.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from ottla.cli.nodes.place import ClusterFile, Place, PlaceError
from ottla.cli.nodes.plan import HOST, check_free
from ottla.config import BrokerConfig
from ottla.runtime.zookeeper_server import ZooKeeperServer


def begin_home(place: Place, cluster: ClusterFile) -> ZooKeeperServer | None:
    """Reaches ZooKeeper, which has the cluster's id; returns the server if it is the cluster's own. PlaceError or KafkaError if not."""
    if cluster.zookeeper is None:
        return None
    server = None if cluster.zookeeper_port is None else _start(place, cluster.zookeeper_port)
    try:
        cluster.cluster_id = asyncio.run(_cluster_id(cluster, cluster.zookeeper))
    except BaseException:
        if server is not None:
            server.kill()
        raise
    return server


def _start(place: Place, port: int) -> ZooKeeperServer:
    from ottla.runtime.java import JavaMissingError

    check_free([(HOST, port)], "the cluster's ZooKeeper needs it")
    server = ZooKeeperServer(Path(place.path) / "zookeeper", port)
    try:
        server.start()
    except (JavaMissingError, RuntimeError) as error:
        server.kill()
        raise PlaceError(f"--zookeeper own: {error}") from None
    return server


async def _cluster_id(cluster: ClusterFile, servers: str) -> str:
    from ottla.broker.homes.zookeeper.metadata import find_cluster
    from ottla.runtime.world import real_world

    await _check_names(servers)
    world = real_world(io_threads=1)
    config = BrokerConfig(cluster.properties | {"zookeeper.connect": servers})
    found = await find_cluster(world, config, cluster.cluster_id)
    await found.session.close()
    return found.cluster_id


async def _check_names(servers: str) -> None:
    """Raises PlaceError at once where no name of ZooKeeper's is known. A broker, which may start with its machine, would wait for it."""
    try:
        from ottla.runtime.zookeeper_hosts import unknown_names

        unknown = await unknown_names(servers)
    except ImportError:  # kazoo is missing, which the session says
        return
    except ValueError as error:
        raise PlaceError(f"ZooKeeper at {servers}: {error}") from None
    if unknown is not None:
        raise PlaceError(f"ZooKeeper at {servers}: {unknown}; see that it is spelt right, and that `getent hosts NAME` finds it")

"""The real world: all of its ports."""

from __future__ import annotations

import random
import secrets
from concurrent.futures import ThreadPoolExecutor

from ottla.ports import Download, World
from ottla.runtime.clock import LoopTimers, SystemClock
from ottla.runtime.files import RealDisk
from ottla.runtime.sockets import RealNetwork
from ottla.runtime.warming import Warmer
from ottla.runtime.zookeeper import ZooKeeper


def real_world(*, io_threads: int = 8, network_threads: int = 3) -> World:
    """Returns ports of this machine, for the running event loop. Threads (for files; for cold ranges to send) start when first needed."""
    pool = ThreadPoolExecutor(max_workers=io_threads, thread_name_prefix="ottla-io")
    return World(
        clock=SystemClock(),
        random=random.Random(),
        timers=LoopTimers(),
        disk=RealDisk(pool),
        network=RealNetwork(Warmer(network_threads)),
        secret_bytes=secrets.token_bytes,
        coordination=ZooKeeper(),
        fetch=_fetch,
    )


async def _fetch(wanted: Download) -> bytes:
    from ottla.runtime.https import fetch  # few need it

    return await fetch(wanted)

"""Brokers and clusters for tests: started in a thread or as processes, disturbed, killed, and what clients did with them judged.

::

    from ottla.testing import broker, cluster, thread_cluster

    with broker() as b:              # in a thread of this process
        print(b.bootstrap)

    with cluster(3) as c:            # processes, which can be killed
        topic = c.topic("orders", partitions=3)
        c.kill(c.leader_of(topic, 0))

pytest finds the same as fixtures (``ottla.pytest_plugin``). Keyword arguments are broker keys with ``_`` for ``.``; data are temporary.
"""

from __future__ import annotations

from typing import Never

from ottla.testing.faults import Fault, Faults
from ottla.testing.history import History
from ottla.testing.layout import BrokerKeyError, properties_from
from ottla.testing.process_nodes import ProcessNodes
from ottla.testing.records import Seen
from ottla.testing.secure_broker import SecureBroker
from ottla.testing.served import Served
from ottla.testing.thread_nodes import ThreadNodes

__all__ = [
    "BrokerKeyError",
    "Fault",
    "Faults",
    "History",
    "ProcessNodes",
    "SecureBroker",
    "Seen",
    "Served",
    "ThreadNodes",
    "broker",
    "cluster",
    "secure_broker",
    "secure_cluster",
    "thread_cluster",
]


def broker(*positional: Never, **properties: object) -> ThreadNodes:
    """Returns a single broker, in a thread of this process, for the block of a ``with``."""
    if positional:
        raise TypeError("broker() is one node, and takes broker keys as keywords: write thread_cluster(3) or cluster(3) for several")
    return ThreadNodes(1, properties_from(properties))


def secure_broker(*positional: Never, **properties: object) -> SecureBroker:
    """Returns a single broker with SASL_SSL, SCRAM and an authorizer, for the block of a ``with``; it makes its certificate itself."""
    if positional:
        raise TypeError("secure_broker() is one node, and takes broker keys as keywords: write secure_cluster(3) for several")
    return SecureBroker(properties_from(properties))


def secure_cluster(count: int = 3, **properties: object) -> SecureBroker:
    """Returns so many nodes in one thread, secured as ``secure_broker`` is, among each other as well, for the block of a ``with``."""
    return SecureBroker(properties_from(properties), count)


def cluster(count: int = 3, **properties: object) -> ProcessNodes:
    """Returns so many nodes, each in a process of its own, for the block of a ``with``: they can be killed, paused and restarted."""
    return ProcessNodes(count, properties_from(properties))


def thread_cluster(count: int = 3, **properties: object) -> ThreadNodes:
    """Returns so many nodes in one thread of this process, for a ``with``: they start sooner, and can be stopped, not killed."""
    return ThreadNodes(count, properties_from(properties))

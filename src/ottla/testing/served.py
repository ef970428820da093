"""What every broker and cluster of a test offers: where it is, new topics, and who leads."""

from __future__ import annotations

import itertools
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sized
from typing import TYPE_CHECKING, ClassVar, Final, Never

from ottla.client.options import ClusterOptions
from ottla.errors import ErrorCode, KafkaError
from ottla.sync import Admin, NewTopic
from ottla.testing.layout import properties_from
from ottla.types import NO_LEADER, TOPIC_NAME_LENGTH_MAX

LEADER_SECONDS_MAX: Final = 30.0
UNKNOWN_SECONDS_MAX: Final = 2.0
"""For so long one node of several may not have heard of a topic that another one has made."""
LOOK_SECONDS: Final = 0.01

_numbers = itertools.count(1)
_OF_OTHERS: Final = dict.fromkeys(
    ("get_bootstrap_server", "get_bootstrap_servers", "bootstrap_server", "bootstrap_servers"), "write bootstrap, which is no call"
)
_OF_TOPICS: Final = {
    **dict.fromkeys(("partition_count", "num_partitions", "partition"), "write partitions"),
    **dict.fromkeys(("replicas", "num_replicas", "replication"), "write replication_factor"),
    **dict.fromkeys(("topic", "topic_name"), "write name"),
    **dict.fromkeys(
        ("config", "configs", "topic_config", "topic_configs"), "configurations are keyword arguments, as in retention_ms=1000"
    ),
}
"""What is meant by the keywords with which topics are made elsewhere."""


class Served(ABC):
    """A broker or a cluster that clients reach at ``bootstrap``: the common type of all, for annotations."""

    _elsewhere: ClassVar[Mapping[str, str]] = {}  # what only other kinds of nodes have, and what there is instead
    _has_ended = False

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raises AttributeError, with the way out for what another kind of nodes has."""
            way_out = self._elsewhere.get(name) or _OF_OTHERS.get(name)
            raise AttributeError(f"{type(self).__name__} has no {name!r}" + (f": {way_out}" if way_out else ""))

    def __repr__(self) -> str:
        try:
            return f"<{type(self).__name__} of node {', '.join(map(str, self.node_ids))} at {self.bootstrap}>"
        except RuntimeError:
            return f"<{type(self).__name__} of node {', '.join(map(str, self.node_ids))}, not begun>"

    def _check_begun(self, nodes: Sized) -> None:
        """Raises RuntimeError before the block of the ``with`` and after it, where there are no nodes."""
        if self._has_ended:
            raise RuntimeError("the block of these nodes has ended: they are stopped, and their data are deleted")
        if not nodes:
            raise RuntimeError("the nodes start with a block: `with broker() as b:`, and then b.bootstrap; a fixture has begun one")

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """``host:port`` of each node, with commas between them: a client's ``bootstrap.servers``."""

    @property
    def client_settings(self) -> ClusterOptions:
        """What an ottla client needs beside ``bootstrap``, to do everything: nothing, where nothing is secured."""
        return {}

    @property
    @abstractmethod
    def log(self) -> str:
        """What the nodes have logged."""

    def topic(self, name: str = "topic", *positional: Never, partitions: int = 1, replication_factor: int = -1, **configs: object) -> str:
        """Creates a topic with a new name that starts with ``name``. Configurations are keyword arguments with ``_`` for ``.``."""
        if positional:
            raise TypeError(f"topic() takes a name by position, and nothing else: write topic({name!r}, partitions={positional[0]!r})")
        for keyword in configs:
            if keyword in _OF_TOPICS:
                raise TypeError(f"topic() has no argument {keyword!r}: {_OF_TOPICS[keyword]}")
        fresh = f"{re.sub(r'[^a-zA-Z0-9._-]', '-', name)[: TOPIC_NAME_LENGTH_MAX - 10]}-{next(_numbers)}"
        with Admin(self.bootstrap, **self.client_settings) as admin:
            error = admin.create_topics([NewTopic(fresh, partitions, replication_factor, configs=properties_from(configs))])[fresh]
        if error is not None:
            raise error
        self._led(fresh, partitions - 1, LEADER_SECONDS_MAX, is_new=True)
        return fresh

    def leader_of(self, topic: str, partition: int = 0, *, seconds: float = LEADER_SECONDS_MAX) -> int:
        """Returns the id of the node that leads the partition, and waits until it runs.

        LEADER_NOT_AVAILABLE when there is none in so many seconds. UNKNOWN_TOPIC_OR_PARTITION at once where the topic exists without that
        partition, or the one node does not have it; after two seconds at most where several nodes do not.
        """
        return self._led(topic, partition, seconds, is_new=False)

    def _led(self, topic: str, partition: int, seconds: float, *, is_new: bool) -> int:
        """Returns the leader. Nodes that do not know all partitions of a topic that ``is_new`` yet are waited for."""
        begun, limit_ms = time.monotonic(), max(1, round(1000 * seconds))
        with Admin(self.bootstrap, **self.client_settings, default_api_timeout_ms=limit_ms) as admin:
            while True:
                problem = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
                try:
                    partitions = admin.describe_topic(topic).partitions if any(map(self.is_running, self.node_ids)) else {}
                    found = partitions.get(partition)
                    if found is not None and found.leader != NO_LEADER and self.is_running(found.leader):
                        return found.leader
                except KafkaError as error:
                    problem, partitions, found = error, {}, None
                waited = time.monotonic() - begun
                if partitions and found is None and not is_new:
                    text = f"topic {topic!r} has no partition {partition}; it has {len(partitions)}"
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
                is_unknown = problem.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not is_new
                if is_unknown and (len(self.node_ids) == 1 or waited > UNKNOWN_SECONDS_MAX):
                    raise problem
                if waited > seconds:
                    replicas = self.node_ids if found is None else found.replicas
                    stopped = [str(node_id) for node_id in replicas if node_id in self.node_ids and not self.is_running(node_id)]
                    why = f" in {seconds:g} s; of its replicas' nodes these do not run: {', '.join(stopped)}" if stopped else ""
                    raise KafkaError(problem.code, f"{problem.message}{why}")
                time.sleep(LOOK_SECONDS)

    @property
    @abstractmethod
    def node_ids(self) -> list[int]:
        """The ids of all nodes, from 1 on, whether they run or not."""

    def check(self, node_id: int) -> int:
        """Returns the id; ValueError when no node has it."""
        if node_id not in self.node_ids:
            there = "there is" if len(self.node_ids) == 1 else "there are"
            raise ValueError(f"there is no node {node_id!r}; {there} {', '.join(map(str, self.node_ids))}")
        return node_id

    @abstractmethod
    def is_running(self, node_id: int) -> bool:
        """True when the node serves: it is neither stopped nor killed nor paused."""

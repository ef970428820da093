"""What the clients of a run know, what it has drawn, and what was noticed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.crowd.meetings import Meetings

from ottla.broker.node import Broker
from ottla.client.cluster import Cluster
from ottla.sim.cluster import SimBroker, Simulation
from ottla.types import TopicPartition

KEPT, TABLE, AGED, ROTTEN = "kept", "table", "aged", "rotten"
TOPICS: Final = {
    KEPT: {},
    TABLE: {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "100",
        "max.compaction.lag.ms": "1000",
    },
    AGED: {
        "cleanup.policy": "compact,delete",
        "retention.bytes": "3000",
        "retention.ms": "2500",
        "min.compaction.lag.ms": "10",
        "min.cleanable.dirty.ratio": "0.01",
    },
    ROTTEN: {"retention.bytes": "20000"},
}
"""Of the first everything is kept, of the second the newest of each key; the third is compacted and deleted; of the last bits rot."""
PARTITIONS: Final = 2
REQUEST_TIMEOUT_MS: Final = 2000


@dataclass(slots=True)
class Knowledge:
    simulation: Simulation
    broker: SimBroker
    meetings: Meetings
    is_over: asyncio.Event
    findings: list[str]
    acknowledged: dict[tuple[TopicPartition, int], bytes] = field(default_factory=dict)
    newest: dict[tuple[TopicPartition, bytes], int] = field(default_factory=dict)  # the newest acknowledged offset of a key
    deleted: dict[TopicPartition, int] = field(default_factory=dict)  # below which records were deleted, as DeleteRecords said
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    _randoms: dict[str, random.Random] = field(default_factory=dict)

    def random(self, name: str) -> random.Random:
        """The random numbers of one client, or of another part."""
        found = self._randoms.get(name)
        if found is None:
            found = self._randoms[name] = self.simulation.random(f"crowd/{name}")
        return found

    def client(self, name: str) -> Cluster:
        """A client's view of the cluster, on a machine of its own. It does not wait for long where there is silence."""
        return self.broker.client(name, request_timeout_ms=REQUEST_TIMEOUT_MS)

    @property
    def running(self) -> Broker | None:
        """The broker, unless it is down."""
        return self.broker.broker

"""What a consumer is given that names its rack (KIP-392).

A leader with ``replica.selector.class`` sends it to a replica of that rack that is in sync and has the offset: of several, to the one whose
log ends last. Any replica shows it what is committed as far as that replica knows: the consumer was sent there, or believes that it leads.
A consumer that names no rack reads from leaders alone. (Kafka's followers answer it, too, and one whose metadata is old takes a follower
that lags for a log that was cut.)
"""

from __future__ import annotations

from ottla.broker.fetching.consumer import ConsumerPolicy
from ottla.broker.fetching.fetch_pass import FetchPass
from ottla.broker.parts import Parts
from ottla.broker.replicas.leading import Leading
from ottla.broker.replicas.partition import Partition
from ottla.config.keys.cluster import RACK_AWARE
from ottla.messages.fetch import FetchPartition, FetchRequest, PartitionData


class NearbyPolicy(ConsumerPolicy):
    """A ``ConsumerPolicy``, of which a leader may say who else is to be asked."""

    __slots__ = ("_listener", "_parts", "_rack", "_sends_away")

    def __init__(self, request: FetchRequest, parts: Parts, listener: str) -> None:
        super().__init__(request)
        self._parts = parts
        self._listener = listener
        self._rack = request.rack_id
        self._sends_away = parts.config["replica.selector.class"] == RACK_AWARE and parts.config["broker.rack"] != self._rack

    async def read(self, fetch: FetchPass, partition: Partition, wanted: FetchPartition, data: PartitionData, budget: int) -> None:
        leading = partition.leading
        if self._sends_away and leading is not None:
            partition.check_leads(wanted.current_leader_epoch)
            node = self._nearest(leading, wanted.fetch_offset)
            if node is not None:
                data.preferred_read_replica = node
                data.high_watermark, data.last_stable_offset = partition.high_watermark, partition.last_stable_offset
                data.log_start_offset = partition.log.log_start_offset
                data.aborted_transactions = [] if self.is_read_committed else None
                fetch.has_error = True  # it is answered at once
                return
        await super().read(fetch, partition, wanted, data, budget)

    def _nearest(self, leading: Leading, offset: int) -> int | None:
        """Returns the nearest replica; None where the leader itself is to be read from."""
        brokers = self._parts.image.brokers
        holders = leading.machine.holders_of(offset)
        found = [node for node in holders if (broker := brokers.get(node)) is not None and broker.rack == self._rack]
        reached = [node for node in found if not brokers[node].is_fenced and self._listener in brokers[node].endpoints]
        return max(reached, key=lambda node: (holders[node], node), default=None)

    def check(self, partition: Partition, known_epoch: int) -> None:
        partition.check_epoch(known_epoch)

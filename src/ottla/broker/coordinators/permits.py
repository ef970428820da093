"""Whether a partition may take a producer's transactional batch: asked of the coordinator, by the broker that leads the partition.

For producers of transaction.version 2 the request adds the partitions; producers of earlier versions have added them, and the broker only
verifies. What one turn of the loop asks of one coordinator goes in one request; a coordinator on this broker is asked without one, by the
same code. A coordinator that is busy with the transaction before is asked again, for as long as the configuration says. Source: KIP-890.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ottla.broker.coordinators.transactions import TransactionShards
from ottla.broker.tasks.waiters import Waiters
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.ports import World
from ottla.transactions.commands import AddPartitions, PartitionsResult, VerifyPartitions
from ottla.types import TopicPartition
from ottla.wire.schema import Response


class _Key(NamedTuple):
    """The subject of one element of a request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


class _Asked:
    """One element, and the permits that wait for its answer."""

    __slots__ = ("answered", "codes", "key", "partitions")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.partitions: dict[TopicPartition, None] = {}
        self.answered = Waiters()
        self.codes: dict[TopicPartition, int] = {}


class TransactionPermits:
    """The permits that one broker has asked coordinators for."""

    def __init__(self, world: World, config: BrokerConfig, shards: TransactionShards) -> None:
        self._world = world
        self._config = config
        self._shards = shards
        self._due: dict[int, list[dict[_Key, _Asked]]] = {}
        self.verification_count = self.verification_ms = self.verification_failure_count = 0

    async def permit(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: list[TopicPartition], *, adds: bool
    ) -> dict[TopicPartition, int]:
        """Returns one code for each partition: NONE when it is in the committed transaction. NETWORK_EXCEPTION without an answer."""
        key, began_ms = _Key(transactional_id, producer_id, producer_epoch, adds), self._world.clock.monotonic_ms()
        codes = await self._ask(key, partitions)
        backoff_ms: int = self._config["add.partitions.to.txn.retry.backoff.ms"]
        until_ms = self._world.clock.monotonic_ms() + self._config["add.partitions.to.txn.retry.backoff.max.ms"]
        while adds and self._world.clock.monotonic_ms() < until_ms:
            busy = [partition for partition, code in codes.items() if code == ErrorCode.CONCURRENT_TRANSACTIONS]
            if not busy:
                break
            await asyncio.sleep(backoff_ms / 1000)
            codes |= await self._ask(key, busy)
        self.verification_count += 1
        self.verification_ms += self._world.clock.monotonic_ms() - began_ms
        self.verification_failure_count += sum(1 for code in codes.values() if code)
        return codes

    async def _ask(self, key: _Key, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        leader = self._shards.leader_of(key.transactional_id)
        if leader < 0:
            return dict.fromkeys(partitions, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if leader == self._config.node_id:
            codes = await decide(self._shards, key.transactional_id, key.producer_id, key.producer_epoch, partitions, adds=key.adds)
            return dict(zip(partitions, codes, strict=True))
        asked = self._joined(leader, key)
        asked.partitions |= dict.fromkeys(partitions)
        await asked.answered.wait()
        return {partition: asked.codes.get(partition, ErrorCode.NETWORK_EXCEPTION) for partition in partitions}

    def _joined(self, leader: int, key: _Key) -> _Asked:
        """Returns the element of this turn's request to the broker. A request has each transactional id once."""
        requests = self._due.get(leader)
        if requests is None:
            requests = self._due[leader] = []
            asyncio.get_running_loop().call_soon(self._send, leader)
        for request in requests:
            if key in request:
                return request[key]
            if all(other.transactional_id != key.transactional_id for other in request):
                request[key] = _Asked(key)
                return request[key]
        requests.append({key: _Asked(key)})
        return requests[-1][key]

    def _send(self, leader: int) -> None:
        for elements in self._due.pop(leader):
            self._send_one(leader, elements)

    def _send_one(self, leader: int, elements: dict[_Key, _Asked]) -> None:
        transactions = [
            AddPartitionsToTxnTransaction(
                key.transactional_id, key.producer_id, key.producer_epoch, not key.adds, by_topic(asked.partitions)
            )
            for key, asked in elements.items()
        ]

        def on_answer(response: Response | None) -> None:
            assert response is None or isinstance(response, AddPartitionsToTxnResponse), "an API has one response type"
            found = {} if response is None else {one.transactional_id: one for one in response.results_by_transaction}
            for key, asked in elements.items():
                if response is not None and response.error_code:
                    asked.codes = dict.fromkeys(asked.partitions, response.error_code)
                else:
                    asked.codes = _codes_of(found.get(key.transactional_id))
                asked.answered.wake()

        self._shards.peers.send(leader, AddPartitionsToTxnRequest(transactions), on_answer)


async def decide(
    shards: TransactionShards, transactional_id: str, producer_id: int, producer_epoch: int, partitions: list[TopicPartition], *, adds: bool
) -> list[int]:
    """Returns this broker's coordinator's codes, one for each partition. One that the image lacks is not known yet, and not added."""
    known = await _known(shards, partitions) if adds else partitions
    codes: list[int] = []

    def command(token: int) -> AddPartitions | VerifyPartitions:
        if adds:
            return AddPartitions(token, transactional_id, producer_id, producer_epoch, tuple(known), transaction_version=2)
        return VerifyPartitions(token, transactional_id, producer_id, producer_epoch, tuple(known))

    try:
        if known:
            result: PartitionsResult = await shards.ask(transactional_id, command)
            codes = list(result.error_codes)
    except KafkaError as error:
        codes = [error.code] * len(known)
    if len(known) == len(partitions):
        return codes
    answered = iter(codes)
    found = set(known)
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return [next(answered) if key in found else unknown async for key in shards.slices().over(partitions)]


async def _known(shards: TransactionShards, partitions: list[TopicPartition]) -> list[TopicPartition]:
    topics = shards.image.topics
    keys = shards.slices().over(partitions)
    return [key async for key in keys if (topic := topics.get(key.topic)) is not None and key.partition in topic.partitions]


def by_topic(partitions: dict[TopicPartition, None]) -> list[AddPartitionsToTxnTopic]:
    """Returns the partitions as requests have them."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for key in partitions:
        topics.setdefault(key.topic, AddPartitionsToTxnTopic(key.topic)).partitions.append(key.partition)
    return list(topics.values())


def _codes_of(result: AddPartitionsToTxnResult | None) -> dict[TopicPartition, int]:
    if result is None:
        return {}
    return {
        TopicPartition(topic.name, found.partition_index): found.partition_error_code
        for topic in result.topic_results
        for found in topic.results_by_partition
    }

"""An application that writes with ottla's own transactional producer, and does what its errors ask for."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from tests.simulation.transactional_client import STALL_SECONDS, TIMEOUT_MS, Attempts, Outcome

from ottla.client.cluster import Cluster
from ottla.client.group_metadata import GroupMetadata
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.client.transaction_errors import CommitOutcomeUnknownError, TransactionAbortableError, TransactionFatalError
from ottla.errors import KafkaError
from ottla.types import TopicPartition

NAME: Final = "ours"
SETTINGS: Final = ProducerSettings(
    transactional_id=NAME, transaction_timeout_ms=TIMEOUT_MS, max_block_ms=20_000, delivery_timeout_ms=30_000, linger_ms=0
)


class Application:
    """One process; the producer is made anew when it is fenced, or cannot go on."""

    def __init__(
        self,
        cluster_of: Callable[[], Cluster],
        attempts: Attempts,
        keys: list[TopicPartition],
        rng: random.Random,
        is_over: asyncio.Event,
        states: Counter[str],
    ) -> None:
        self._cluster_of = cluster_of
        self._attempts = attempts
        self._keys = keys
        self._rng = rng
        self._is_over = is_over
        self._states = states

    async def run(self) -> None:
        while not self._is_over.is_set():
            producer = Producer(self._cluster_of(), SETTINGS)
            try:
                await self._again(producer.init_transactions)
                while not self._is_over.is_set():
                    await self._transact(producer)
            except TransactionFatalError as error:
                self._states[f"application begins anew: {error.code.name}"] += 1
            except KafkaError:
                self._states["application ends"] += 1
            try:
                await producer.close()
            except KafkaError:
                continue

    async def _again(self, call: Callable[[], Awaitable[None]]) -> None:
        """A call that ran out of its time is made again, until the run is over."""
        while True:
            try:
                return await call()
            except (TransactionAbortableError, TransactionFatalError):
                raise
            except KafkaError:
                if self._is_over.is_set() and self._rng.random() < 0.2:
                    raise

    async def _transact(self, producer: Producer) -> None:
        await self._again(producer.begin_transaction)
        attempt = self._attempts.begin(NAME)
        try:
            for number in range(self._rng.randint(1, 6)):
                value = b"%s/%d/%d" % (NAME.encode(), attempt.number, number)
                attempt.values.append(value)
                key = self._rng.choice(self._keys)
                await producer.send(key.topic, value, partition=key.partition)
            if self._rng.random() < 0.5:
                attempt.offset = attempt.number
                await self._again(lambda: producer.send_offsets_to_transaction({self._keys[0]: attempt.number}, GroupMetadata(NAME)))
            if self._rng.random() < 0.03:
                await asyncio.sleep(STALL_SECONDS)
            if self._rng.random() < 0.3:
                await self._again(producer.abort_transaction)
                self._states["application has aborted"] += 1
                return
            attempt.outcome = Outcome.UNKNOWN
            await self._commit(producer)
            attempt.outcome = Outcome.COMMITTED
            self._states["application has committed"] += 1
        except TransactionAbortableError:
            await self._again(producer.abort_transaction)
            attempt.outcome = Outcome.ABORTED
            self._states["application had to abort"] += 1

    async def _commit(self, producer: Producer) -> None:
        while True:
            try:
                return await self._again(producer.commit_transaction)
            except CommitOutcomeUnknownError:
                continue

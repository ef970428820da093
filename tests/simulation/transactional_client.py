"""Transactional producers that repeat what was not answered, stall, and take each other's id; and what they know in the end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tests.broker.transactional import TransactionalProducer

from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

TIMEOUT_MS: Final = 8_000
STALL_SECONDS: Final = 14
PAUSE_SECONDS: Final = 0.1
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Outcome(Enum):
    """What its producer knows of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Attempt:
    """A transaction. ``number`` rises with each one of a transactional id, whoever begins it; 0 for ``offset`` when it committed none."""

    transactional_id: str
    number: int
    values: list[bytes] = field(default_factory=list)
    offset: int = 0
    outcome: Outcome = Outcome.ABORTED


class Attempts:
    """Those of all producers of one run."""

    def __init__(self) -> None:
        self.all: list[Attempt] = []
        self._numbers: Counter[str] = Counter()

    def begin(self, transactional_id: str) -> Attempt:
        self._numbers[transactional_id] += 1
        attempt = Attempt(transactional_id, self._numbers[transactional_id])
        self.all.append(attempt)
        return attempt


class GivenUp(Exception):
    """The producer is fenced, or the run is over."""


class Transactor:
    """One process with a transactional id."""

    def __init__(
        self,
        cluster: Cluster,
        attempts: Attempts,
        transactional_id: str,
        keys: list[TopicPartition],
        rng: random.Random,
        is_over: asyncio.Event,
        states: Counter[str],
        *,
        level: int,
    ) -> None:
        self._producer = TransactionalProducer(cluster, transactional_id, level=level, timeout_ms=TIMEOUT_MS)
        self._attempts = attempts
        self._id = transactional_id
        self._keys = keys
        self._rng = rng
        self._is_over = is_over
        self._states = states
        self._level = level
        self._needs_an_epoch = False

    async def run(self, *, waits_seconds: float = 0) -> None:
        """Transactions until the run is over; a producer that was fenced comes back after a while."""
        while not self._is_over.is_set():
            await asyncio.sleep(self._rng.uniform(0, waits_seconds))
            try:
                await self._init()
                while not self._is_over.is_set():
                    await self._transact()
            except GivenUp:
                self._states["producers fenced"] += 1
            except KafkaError as error:
                self._states[f"producer stopped: {error.code.name}"] += 1
        await self._producer.cluster.close()

    async def _init(self) -> None:
        code = await self._ask(self._producer.init)
        if code:
            raise KafkaError(ErrorCode(code))

    async def _transact(self) -> None:
        if self._level < 2 and self._needs_an_epoch:
            self._needs_an_epoch = False
            before = self._producer.producer_id, self._producer.epoch
            code = await self._ask(lambda: self._producer.init(*before))
            if code:
                raise GivenUp
        attempt = self._attempts.begin(self._id)
        keys = self._rng.sample(self._keys, self._rng.randint(1, len(self._keys)))
        for number, key in enumerate(keys * self._rng.randint(1, 2)):
            value = b"%s/%d/%d" % (self._id.encode(), attempt.number, number)
            attempt.values.append(value)
            code = await self._ask(lambda key=key, value=value: self._producer.write(key, value))  # type: ignore[misc]
            if code:
                await self._leave(code)
                return
        if self._rng.random() < 0.5:
            attempt.offset = attempt.number
            offsets = {self._keys[0]: attempt.number}
            code = await self._ask(lambda: self._producer.commit_offsets(self._id, offsets))
            if code:
                await self._leave(code)
                return
        if self._rng.random() < 0.05:
            await asyncio.sleep(STALL_SECONDS)
            self._states["producers stalled"] += 1
        await self._end(attempt)
        await asyncio.sleep(self._rng.choice([0, 0, self._rng.uniform(0, 1)]))

    async def _end(self, attempt: Attempt) -> None:
        is_commit = self._rng.random() < 0.7
        if is_commit:
            attempt.outcome = Outcome.UNKNOWN
        code = await self._ask(lambda: self._producer.end(is_commit=is_commit))
        if code == 0:
            attempt.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
            self._states[f"transactions {attempt.outcome.value}"] += 1
        elif code in FENCED:
            self._states["transactions lost to their time or a rival"] += 1
            raise GivenUp
        else:
            raise AssertionError(f"the end of {attempt} was refused: {ErrorCode(code).name}")

    async def _leave(self, code: int) -> None:
        """The transaction is aborted, by this producer or by its coordinator."""
        self._states[f"transactions left: {ErrorCode(code).name}"] += 1
        if code in FENCED:
            raise GivenUp
        assert code in ABORTABLE, f"nobody expects {ErrorCode(code).name}"
        self._needs_an_epoch |= code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # the topic was made again: nothing is known there (KIP-360)
        code = await self._ask(lambda: self._producer.end(is_commit=False))
        if code:
            raise GivenUp

    async def _ask(self, ask: Callable[[], Awaitable[int]]) -> int:
        """The first code after which clients do not ask again."""
        while True:
            try:
                code = await ask()
            except KafkaError:
                self._needs_an_epoch = True  # a request that is still on its way would end the next transaction
                code = ErrorCode.NETWORK_EXCEPTION
            if not KafkaError(ErrorCode(code)).is_retriable:
                return code
            if self._is_over.is_set() and self._rng.random() < 0.02:
                raise GivenUp
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                await self._producer.cluster.refresh()
            except KafkaError:
                continue

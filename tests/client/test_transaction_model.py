"""The laws of transactions, over a network that loses, delays and repeats what the producer asks, and a broker that refuses some of it.

A transaction whose commit returned counts entirely and once; one that was aborted, or never committed, counts in no part; one of which
the producer was fenced while it committed counts entirely or not at all.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from tests.client.simulated import KEY, with_broker
from tests.client.transactional_broker import Again, Fault, TransactionalBroker

from ottla.client.group_metadata import GroupMetadata
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.client.transaction_errors import CommitOutcomeUnknownError, TransactionAbortableError, TransactionFatalError
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.messages.end_txn import EndTxnRequest
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.produce import ProduceRequest
from ottla.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference, Lost
from ottla.wire.schema import Request

TRANSACTION_COUNT = 25
KINDS: list[type[Request]] = [
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    ProduceRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
]
MAY_PASS = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS]
FINAL = {
    ProduceRequest: [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.TRANSACTION_ABORTABLE],
    AddPartitionsToTxnRequest: [ErrorCode.TOPIC_AUTHORIZATION_FAILED],
    TxnOffsetCommitRequest: [ErrorCode.ILLEGAL_GENERATION, ErrorCode.TRANSACTION_ABORTABLE],
}


class Run:
    def __init__(self, broker: SimBroker, rng: random.Random, level: int) -> None:
        self.rng = rng
        self._broker = broker
        cluster = broker.client("p", request_timeout_ms=2000)
        self.model = TransactionalBroker(Interference(cluster), level=level)
        self.producer = Producer(cluster, self._settings())
        self.committed: list[bytes] = []
        self.perhaps: list[list[bytes]] = []  # all or none of each
        self.offset: int | None = None
        self.is_offset_certain = True
        self.ends: Counter[str] = Counter()

    @staticmethod
    def _settings() -> ProducerSettings:
        return ProducerSettings(transactional_id="x", linger_ms=1, batch_size=40, max_block_ms=5000, delivery_timeout_ms=6000)

    def fault(self, kind: type[Request]) -> Fault:
        choice = self.rng.randrange(10)
        if choice < 3:
            return Lost()
        if choice < 6:
            return Again(self.rng.choice([1, 50, 400, 3000]))
        if choice < 8:
            return Held(self.rng.choice([5, 300, 1500, 3000]))
        if choice < 9 or kind not in FINAL:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if kind is ProduceRequest else self.rng.choice(MAY_PASS)
        return self.rng.choice(FINAL[kind])

    def time_out(self) -> None:
        """The coordinator aborts what is open."""
        known = self.model.known["x"]
        if known.is_open:
            self.model.time_out("x")

    async def restart(self) -> None:
        """Another process with the same transactional id."""
        try:
            await self.producer.close()
        except KafkaError:
            pass  # records that were not delivered
        cluster = self._broker.client("p", request_timeout_ms=2000)
        Interference(cluster).refuse = self.model._answer
        self.producer = Producer(cluster, self._settings())
        await self.settle(self.producer.init_transactions)

    async def settle(self, call: Any) -> None:
        """The call has returned, after the faults are over where it takes them too long."""
        while True:
            try:
                return await call()
            except (TransactionAbortableError, TransactionFatalError):
                raise
            except KafkaError as error:
                if not error.is_transient:
                    raise
                self.ends[type(error).__name__] += 1
                self.model.faults.clear()

    async def transact(self, number: int) -> None:
        for _ in range(self.rng.choice([0, 0, 1, 2, 4])):
            kind = self.rng.choice(KINDS)
            self.model.fail(kind, *[None] * self.rng.randrange(3), self.fault(kind))
        if self.rng.random() < 0.05:
            self.model.fail(self.rng.choice(KINDS), *[Lost()] * 300)
        if self.rng.random() < 0.08:
            asyncio.get_running_loop().call_later(self.rng.choice([0.001, 0.005, 0.02, 0.5]), self.time_out)
        values = [b"%d-%d" % (number, part) for part in range(self.rng.randrange(8))]
        offset = number if self.rng.random() < 0.4 else None
        is_commit = self.rng.random() < 0.7
        is_committing = False
        try:
            await self.settle(self.producer.begin_transaction)
            for value in values:
                await self.producer.send("t", value, partition=self.rng.randrange(3))
                if self.rng.random() < 0.2:
                    await self._pause()
            if offset is not None:
                await self.producer.send_offsets_to_transaction({KEY: offset}, GroupMetadata("g"))
            if self.rng.random() < 0.3:
                await self._pause()
            if not is_commit:
                await self.settle(self.producer.abort_transaction)
                return
            is_committing = True
            await self.settle(self.producer.commit_transaction)
            self.committed += values
            if offset is not None:
                self.offset, self.is_offset_certain = offset, True
        except TransactionAbortableError:
            self.ends["TransactionAbortableError"] += 1
            await self.settle(self.producer.abort_transaction)
        except TransactionFatalError:
            self.ends["TransactionFatalError"] += 1
            if is_committing:
                self.perhaps.append(values)
                self.is_offset_certain = self.is_offset_certain and offset is None
            await self.restart()

    async def _pause(self) -> None:
        try:
            await self.producer.flush()
        except KafkaError:
            pass  # the transaction says so, too


def ends_of(level: int, seed: int) -> Counter[str]:
    """What ended the transactions of the run, whose laws hold."""
    met: Counter[str] = Counter()

    async def body(broker: SimBroker) -> None:
        run = Run(broker, random.Random(seed), level)
        await run.producer.init_transactions()
        for number in range(TRANSACTION_COUNT):
            try:
                await run.transact(number)
            except TransactionFatalError:  # while it aborted
                await run.restart()
        run.model.faults.clear()
        await run.restart()  # which ends what is open
        stored = run.model.stored()
        assert len(set(stored)) == len(stored), "no record is stored twice"
        seen = set(run.model.committed())
        for values in run.perhaps:
            assert seen.isdisjoint(values) or seen.issuperset(values)
            seen -= set(values)
        assert seen == set(run.committed)
        if run.is_offset_certain:
            assert run.model.offsets.get("g", {}).get(KEY) == run.offset
        await run.producer.close()
        met.update(run.ends, committed=len(run.committed))

    with_broker(body, seed)
    return met


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("seed", range(40))
def test_what_counts_is_what_was_committed(level: int, seed: int) -> None:
    ends_of(level, seed)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.slow
def test_the_runs_meet_every_end(level: int) -> None:
    """A test of the test."""
    met = sum((ends_of(level, seed) for seed in range(100, 120)), Counter())
    kinds = (TransactionAbortableError, TransactionFatalError, CommitOutcomeUnknownError, KafkaError)
    assert all(met[kind.__name__] for kind in kinds), met
    assert met["committed"] >= 400

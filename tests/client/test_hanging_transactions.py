"""What administration makes of transactions that hang, and of what their coordinator knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.client.simulated import with_broker
from tests.client.transactional_broker import TransactionalBroker

from ottla.client.admin import Admin, HangingTransaction, Outcome, TransactionDescription
from ottla.client.admin.hanging import RECORD_WAITS_MS_MAX, judge
from ottla.errors import KafkaError
from ottla.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.messages.describe_transactions import DescribedTransactionState, DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState
from ottla.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Interference
from ottla.types import TopicPartition
from ottla.wire.schema import Response

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
SUSPECT = HangingTransaction(KEY, 1000, 5, 3, start_offset=70, last_timestamp_ms=1_000_000)
ENDED = [
    ("CompleteCommit", Outcome.COMMIT),
    ("PrepareCommit", Outcome.COMMIT),
    ("CompleteAbort", Outcome.ABORT),
    ("PrepareAbort", Outcome.ABORT),
]


def known(state: str, *, epoch: int = 5, started_ms: int = 1_000_050, at: TopicPartition | None = None) -> TransactionDescription:
    partitions = frozenset() if at is None else frozenset({at})
    return TransactionDescription("x", 1, state, 1000, epoch, 60_000, started_ms, partitions)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort"])
def test_a_transaction_that_its_coordinator_has_open_here_does_not_hang(state: str, level: int) -> None:
    assert judge(SUSPECT, known(state, at=KEY), level=level) is None
    assert judge(SUSPECT, known(state, at=OTHER), level=level) is not None


@pytest.mark.parametrize(("state", "outcome"), ENDED)
@pytest.mark.parametrize(("level", "epoch"), [(1, 5), (2, 5), (2, 6)])
def test_the_outcome_is_the_coordinators(state: str, outcome: Outcome, level: int, epoch: int) -> None:
    found = judge(SUSPECT, known(state, epoch=epoch), level=level)
    assert found == replace(SUSPECT, transactional_id="x", outcome=outcome, ended_epoch=epoch)


@pytest.mark.parametrize(
    ("state", "epoch", "started_ms", "level"),
    [
        ("CompleteCommit", 6, 1_000_050, 1),  # that of another epoch's transaction
        ("CompleteCommit", 7, 1_000_050, 2),
        ("CompleteCommit", 4, 1_000_050, 2),
        ("CompleteCommit", 5, 1_000_001 + RECORD_WAITS_MS_MAX, 1),  # that of a later transaction
        ("CompleteAbort", 6, 1_000_001 + RECORD_WAITS_MS_MAX, 2),
        ("Ongoing", 5, 1_000_050, 1),
        ("Empty", 6, -1, 2),
    ],
)
def test_the_end_of_another_transaction_is_not_taken_for_this_ones(state: str, epoch: int, started_ms: int, level: int) -> None:
    found = judge(SUSPECT, known(state, epoch=epoch, started_ms=started_ms), level=level)
    assert found == replace(SUSPECT, transactional_id="x", outcome=Outcome.UNKNOWN)


class Partition:
    """A model of a leader with a transaction that is open, and of a coordinator that has ended it."""

    def __init__(self, broker: TransactionalBroker, state: str, *, epoch: int) -> None:
        self.markers: list[WritableTxnMarker] = []
        self.state, self.epoch = state, epoch
        self.ends_meanwhile = False  # between the first question and the second
        broker.handlers |= {
            DescribeProducersRequest: self._producers,
            ListTransactionsRequest: lambda _: ListTransactionsResponse(transaction_states=[TransactionState("x", 1000, state)]),
            DescribeTransactionsRequest: self._describe,
            WriteTxnMarkersRequest: self._write,
        }

    def _producers(self, request: DescribeProducersRequest) -> Response:
        start = 70 if not self.markers else -1
        found = PartitionResponse(0, active_producers=[ProducerState(1000, 5, 0, 0, 3, start)])
        return DescribeProducersResponse(topics=[TopicResponse("t", [found])])

    def _describe(self, request: DescribeTransactionsRequest) -> Response:
        if self.ends_meanwhile:
            self.markers.append(WritableTxnMarker(1000, 5, True))
        return DescribeTransactionsResponse(
            transaction_states=[DescribedTransactionState(0, "x", self.state, 60_000, 50, 1000, self.epoch)]
        )

    def _write(self, request: WriteTxnMarkersRequest) -> Response:
        self.markers += request.markers
        return WriteTxnMarkersResponse()


def with_partition(level: int, state: str, epoch: int, body: Callable[[Admin, Partition], Awaitable[None]]) -> None:
    async def main(broker: SimBroker) -> None:
        cluster = broker.client("a")
        model = TransactionalBroker(Interference(cluster), level=level)
        admin = Admin(cluster)
        await body(admin, Partition(model, state, epoch=epoch))
        await admin.close()

    with_broker(main)


@pytest.mark.parametrize("state", ["CompleteCommit", "CompleteAbort"])
@pytest.mark.parametrize(("level", "epoch", "version"), [(1, 5, 0), (2, 6, 2)])
def test_a_lost_marker_is_written_again_as_it_was(state: str, level: int, epoch: int, version: int) -> None:
    async def body(admin: Admin, partition: Partition) -> None:
        [found] = await admin.find_hanging_transactions([KEY], longer_than_ms=0)
        assert not partition.markers
        await admin.end_hanging_transaction(found)
        [marker] = partition.markers
        assert marker.transaction_result is (state == "CompleteCommit")
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version) == (
            1000,
            epoch,
            3,
            version,
        )
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [0])]
        with pytest.raises(KafkaError, match="hangs no more"):
            await admin.end_hanging_transaction(found)
        assert len(partition.markers) == 1

    with_partition(level, state, epoch, body)


def test_a_transaction_that_ends_while_it_is_looked_at_does_not_hang() -> None:
    async def body(admin: Admin, partition: Partition) -> None:
        partition.ends_meanwhile = True
        assert await admin.find_hanging_transactions([KEY], longer_than_ms=0) == []

    with_partition(2, "CompleteCommit", 6, body)


def test_a_transaction_is_given_the_time_that_it_may_take() -> None:
    async def body(admin: Admin, partition: Partition) -> None:
        now_ms = admin._cluster.world.clock.now_ms()
        assert await admin.find_hanging_transactions([KEY], longer_than_ms=now_ms + 1000) == []
        assert len(await admin.find_hanging_transactions([KEY], longer_than_ms=now_ms - 1000)) == 1

    with_partition(2, "CompleteCommit", 6, body)


def test_what_no_coordinator_knows_is_left_to_the_operator() -> None:
    async def body(admin: Admin, partition: Partition) -> None:
        [found] = await admin.find_hanging_transactions([KEY], longer_than_ms=0)
        assert found.outcome is Outcome.UNKNOWN
        with pytest.raises(KafkaError, match="no coordinator knows"):
            await admin.end_hanging_transaction(found)
        assert not partition.markers
        await admin.abort_transaction(KEY, producer_id=1000, producer_epoch=5, coordinator_epoch=3)
        assert [marker.transaction_result for marker in partition.markers] == [False]

    with_partition(2, "Empty", 9, body)

"""The transactional producer beside a model of a broker that loses answers, at both levels of transaction.version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.simulated import KEY, error_of, with_broker
from tests.client.transactional_broker import Again, TransactionalBroker

from ottla.client.buffer import ConsumerRecord
from ottla.client.group_metadata import GroupMetadata, OffsetAndMetadata
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.client.sent_record import SentRecord
from ottla.client.transaction_errors import (
    CommitOutcomeUnknownError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionFatalError,
)
from ottla.errors import ErrorCode, KafkaError, UndeliveredRecord
from ottla.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.produce import ProduceRequest
from ottla.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference, Lost
from ottla.types import TopicPartition
from ottla.wire.schema import Request

GROUP = GroupMetadata("g")
LEVELS = pytest.mark.parametrize("level", [0, 1, 2])


class World:
    def __init__(self, broker: SimBroker, level: int) -> None:
        self._broker = broker
        cluster = broker.client("p", request_timeout_ms=3000)
        self.model = TransactionalBroker(Interference(cluster), level=level)
        self.level = level
        self.cluster = cluster
        self.producer = Producer(cluster, settings())

    def successor(self) -> Producer:
        """Another process with the same transactional id."""
        cluster = self._broker.client("p", request_timeout_ms=3000)
        Interference(cluster).refuse = self.model._answer
        return Producer(cluster, settings())


def settings(**given: Any) -> ProducerSettings:
    values: dict[str, Any] = {"transactional_id": "x", "linger_ms": 0, "max_block_ms": 10_000}
    return ProducerSettings(**values | given)


def with_model(level: int, body: Callable[[World], Awaitable[None]]) -> None:
    async def main(broker: SimBroker) -> None:
        world = World(broker, level)
        await world.producer.init_transactions()
        await body(world)
        await world.producer.close()

    with_broker(main)


@LEVELS
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        for number in range(6):
            await producer.begin_transaction()
            futures = [await producer.send("t", b"%d-%d" % (number, part), partition=part) for part in range(3)]
            await producer.send_offsets_to_transaction({KEY: number}, GROUP)
            if number % 2:
                await producer.flush()
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                assert all(future.done() for future in futures)
        assert model.committed() == sorted(b"%d-%d" % (number, part) for number in (0, 2, 4) for part in range(3))
        assert model.offsets == {"g": {KEY: 4}}
        assert model.ends == [True, False] * 3
        assert bool(model.of(AddPartitionsToTxnRequest)) == bool(model.of(AddOffsetsToTxnRequest)) == (level < 2)
        assert len(model.of(InitProducerIdRequest)) == 1

    with_model(level, body)


@LEVELS
def test_calls_out_of_place_send_nothing(level: int) -> None:
    async def body(world: World) -> None:
        producer, sent = world.producer, len(world.model.network.requests)
        for call in (
            producer.init_transactions,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send("t", b"x"),
            lambda: producer.send_offsets_to_transaction({KEY: 1}, GROUP),
        ):
            with pytest.raises(KafkaError, match=r"out of place: (no transaction is open: call begin_tr|it was called already)"):
                await call()
        assert len(world.model.network.requests) == sent

    with_model(level, body)


@LEVELS
def test_an_empty_transaction_asks_for_nothing(level: int) -> None:
    async def body(world: World) -> None:
        sent = len(world.model.network.requests)
        for end in (world.producer.commit_transaction, world.producer.abort_transaction):
            await world.producer.begin_transaction()
            await world.producer.send_offsets_to_transaction({}, GROUP)
            await end()
        assert len(world.model.network.requests) == sent

    with_model(level, body)


@LEVELS
def test_the_commit_leaves_when_the_last_record_is_acknowledged(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        model.fail(ProduceRequest, Held(2000))
        await producer.begin_transaction()
        await producer.send("t", b"slow", partition=0)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(1.5)
        assert not model.of(EndTxnRequest)
        with pytest.raises(KafkaError, match="send is out of place: commit_transaction has not returned"):
            await producer.send("t", b"late")
        await committing
        assert model.committed() == [b"slow"]

    with_model(level, body)


@LEVELS
def test_an_abort_leaves_no_record_to_be_sent(level: int) -> None:
    """One record is in flight, one waits in the buffer: the abort waits for the first and drops the other."""

    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        producer._sender._linger_ms = 60_000
        await producer.begin_transaction()
        first = await producer.send("t", b"in flight", partition=0)
        model.fail(ProduceRequest, Held(1000))
        flushing = asyncio.create_task(producer.flush())
        while not model.of(ProduceRequest):
            await asyncio.sleep(0.01)
        second = await producer.send("t", b"never", partition=1)
        await producer.abort_transaction()
        await asyncio.gather(flushing, return_exceptions=True)
        assert first.done()
        assert error_of(second).code == ErrorCode.OPERATION_NOT_ATTEMPTED
        await producer.flush()
        async with producer.transaction():
            await producer.send("t", b"next", partition=1)
        assert model.stored() == [b"in flight", b"next"]
        assert model.committed() == [b"next"]

    with_model(level, body)


@LEVELS
def test_a_record_that_fails_makes_the_transaction_one_that_can_only_be_aborted(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        model.fail(ProduceRequest, None, ErrorCode.MESSAGE_TOO_LARGE)
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"good", partition=0)
        bad = await producer.send("t", b"bad", partition=0)
        with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE"):
            await producer.commit_transaction()
        assert error_of(bad).code == ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(TransactionAbortableError):
            await producer.send("t", b"more", partition=0)
        assert not model.of(EndTxnRequest)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"again", partition=0)
        assert model.committed() == [b"again"]

    with_model(level, body)


@LEVELS
@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_lost_sequence_ends_the_transaction_and_begins_a_new_epoch(level: int, code: ErrorCode) -> None:
    """A fresh producer id would carry the rest of the transaction out of it."""

    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        before = model.known["x"].epoch
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"first", partition=0)
        model.fail(ProduceRequest, code)
        await producer.send("t", b"second", partition=0)
        with pytest.raises(TransactionAbortableError, match=code.name):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"third", partition=0)
        assert model.committed() == [b"third"]
        assert {batch.producer_id for log in model.logs.values() for batch in log} == {1000}
        assert model.logs[KEY][-1].epoch > before
        assert all(request.transactional_id == "x" for request in model.of(InitProducerIdRequest))

    with_model(level, body)


ASKED = [InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, ProduceRequest, EndTxnRequest]


@LEVELS
@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize("is_commit", [True, False])
def test_an_answer_that_is_lost_changes_nothing_and_is_followed_by_a_new_epoch(level: int, kind: type[Request], is_commit: bool) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        epochs = []
        for number in range(3):
            if number == 1:
                model.fail(kind, Lost(), Lost())
            await producer.begin_transaction()
            await producer.send("t", b"%d" % number, partition=0)
            await producer.send_offsets_to_transaction({KEY: number}, GROUP)
            await producer.flush()
            epochs.append(model.logs[KEY][-1].epoch)
            await (producer.commit_transaction() if is_commit else producer.abort_transaction())
        assert model.ends == [is_commit] * 3
        assert model.committed() == ([b"0", b"1", b"2"] if is_commit else [])
        assert model.offsets.get("g") == ({KEY: 2} if is_commit else None)
        was_asked = level < 2 or kind in (TxnOffsetCommitRequest, ProduceRequest, EndTxnRequest)
        if was_asked and kind is not InitProducerIdRequest:
            assert epochs[2] > epochs[1], "what was lost may arrive late, and is not taken for one of the next transaction"

    with_model(level, body)


@pytest.mark.parametrize("level", [0, 1])
def test_a_new_epoch_whose_answer_is_lost_is_asked_for_again(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        model.fail(EndTxnRequest, Lost())
        async with producer.transaction():
            await producer.send("t", b"first", partition=0)
        model.fail(InitProducerIdRequest, Lost(), Lost(), ErrorCode.CONCURRENT_TRANSACTIONS)
        async with producer.transaction():
            await producer.send("t", b"second", partition=0)
        async with producer.transaction():
            await producer.send("t", b"third", partition=0)
        assert model.committed() == [b"first", b"second", b"third"]
        asked = [(request.producer_id, request.producer_epoch) for request in model.of(InitProducerIdRequest)]
        assert asked == [(-1, -1), *[(1000, 0)] * 4]
        assert [batch.epoch for batch in model.logs[KEY]] == [0, 1, 1]

    with_model(level, body)


@LEVELS
def test_a_coordinator_that_is_not_found_in_time_leaves_the_producer_as_it_was(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        model.fail(EndTxnRequest, ErrorCode.NOT_COORDINATOR)
        async with producer.transaction():
            await producer.send("t", b"x", partition=0)
        model.network.refuse = lambda request: (
            Lost() if isinstance(request, EndTxnRequest | FindCoordinatorRequest) else model._answer(request)
        )
        with pytest.raises(CommitOutcomeUnknownError):
            async with producer.transaction():
                await producer.send("t", b"y", partition=0)
        with pytest.raises(CommitOutcomeUnknownError):
            await producer.commit_transaction()
        model.network.refuse = model._answer
        await producer.commit_transaction()
        assert model.committed() == [b"x", b"y"]

    with_model(level, body)


@LEVELS
def test_a_transactional_id_that_is_forbidden_later_is_fatal(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x", partition=0)
        model.fail(EndTxnRequest, ErrorCode.NOT_COORDINATOR)
        model.fail(FindCoordinatorRequest, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        with pytest.raises(TransactionFatalError, match="AUTHORIZATION"):
            await producer.commit_transaction()
        with pytest.raises(TransactionFatalError, match="AUTHORIZATION"):
            await producer.abort_transaction()

    with_model(level, body)


@LEVELS
@pytest.mark.parametrize("kind", [EndTxnRequest, ProduceRequest])
def test_a_request_that_arrives_late_ends_no_other_transaction_and_adds_nothing_to_it(level: int, kind: type[Request]) -> None:
    """The answer is lost and the request comes again when the next transaction is open: KAFKA-17754."""

    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        model.fail(kind, Again(4000))
        await producer.begin_transaction()
        await producer.send("t", b"first", partition=0)
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"second", partition=0)
        await asyncio.sleep(5)
        assert model.ends == [True]
        await producer.send("t", b"third", partition=0)
        await producer.abort_transaction()
        assert model.ends == [True, False]
        assert model.committed() == [b"first"]

    with_model(level, body)


@LEVELS
def test_a_commit_that_is_not_answered_is_settled_by_the_same_call(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        for is_decided in (True, False):
            await producer.begin_transaction()
            await producer.send("t", b"%r" % is_decided, partition=0)
            await producer.flush()
            model.fail(EndTxnRequest, *([Lost()] if is_decided else []), *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1000)
            with pytest.raises(CommitOutcomeUnknownError, match="not answered in 10000 ms"):
                await producer.commit_transaction()
            for call in (producer.abort_transaction, producer.begin_transaction, lambda: producer.send("t", b"x")):
                with pytest.raises(KafkaError, match="call it again"):
                    await call()
            model.faults.clear()
            await producer.commit_transaction()
        assert model.committed() == [b"False", b"True"]
        assert model.ends == [True, True]

    with_model(level, body)


@LEVELS
def test_an_abort_that_is_not_answered_is_called_again(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x", partition=0)
        model.fail(EndTxnRequest, Lost(), *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000)
        with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await producer.abort_transaction()
        with pytest.raises(KafkaError, match="call abort_transaction"):
            await producer.commit_transaction()
        model.faults.clear()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"y", partition=0)
        assert model.committed() == [b"y"]

    with_model(level, body)


@LEVELS
def test_a_record_that_is_refused_after_its_send_returned_fails_the_transaction(level: int) -> None:
    """As the blocking producer does with one that finds no room in the buffer."""

    async def body(world: World) -> None:
        producer = world.producer
        await producer.begin_transaction()
        refused = SentRecord(loop=asyncio.get_running_loop())
        record = UndeliveredRecord("t", 0, None, b"x", (), 1)
        producer._refuse(record, refused, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no room"))
        assert isinstance(error_of(refused), TransactionAbortableError)
        with pytest.raises(TransactionAbortableError, match="no room"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await producer.flush()

    with_model(level, body)


@LEVELS
def test_a_zombie_is_fenced_and_says_so_ever_after(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"zombie", partition=0)
        successor = world.successor()
        await successor.init_transactions()
        with pytest.raises(ProducerFencedError):
            await producer.commit_transaction()
        for call in (producer.abort_transaction, producer.begin_transaction, lambda: producer.send("t", b"x")):
            with pytest.raises(ProducerFencedError):
                await call()
        async with successor.transaction():
            await successor.send("t", b"successor", partition=0)
        assert model.committed() == [b"successor"]
        await successor.close()

    with_model(level, body)


@LEVELS
def test_a_transaction_that_takes_too_long_is_aborted_by_the_coordinator(level: int) -> None:
    """At level 2 the producer goes on after an abort; below it the coordinator cannot tell it from a zombie."""

    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x", partition=0)
        model.time_out("x")
        late = await producer.send("t", b"late", partition=0)
        with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_EPOCH"):
            await producer.commit_transaction()
        assert error_of(late).code == ErrorCode.INVALID_PRODUCER_EPOCH
        if level < 2:
            with pytest.raises(ProducerFencedError):
                await producer.abort_transaction()
            return
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"next", partition=0)
        assert model.committed() == [b"next"]

    with_model(level, body)


@LEVELS
@pytest.mark.parametrize("waits", [False, True])
def test_a_block_that_another_producer_has_fenced_says_so(level: int, waits: bool) -> None:
    """The leader alone knows the newer epoch at first, as INVALID_PRODUCER_EPOCH; the abort shows that it is a fence."""

    async def body(world: World) -> None:
        producer = world.producer
        successor = world.successor()
        with pytest.raises(ProducerFencedError) as fenced:  # noqa: PT012
            async with producer.transaction():
                await producer.send_and_wait("t", b"zombie", partition=0)
                await successor.init_transactions()
                record = await producer.send("t", b"late", partition=0)
                if waits:
                    await record
        cause = fenced.value.__cause__
        assert isinstance(cause, KafkaError if waits else TransactionAbortableError)
        assert cause.code == ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(ProducerFencedError):
            await producer.begin_transaction()
        await producer.flush()  # the record was reported
        await successor.close()

    with_model(level, body)


@LEVELS
def test_a_fenced_block_that_raises_an_error_of_its_own_raises_that(level: int) -> None:
    async def body(world: World) -> None:
        producer = world.producer
        successor = world.successor()
        with pytest.raises(ZeroDivisionError) as raised:  # noqa: PT012
            async with producer.transaction():
                await producer.send_and_wait("t", b"zombie", partition=0)
                await successor.init_transactions()
                raise ZeroDivisionError
        assert "the transaction was not aborted either: PRODUCER_FENCED" in "".join(raised.value.__notes__)
        await successor.close()

    with_model(level, body)


@LEVELS
def test_a_block_that_takes_too_long_fences_its_producer_below_level_2(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        with pytest.raises(TransactionAbortableError if level == 2 else ProducerFencedError):  # noqa: PT012
            async with producer.transaction():
                await producer.send_and_wait("t", b"x", partition=0)
                model.time_out("x")
                await producer.send("t", b"late", partition=0)
        if level == 2:
            async with producer.transaction():
                await producer.send("t", b"next", partition=0)
            assert model.committed() == [b"next"]

    with_model(level, body)


@LEVELS
@pytest.mark.parametrize("waits", [False, True])
def test_a_block_that_took_too_long_raises_one_class_however_the_record_was_sent(level: int, waits: bool) -> None:
    """A program that reads its input again after this class alone lost input when it waited for a record."""

    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        with pytest.raises(TransactionAbortableError if level == 2 else ProducerFencedError, match="transaction_timeout_ms"):  # noqa: PT012
            async with producer.transaction():
                await producer.send_and_wait("t", b"x", partition=0)
                model.time_out("x")
                record = await producer.send("t", b"late", partition=0)
                if waits:
                    await record
        error = error_of(record)
        assert isinstance(error, TransactionAbortableError)
        assert error.undelivered is not None
        assert error.undelivered.value == b"late"

    with_model(level, body)


@LEVELS
def test_a_record_that_an_abort_drops_has_a_plain_error(level: int) -> None:
    """The abort was the program's own: no record's error may ask for another one."""

    async def body(world: World) -> None:
        await world.producer.begin_transaction()
        record = await world.producer.send("t", b"x", partition=0)
        await world.producer.abort_transaction()
        error = error_of(record)
        assert (type(error), error.code) == (KafkaError, ErrorCode.OPERATION_NOT_ATTEMPTED)

    with_model(level, body)


@LEVELS
def test_an_offset_carries_a_text_of_the_application(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        async with producer.transaction():
            await producer.send_offsets_to_transaction({KEY: OffsetAndMetadata(1, "batch 7"), TopicPartition("t", 1): 2}, GROUP)
        [request] = model.of(TxnOffsetCommitRequest)
        found = [(place.committed_offset, place.committed_metadata) for topic in request.topics for place in topic.partitions]
        assert found == [(1, "batch 7"), (2, "")]

    with_model(level, body)


@LEVELS
def test_offsets_are_given_by_pairs_or_as_the_last_record(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        record = ConsumerRecord("t", 1, 7, 0, 0, None, b"x", (), 0)
        async with producer.transaction():
            await producer.send_offsets_to_transaction({("t", 0): 5}, GROUP)
            await producer.send_offsets_to_transaction(record, GROUP)
        assert model.offsets == {"g": {KEY: 5, TopicPartition("t", 1): 8}}

    with_model(level, body)


@LEVELS
def test_wrong_arguments_of_offsets_send_nothing_and_leave_the_transaction_open(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        wrong: Any
        async with producer.transaction():
            await producer.send("t", b"in", partition=0)
            for wrong, text in (([KEY], r"not a list: send_offsets_to_transaction\(record\)"), ({KEY: "x"}, "the offset of .* is 'x'")):
                with pytest.raises(TypeError, match=text):
                    await producer.send_offsets_to_transaction(wrong, GROUP)
            wrong = "g"
            with pytest.raises(TypeError, match=r"the second argument is the consumer's group_metadata\(\), and not 'g'"):
                await producer.send_offsets_to_transaction({KEY: 1}, wrong)
        assert model.of(TxnOffsetCommitRequest) == []
        assert model.committed() == [b"in"]

    with_model(level, body)


@LEVELS
def test_offsets_carry_the_members_generation(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        model.members["g"] = (7, "member")
        async with producer.transaction():
            await producer.send_offsets_to_transaction({KEY: 1}, GroupMetadata("g", 7, "member", "instance"))
        [request] = model.of(TxnOffsetCommitRequest)
        assert (request.generation_id, request.member_id, request.group_instance_id) == (7, "member", "instance")
        for metadata, code in (
            (GroupMetadata("g", 6, "member"), ErrorCode.ILLEGAL_GENERATION),
            (GroupMetadata("g", 7, "zombie"), ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            await producer.begin_transaction()
            with pytest.raises(TransactionAbortableError, match=code.name):
                await producer.send_offsets_to_transaction({KEY: 9}, metadata)
            with pytest.raises(TransactionAbortableError, match=code.name):
                await producer.commit_transaction()
            await producer.abort_transaction()
        assert model.offsets == {"g": {KEY: 1}}

    with_model(level, body)


@LEVELS
def test_a_coordinator_that_has_forgotten_the_id_gives_another_one(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        model.known.clear()
        await producer.begin_transaction()
        with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_ID_MAPPING"):
            await producer.send_offsets_to_transaction({KEY: 1}, GROUP)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"x", partition=0)
        assert model.committed() == [b"x"]
        assert model.logs[KEY][0].producer_id == 1001

    with_model(level, body)


@pytest.mark.parametrize("level", [0, 1])
def test_an_abort_of_what_never_came_to_the_coordinator_is_no_failure(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        model.fail(AddPartitionsToTxnRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        await producer.begin_transaction()
        refused = await producer.send("t", b"x", partition=0)
        with pytest.raises(TransactionAbortableError, match="TOPIC_AUTHORIZATION_FAILED"):
            await producer.commit_transaction()
        assert error_of(refused).code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await producer.abort_transaction()
        assert [request.committed for request in model.of(EndTxnRequest)] == [False]
        async with producer.transaction():
            await producer.send("t", b"y", partition=0)
        assert model.committed() == [b"y"]

    with_model(level, body)


@LEVELS
@pytest.mark.parametrize("code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_TRANSACTION_TIMEOUT])
def test_a_final_refusal_of_init_is_fatal(level: int, code: ErrorCode) -> None:
    async def main(broker: SimBroker) -> None:
        world = World(broker, level)
        world.model.fail(InitProducerIdRequest, ErrorCode.CONCURRENT_TRANSACTIONS, code)
        with pytest.raises(TransactionFatalError, match=code.name):
            await world.producer.init_transactions()
        with pytest.raises(TransactionFatalError, match=code.name):
            await world.producer.begin_transaction()
        await world.producer.close()

    with_broker(main)


def test_a_coordinator_that_moved_to_an_older_broker_is_asked_for_an_epoch() -> None:
    """Its EndTxn brings none."""

    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        model.fail(EndTxnRequest, EndTxnResponse())
        async with producer.transaction():
            await producer.send("t", b"x", partition=0)
        assert len(model.of(InitProducerIdRequest)) == 1
        async with producer.transaction():
            await producer.send("t", b"y", partition=0)
        assert [request.producer_epoch for request in model.of(InitProducerIdRequest)] == [-1, 0]
        assert model.logs[KEY][-1].epoch == 1

    with_model(2, body)


def test_a_level_that_is_finalized_later_is_used_from_some_transaction_on() -> None:
    async def main(broker: SimBroker) -> None:
        cluster = broker.client("p", metadata_max_age_ms=60_000)
        model = TransactionalBroker(Interference(cluster), level=1)
        producer = Producer(cluster, settings())
        await producer.init_transactions()
        for number, level in enumerate((2, 2, 1)):
            model.finalize(level)
            async with producer.transaction():
                await producer.send("t", b"young %d" % number, partition=0)
            await asyncio.sleep(60)
            model.level = level
            asked = len(model.of(ApiVersionsRequest))
            async with producer.transaction():
                await producer.send("t", b"old %d" % number, partition=0)
            assert len(model.of(ApiVersionsRequest)) == asked + 1
            assert producer._transactions is not None
            assert producer._transactions._enlistment.level == level
        assert len(model.committed()) == 6
        await producer.close()

    with_broker(main)


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_first_transaction_at_level_2_has_an_epoch_of_its_own(is_commit: bool) -> None:
    """A marker of the one before, at level 1, has its epoch, and may come after its batches: what was aborted was seen, or the reverse."""

    async def main(broker: SimBroker) -> None:
        cluster = broker.client("p", metadata_max_age_ms=0)  # what is known of the features is always too old
        model = TransactionalBroker(Interference(cluster), level=1)
        model.is_new = True
        producer = Producer(cluster, settings())
        await producer.init_transactions()
        for level in (1, 1, 2, 2):
            model.finalize(level)
            model.level = level
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"x", partition=0)
            await (producer.commit_transaction() if is_commit else producer.abort_transaction())
        assert [batch.epoch for batch in model.logs[KEY]] == [0, 0, 1, 2]
        assert [request.producer_epoch for request in model.of(InitProducerIdRequest)] == [-1, 0]
        await producer.close()

    with_broker(main)


@LEVELS
def test_a_block_commits_or_aborts(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model
        async with producer.transaction() as same:
            assert same is producer
            await producer.send("t", b"in", partition=0)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with producer.transaction():
                await producer.send_and_wait("t", b"out", partition=0)
                raise ZeroDivisionError
        model.fail(ProduceRequest, ErrorCode.INVALID_RECORD)
        with pytest.raises(TransactionAbortableError, match="INVALID_RECORD"):
            async with producer.transaction():
                await producer.send("t", b"bad", partition=0)
        async with producer.transaction():
            await producer.send("t", b"last", partition=0)
        assert model.committed() == [b"in", b"last"]
        assert model.ends[:2] == [True, False]
        assert model.ends[-1]

    with_model(level, body)


@LEVELS
def test_a_block_that_is_cancelled_is_aborted(level: int) -> None:
    async def body(world: World) -> None:
        producer, model = world.producer, world.model

        async def transact() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"x", partition=0)
                model.fail(ProduceRequest, Held(1500))
                await producer.send("t", b"y", partition=0)

        task = asyncio.create_task(transact())
        await asyncio.sleep(0.5)
        task.cancel()  # while commit_transaction waits for the acknowledgement
        with pytest.raises(asyncio.CancelledError):
            await task
        assert model.ends == [False]
        async with producer.transaction():
            await producer.send("t", b"z", partition=0)
        assert model.committed() == [b"z"]

    with_model(level, body)


@LEVELS
def test_close_aborts_what_is_open(level: int) -> None:
    async def body(world: World) -> None:
        await world.producer.begin_transaction()
        await world.producer.send_and_wait("t", b"x", partition=0)
        await world.producer.close()
        assert world.model.ends == [False]
        assert world.model.committed() == []

    with_model(level, body)


@pytest.mark.parametrize("call", ["init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"])
def test_a_producer_without_a_transactional_id_has_no_transactions(call: str) -> None:
    async def main(broker: SimBroker) -> None:
        producer = Producer(broker.client("p"), ProducerSettings())
        with pytest.raises(KafkaError, match="give it transactional_id= where it is made") as caught:
            await getattr(producer, call)()
        assert caught.value.code == ErrorCode.INVALID_TXN_STATE, "as any call that is out of place"
        await producer.close()

    with_broker(main)

"""The blocking producer's transactions: what was put in another thread is part of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.simulated import KEY
from tests.client.transactional_broker import TransactionalBroker

from ottla.errors import ErrorCode
from ottla.messages.end_txn import EndTxnRequest
from ottla.messages.produce import ProduceRequest
from ottla.runtime.serve import BrokerThread
from ottla.sim.interference import Interference
from ottla.sync import (
    Admin,
    CommitOutcomeUnknownError,
    GroupMetadata,
    KafkaError,
    NewTopic,
    Producer,
    ProducerFencedError,
    TransactionAbortableError,
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path_factory.mktemp("data"))}) as thread:
        yield thread


@pytest.fixture
def producer(broker: BrokerThread) -> Iterator[Producer]:
    with Producer(broker.bootstrap, transactional_id="x", max_block_ms=1000) as made:
        yield made


@pytest.fixture(params=[1, 2])
def model(request: pytest.FixtureRequest, broker: BrokerThread, producer: Producer) -> TransactionalBroker:
    """It answers in the broker's place; the producer is initialized."""
    host, port = broker.bootstrap.rsplit(":", 1)
    made = TransactionalBroker(Interference(producer._inner._cluster), level=request.param, address=(host, int(port)))
    producer.init_transactions()
    return made


def test_a_block_commits_all_that_was_sent_in_it(producer: Producer, model: TransactionalBroker) -> None:
    with producer.transaction() as same:
        assert same is producer
        for number in range(500):
            producer.send("t", b"%03d" % number)
        producer.send_many([("t", b"many")])
        producer.send_offsets_to_transaction({KEY: 5}, GroupMetadata("g"))
    assert model.committed() == [*(b"%03d" % number for number in range(500)), b"many"]
    assert model.offsets == {"g": {KEY: 5}}


def test_a_block_that_raises_is_aborted(producer: Producer, model: TransactionalBroker) -> None:
    with pytest.raises(ZeroDivisionError), producer.transaction():  # noqa: PT012
        producer.send("t", b"stored", partition=0)
        producer.flush()
        producer.send("t", b"perhaps not sent", partition=0)
        raise ZeroDivisionError
    producer.begin_transaction()
    producer.send("t", b"next", partition=0)
    producer.commit_transaction()
    assert model.committed() == [b"next"]
    assert model.ends == [False, True]


def test_a_record_that_fails_in_the_clients_thread_fails_the_transaction(producer: Producer, model: TransactionalBroker) -> None:
    """``send`` has returned by then, and its future may never be looked at."""
    producer.begin_transaction()
    model.fail(ProduceRequest, ErrorCode.MESSAGE_TOO_LARGE)
    future = producer.send("t", b"x", partition=0)
    with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE"):
        producer.commit_transaction()
    assert future.exception() is not None
    with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE"):
        producer.send("t", b"y")
    producer.abort_transaction()
    with pytest.raises(KafkaError, match="send is out of place: no transaction is open"):
        producer.send("t", b"z")


def test_a_commit_that_is_not_answered_is_called_again(producer: Producer, model: TransactionalBroker) -> None:
    model.fail(EndTxnRequest, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1000)
    with pytest.raises(CommitOutcomeUnknownError), producer.transaction():
        producer.send("t", b"x", partition=0)
    model.faults.clear()
    producer.commit_transaction()
    assert model.committed() == [b"x"]


@pytest.mark.parametrize("waits", [False, True])
def test_two_producers_of_one_transactional_id_fence_the_first(broker: BrokerThread, waits: bool) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("fenced", 1)])
    name = f"fenced-{waits}"
    with Producer(broker.bootstrap, transactional_id=name) as first, Producer(broker.bootstrap, transactional_id=name) as second:
        first.init_transactions()
        with pytest.raises(ProducerFencedError) as fenced, first.transaction():  # noqa: PT012
            first.send("fenced", b"1").result()
            second.init_transactions()
            record = first.send("fenced", b"2")
            if waits:
                record.result()
        assert isinstance(fenced.value.__cause__, KafkaError)

"""read_committed: the records of aborted transactions are dropped."""

from __future__ import annotations

from tests.client.simulated import KEY, consumer_of, create, fill, take, with_broker

from ottla.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse
from ottla.messages.list_offsets import ListOffsetsRequest
from ottla.records.builder import BatchBuilder
from ottla.records.control import build_end_marker
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Interference


def batch(base_offset: int, *values: bytes, producer_id: int = -1) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, timestamp_ms=0)
    return builder.build(base_offset=base_offset, producer_id=producer_id, producer_epoch=0, is_transactional=producer_id >= 0)


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytearray:
    control = build_end_marker(is_commit=is_commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0)
    control[0:8] = offset.to_bytes(8, "big")
    return control


LOG = [
    batch(0, b"aborted", b"aborted", producer_id=7),
    batch(2, b"of 8", producer_id=8),
    marker(3, 7, is_commit=False),
    batch(4, b"of 7", producer_id=7),
    marker(5, 8, is_commit=True),
    marker(6, 7, is_commit=True),
    batch(7, b"plain"),
]


def serve_log(network: Interference) -> None:
    """The broker has no transactions yet; its answers get the log of one that has."""

    def alter(request: object, response: object) -> FetchResponse | None:
        if not isinstance(request, FetchRequest) or not isinstance(response, FetchResponse):
            return None
        for topic in response.responses:
            for data in topic.partitions:
                is_there = request.topics[0].partitions[0].fetch_offset < 8
                data.records = b"".join(map(bytes, LOG)) if is_there else b""
                if request.isolation_level == 1 and is_there:
                    data.aborted_transactions = [AbortedTransaction(7, 0)]
        return response

    network.alter = alter


def read(isolation_level: str, start: int = 0) -> list[bytes | None]:
    values: list[bytes | None] = []

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 8)
        cluster = broker.client("c")
        serve_log(Interference(cluster))
        consumer = consumer_of(cluster, isolation_level=isolation_level)
        consumer.assign([KEY])
        consumer.seek(KEY, start)
        values.extend(record.value for record in await take(consumer, 1))
        assert await consumer.position(KEY) == 8
        await consumer.close()

    with_broker(body)
    return values


def test_read_committed_drops_the_records_of_aborted_transactions() -> None:
    assert read("read_committed") == [b"of 8", b"of 7", b"plain"]
    assert read("read_uncommitted") == [b"aborted", b"aborted", b"of 8", b"of 7", b"plain"]


def test_read_committed_from_within_an_aborted_transaction_knows_where_it_ends() -> None:
    assert read("read_committed", start=1) == [b"of 8", b"of 7", b"plain"]


def test_the_end_of_a_read_committed_consumer_is_the_last_stable_offset() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, isolation_level="read_committed", auto_offset_reset="latest")
        consumer.assign([KEY])
        await consumer.position(KEY)
        assert [request.isolation_level for request in network.of(ListOffsetsRequest)] == [1]
        await consumer.close()

    with_broker(body)

"""What an application meets first: mistakes are found at once and say the way out; what other clients have is there."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, take, with_broker

from ottla.client.admin import Admin
from ottla.client.bootstrap import parse_bootstrap
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.membership_settings import MembershipSettings
from ottla.client.options import ClusterSettings
from ottla.client.other_settings import OTHER_SETTINGS
from ottla.client.outgoing import prepare
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import checks_of
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run
from ottla.types import TopicPartition


def test_a_poll_with_nothing_to_read_says_what_to_call() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c"), group_id="g")
        with pytest.raises(KafkaError, match=r"call subscribe\(\[topic\]\) or assign\(\[\(topic, partition\)\]\)"):
            await consumer.poll(10)
        consumer.assign([("t", 0)])
        assert await consumer.poll(10) == []
        consumer.assign([])
        with pytest.raises(KafkaError, match="nothing to read"):
            await consumer.poll(10)
        consumer.subscribe(["t"])
        assert await consumer.poll(10) == []
        await consumer.unsubscribe()
        with pytest.raises(KafkaError, match="nothing to read"):
            await consumer.poll(10)
        await consumer.close()

    with_broker(body)


def test_subscribe_and_assign_are_no_coroutines() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 2)
        consumer = consumer_of(broker.client("c"), group_id="g")
        assert consumer.subscribe(["t"]) is None  # type: ignore[func-returns-value]
        assert consumer.subscription() == ["t"]
        assert [record.value for record in await take(consumer, 2)] == [b"0", b"1"]
        await consumer.close()

    with_broker(body)


def test_a_pattern_is_matched_by_the_first_poll() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, "orders-eu")
        await fill(broker, 1, topic="orders-eu")
        consumer = consumer_of(broker.client("c"), group_id="g")
        consumer.subscribe(pattern="orders-.*")
        assert consumer.subscription() == []
        assert len(await take(consumer, 1)) == 1
        assert consumer.subscription() == ["orders-eu"]
        with pytest.raises(KafkaError, match="is not a valid regular expression"):
            consumer.subscribe(pattern="(")
        assert consumer.subscription() == ["orders-eu"], "what was refused changes nothing"
        await consumer.close()

    with_broker(body)


def test_a_partition_is_a_pair_wherever_it_is_asked_for() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 3)
        consumer = consumer_of(broker.client("c"), group_id="g")
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), 1)
        consumer.pause([("t", 0)])
        consumer.resume([("t", 0)])
        assert [record.offset for record in await take(consumer, 2)] == [1, 2]
        assert await consumer.position(("t", 0)) == 3
        assert await consumer.end_offsets([("t", 0)]) == {KEY: 3}
        assert (await consumer.offsets_for_times({("t", 0): 0}))[KEY].offset == 0
        await consumer.commit({("t", 0): 2})
        assert await consumer.committed([("t", 0)]) == {KEY: 2}
        with pytest.raises(TypeError, match=r"'t' is no partition: give \(topic, number\)"):
            consumer.assign(["t"])  # type: ignore[list-item]
        assert consumer.assignment() == [KEY]
        await consumer.close()

    with_broker(body)


def test_a_commit_of_a_record_covers_it_and_no_later_one() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 3)
        consumer = consumer_of(broker.client("c"), group_id="g", enable_auto_commit=False)
        consumer.subscribe(["t"])
        records = await take(consumer, 3)
        await consumer.commit(records[1])
        assert await consumer.committed([KEY]) == {KEY: 2}
        with pytest.raises(KafkaError, match="enable_auto_offset_store=False"):
            consumer.store_offsets(records[1])
        await consumer.close()

    with_broker(body)


def test_only_stored_offsets_are_committed_where_the_application_stores_them() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        await fill(broker, 3)
        await fill(broker, 3, partition=1)
        consumer = consumer_of(broker.client("c"), group_id="g", enable_auto_offset_store=False, auto_commit_interval_ms=100)
        consumer.subscribe(["t"])
        records = await take(consumer, 6)
        await asyncio.sleep(1)  # simulated: auto_commit_interval_ms has passed
        await consumer.poll(10)
        assert await consumer.committed([KEY, TopicPartition("t", 1)]) == {}, "what was handed out may not have been processed"
        consumer.store_offsets(next(record for record in records if record.partition == 0))
        with pytest.raises(KafkaError, match="t-7 is not assigned"):
            consumer.store_offsets({("t", 7): 1})
        await consumer.poll(10)
        await asyncio.sleep(1)  # simulated: auto_commit_interval_ms has passed
        await consumer.poll(10)
        assert await consumer.committed([KEY, TopicPartition("t", 1)]) == {KEY: 1}
        await consumer.close()  # commits what is stored, and nothing else
        assert (await Admin(broker.client("a")).committed_offsets("g"))[KEY].offset == 1

    with_broker(body)


def test_a_partitioner_of_ones_own_decides_and_its_mistakes_are_the_records() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=3)
        answers: dict[bytes | None, Any] = {b"a": 2, b"out": 3, b"odd": "1", b"default": None}
        settings = ProducerSettings(linger_ms=0, partitioner=lambda topic, key, count: answers[key])
        producer = Producer(broker.client("p"), settings)
        assert (await producer.send_and_wait("t", b"x", key=b"a")).partition == 2
        assert (await producer.send_and_wait("t", b"x", key=b"default")).partition in (0, 1, 2)
        assert (await producer.send_and_wait("t", b"x", key=b"out", partition=1)).partition == 1
        with pytest.raises(KafkaError, match="returned 3 for a record of topic 't', which has 3 partitions"):
            await producer.send("t", b"x", key=b"out")
        with pytest.raises(KafkaError, match="returned '1'"):
            await producer.send("t", b"x", key=b"odd")
        with pytest.raises(KafkaError, match="the partitioner failed for a record of topic 't': KeyError"):
            await producer.send("t", b"x", key=b"missing")
        assert await producer.partitions_for("t") == [0, 1, 2]
        with pytest.raises(KafkaError) as refused:
            await Producer(broker.client("q"), ProducerSettings(max_block_ms=500)).partitions_for("none")
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await producer.close()

    with_broker(body, auto_create_topics_enable="false")


@pytest.mark.parametrize("given", [{"bootstrap.servers": "x:1"}, None, 9092, [], [9092]])
def test_what_is_no_address_is_refused_with_the_form_of_one(given: Any) -> None:
    with pytest.raises(KafkaError, match='bootstrap_servers="localhost:9092", client_id="app"'):
        parse_bootstrap(given)


def test_the_error_of_a_header_offers_nothing_that_is_not_there() -> None:
    def header(content: Any) -> None:
        prepare(
            "t", b"", key=None, partition=None, headers={"n": content}, timestamp_ms=0, key_serializer=None, value_serializer=None,
            size_bytes_max=100,
        )  # fmt: skip

    with pytest.raises(TypeError) as refused:
        header("text")
    offered = set(re.findall(r"\w+_serializer", str(refused.value)))
    assert offered <= checks_of(ProducerSettings).keys()
    assert "encode it" in str(refused.value)


def outage_of(caplog: pytest.LogCaptureFixture, *, is_refused: bool) -> tuple[float, list[str]]:
    """When a producer without a broker logged its first warning, in virtual ms, and all that it logged, up to the broker's start."""
    said: list[str] = []
    first_ms: list[int] = []

    async def main() -> None:
        simulation = Simulation(1)
        broker = SimBroker(simulation)
        cluster = broker.client("p")
        if not is_refused:
            simulation.fabric.darken("broker")
        producer = Producer(cluster, ProducerSettings(linger_ms=0))
        clock = cluster.world.clock
        began_ms = clock.monotonic_ms()
        sending = asyncio.create_task(producer.send("t", b"x"))
        while not caplog.records and clock.monotonic_ms() < began_ms + 60_000:
            await asyncio.sleep(0.01)
        first_ms.append(clock.monotonic_ms() - began_ms)
        if is_refused:
            await asyncio.sleep(20)  # simulated: the outage goes on
            await broker.start()
            await (await sending)
            await producer.close()
        sending.cancel()
        said.extend(record.getMessage() for record in caplog.records)

    with caplog.at_level(logging.INFO, logger="ottla.client"):
        run(main())
    return first_ms[0], said


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_producer_without_a_broker_says_so_within_two_seconds(caplog: pytest.LogCaptureFixture, is_refused: bool) -> None:
    first_ms, said = outage_of(caplog, is_refused=is_refused)
    assert first_ms <= 2000
    assert said[0].startswith("no broker can be reached at ")
    assert len(said) == (2 if is_refused else 1), "an outage is said once"
    if is_refused:
        assert "can be reached again" in said[1]


def test_metrics_count_what_was_done() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=1000))
        for _ in range(5):
            await producer.send("t", b"12345")
        waiting = producer.metrics()
        assert (waiting.records_acknowledged, waiting.buffer_used_bytes > 25) == (0, True)
        await producer.flush()
        done = producer.metrics()
        assert (done.records_acknowledged, done.batches_acknowledged, done.requests, done.records_failed) == (5, 1, 1, 0)
        assert (done.buffer_used_bytes, done.requests_in_flight) == (0, 0)
        assert done.bytes_acknowledged == waiting.buffer_used_bytes
        assert done.request_ms_total == done.request_ms_max > 0
        await producer.close()
        consumer = consumer_of(broker.client("c"), group_id="g", auto_commit_interval_ms=100)
        consumer.subscribe(["t"])
        assert len(await take(consumer, 2, max_records=2)) == 2
        assert consumer.metrics().lag == {KEY: 3}
        await take(consumer, 3)
        await asyncio.sleep(1)  # simulated: auto_commit_interval_ms has passed
        await consumer.poll(10)
        read = consumer.metrics()
        assert (read.records, read.rebalances, read.fetches_failed, read.lag) == (5, 1, 0, {KEY: 0})
        assert read.commits == 1
        assert read.fetches >= 1
        assert read.bytes_fetched > 25
        await consumer.close()

    with_broker(body)


KINDS = (ClusterSettings, ProducerSettings, ConsumerSettings, FetchSettings, MembershipSettings)


def test_a_setting_that_is_refused_with_a_reason_is_none_that_there_is() -> None:
    known = {name for kind in KINDS for name in checks_of(kind)}
    assert not known & OTHER_SETTINGS.keys()
    for name, reason in OTHER_SETTINGS.items():
        for offered in re.findall(r"\bset ([a-z_]+)", reason):
            assert offered in known, f"{name}: {reason}"


def test_the_reference_has_every_setting_that_is_refused() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "client.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z0-9_]+)` \| (.+) \|$", page, re.MULTILINE))
    assert {name: rows.get(name) for name in OTHER_SETTINGS} == OTHER_SETTINGS

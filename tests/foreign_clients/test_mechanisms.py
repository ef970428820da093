"""Mechanisms of a log that clients share, shown against a broker process; each test names the mechanism it shows."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.foreign_clients.counting_broker import COUNTS_NAME
from tests.foreign_clients.proxy import Proxy
from tests.foreign_clients.stored import stored_batches
from tests.foreign_clients.wire import RawClient, batch_of, end_offsets, produce_request

from ottla import sync
from ottla.client.partitioner import murmur2, partition_for_key
from ottla.errors import ErrorCode
from ottla.messages.api_keys import ApiKey
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.records.batch import HEADER_SIZE, iterate_batches
from ottla.runtime.io_policy import PATHS

WAIT_SECONDS_MAX = 30.0
FOR_EVER_MS = 60_000  # longer than any socket here waits


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("mechanisms"), port=lasting_port()) as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


def create(broker: BrokerProcess, topic: str, partition_count: int = 1, **configs: str) -> str:
    with sync.Admin(broker.bootstrap) as admin:
        names = {key.replace("_", "."): value for key, value in configs.items()}
        assert admin.create_topics([sync.NewTopic(topic, partition_count, configs=names)]) == {topic: None}
    return topic


def fill(broker: BrokerProcess, topic: str, count: int, *, size_bytes: int = 0, **settings: Any) -> list[sync.RecordMetadata]:
    """Records numbered from 0, in order within their key."""
    with sync.Producer(broker.bootstrap, **settings) as producer:
        sent = producer.send_many((topic, b"%d" % number + bytes(size_bytes), b"%d" % (number % 10)) for number in range(count))
        return [future.result(WAIT_SECONDS_MAX) for future in sent]


def read(broker: BrokerProcess, topic: str, count: int, **settings: Any) -> list[sync.ConsumerRecord]:
    """``count`` records from the start, without a group."""
    with sync.Consumer(broker.bootstrap, **settings) as consumer:
        with sync.Admin(broker.bootstrap) as admin:
            partitions = [sync.TopicPartition(topic, index) for index in admin.describe_topic(topic).partitions]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        return take(consumer, count)


def take(consumer: sync.Consumer, count: int) -> list[sync.ConsumerRecord]:
    got: list[sync.ConsumerRecord] = []
    while len(got) < count:
        records = consumer.poll(int(WAIT_SECONDS_MAX * 1000))
        assert records, f"{len(got)} of {count} records came"
        got += records
    return got


def place_of(message: confluent_kafka.Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def confluent_member(broker: BrokerProcess, group: str, **settings: Any) -> confluent_kafka.Consumer:
    known = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 100}
    return confluent_kafka.Consumer(known | settings)


# Publish and subscribe, queue


def test_mechanisms_01_and_02_every_group_gets_every_record_and_the_members_of_one_group_share_them(broker: BrokerProcess) -> None:
    topic = create(broker, "shared", 4)
    members = [confluent_member(broker, "queue") for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while [len(member.assignment()) for member in members] != [2, 2]:
        assert time.monotonic() < deadline
        assert all(member.poll(0.02) is None for member in members), "the topic is still empty"

    fill(broker, topic, 1000)
    everything = Counter(b"%d" % number for number in range(1000))
    shares = [Counter[bytes](), Counter[bytes]()]
    while sum(map(Counter.total, shares)) < 1000:
        assert time.monotonic() < deadline
        for member, share in zip(members, shares, strict=True):
            share.update(message.value() or b"" for message in member.consume(500, 0.05))
    for member in members:
        member.close()
    assert shares[0] + shares[1] == everything, "as a queue: each record once"
    assert min(map(len, shares)) > 0

    for group in ("accounting", "shipping"):
        with sync.Consumer(broker.bootstrap, group_id=group, auto_offset_reset="earliest") as alone:
            alone.subscribe([topic])
            assert Counter(record.value for record in take(alone, 1000)) == everything, "as a publication: all to each group"


def test_mechanisms_04_and_81_what_one_client_writes_every_client_reads_key_value_time_and_headers(broker: BrokerProcess) -> None:
    """Three writers, three codecs, three readers. Null keys, null values and empty ones are different things."""
    contents = [(b"key", b"value"), (None, b"no key"), (b"no value", None), (b"", b""), ("Ü".encode(), bytes(range(256)))]
    headers = [("trace", b"\x00\x01"), ("trace", b"again"), ("empty", b"")]
    topic = create(broker, "every-client")
    start_ms = 1_700_000_000_000

    with sync.Producer(broker.bootstrap, compression_type="zstd") as own:
        for number, (key, value) in enumerate(contents):
            own.send(topic, value, key=key, headers=headers, timestamp_ms=start_ms + number).result(WAIT_SECONDS_MAX)
    confluent = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "lz4"})
    for number, (key, value) in enumerate(contents):
        confluent.produce(topic, value, key, headers=headers, timestamp=start_ms + number)  # type: ignore[arg-type]
    assert confluent.flush(WAIT_SECONDS_MAX) == 0
    kafka_python = KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type="gzip")
    for number, (key, value) in enumerate(contents):
        kafka_python.send(topic, value, key, headers, timestamp_ms=start_ms + number)
    kafka_python.close(WAIT_SECONDS_MAX)

    expected = [(key, value, start_ms + number, headers) for number, (key, value) in enumerate(contents)] * 3
    assert [
        (record.key, record.value, record.timestamp_ms, list(record.headers)) for record in read(broker, topic, len(expected))
    ] == expected
    reader = KafkaConsumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=2000)
    got = [next(reader) for _ in expected]
    reader.close()
    assert [(record.key, record.value, record.timestamp, list(record.headers)) for record in got] == expected
    member = confluent_member(broker, "every-client")
    member.subscribe([topic])
    messages: list[confluent_kafka.Message] = []
    while len(messages) < len(expected):
        messages += member.consume(len(expected), WAIT_SECONDS_MAX)
    member.close()
    assert [(message.key(), message.value(), message.timestamp()[1], message.headers()) for message in messages] == expected


def test_mechanism_81_a_batch_comes_back_as_the_bytes_that_were_sent(client: RawClient, broker: BrokerProcess) -> None:
    """But for its base offset and leader epoch, which the broker owns and the CRC leaves out; a batch whose CRC is wrong is refused."""
    topic = create(broker, "bytes")
    batch = batch_of(b"one", b"two", codec=4)
    client.ask(produce_request(topic, batch), 9)
    client.ask(produce_request(topic, batch), 9)
    records = bytes(fetch(client, topic, 0))
    assert len(records) == 2 * len(batch)
    for base_offset, copy in ((0, records[: len(batch)]), (2, records[len(batch) :])):
        assert int.from_bytes(copy[:8], "big") == base_offset
        assert copy[8:12] == batch[8:12]
        assert copy[16:] == batch[16:]

    damaged = bytearray(batch)
    damaged[-1] ^= 1
    answer = client.ask(produce_request(topic, bytes(damaged)), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE


def fetch(client: RawClient, topic: str, offset: int, *, partition_bytes: int = 1 << 24, **limits: int) -> Any:
    """The records that one fetch brings."""
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=partition_bytes)
    settings = {"max_wait_ms": 0, "min_bytes": 1} | limits
    answer = client.ask(FetchRequest(topics=[FetchTopic(topic, partitions=[wanted])], **settings), 4)  # type: ignore[arg-type]
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    return answer.responses[0].partitions[0].records


# Topics


def test_mechanism_06_topics_are_created_listed_described_and_deleted_by_each_admin_client(broker: BrokerProcess) -> None:
    confluent = AdminClient({"bootstrap.servers": broker.bootstrap})
    confluent.create_topics([NewTopic("of-confluent", 3, 1)])["of-confluent"].result(WAIT_SECONDS_MAX)
    python = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    described = {found["name"]: len(found["partitions"]) for found in python.describe_topics(["of-confluent"])}
    assert described == {"of-confluent": 3}
    assert "of-confluent" in confluent.list_topics(timeout=WAIT_SECONDS_MAX).topics

    fill(broker, "of-confluent", 10)
    directories = [broker.data / f"of-confluent-{index}" for index in range(3)]
    assert all(directory.is_dir() for directory in directories)
    python.delete_topics(["of-confluent"])
    python.close()
    assert "of-confluent" not in confluent.list_topics(timeout=WAIT_SECONDS_MAX).topics
    broker.restart()  # what is deleted is gone at the latest when the broker has stopped in order
    assert not any(broker.data.glob("of-confluent*"))


def test_mechanism_40_each_partition_has_a_directory(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as fresh:
        create(fresh, "topic1", 5)
        create(fresh, "topic2", 10)
        directories = {path.name for path in fresh.data.glob("topic*") if path.is_dir()}
    assert directories == {f"topic1-{index}" for index in range(5)} | {f"topic2-{index}" for index in range(10)}


# Order and partitions


@pytest.mark.slow
def test_mechanism_11_one_key_stays_in_order_while_answers_are_lost(tmp_path: Path) -> None:
    """100,000 records of one key through a proxy that silences its connections, so that the producer sends them again."""
    count = 100_000
    with Proxy() as proxy:
        port = proxy.target_port = lasting_port()
        with BrokerProcess(tmp_path, port=port, advertised_listeners=f"PLAINTEXT://{proxy.bootstrap}") as broker:
            create(broker, "one-key", 3)
            settings = {
                "bootstrap.servers": proxy.bootstrap,
                "enable.idempotence": True,
                "log_level": 0,
                "queue.buffering.max.messages": count,
            }
            producer = confluent_kafka.Producer(settings | {"request.timeout.ms": 1000, "socket.timeout.ms": 1000})
            for number in range(count):
                producer.produce("one-key", b"%d" % number, b"the key")
                if number in (count // 4, count // 2):
                    before = len(proxy.requests(ApiKey.PRODUCE))
                    proxy.wait_for("a request under way", lambda: len(proxy.requests(ApiKey.PRODUCE)) > before)  # noqa: B023
                    proxy.mute()
            assert producer.flush(WAIT_SECONDS_MAX) == 0
            unanswered = [exchange for exchange in proxy.requests(ApiKey.PRODUCE) if exchange.response is None]
            records = read(broker, "one-key", count, max_poll_records=10_000)
    assert unanswered, "some answers were lost"
    assert len({record.partition for record in records}) == 1
    assert [record.value for record in records] == [b"%d" % number for number in range(count)]


def test_mechanism_12_the_key_decides_by_murmur2_and_the_broker_never_moves_a_record(broker: BrokerProcess) -> None:
    keys = [b"", b"a", "Ü".encode(), *[b"key-%d" % number for number in range(500)], *[bytes([byte]) * 7 for byte in range(256)]]
    assert [murmur2(key) for key in keys] == [murmur2_of_kafka_python(key) & 0xFFFFFFFF for key in keys]

    topic = create(broker, "by-crc", 7)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})  # librdkafka's own default: CRC-32, not murmur2
    for key in keys:
        producer.produce(topic, key, key)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    found = {record.key: record.partition for record in read(broker, topic, len(keys))}
    elsewhere = [key for key in keys if found[key] != partition_for_key(key, 7)]
    assert len(elsewhere) > len(keys) // 2, "the records are where the client put them"


@pytest.mark.parametrize("which", ["own", "confluent", "kafka-python"])
@pytest.mark.slow
def test_mechanism_13_records_without_a_key_spread_over_all_partitions(broker: BrokerProcess, which: str) -> None:
    """100,000 of them in small batches; no partition has less than half of its fair share."""
    count, partition_count, batch_bytes = 100_000, 4, 1024
    topic = create(broker, f"spread-{which}", partition_count)
    if which == "own":
        with sync.Producer(broker.bootstrap, batch_size=batch_bytes) as own:
            for future in own.send_many((topic, b"%08d" % number, None) for number in range(count)):
                future.result(WAIT_SECONDS_MAX)
    elif which == "confluent":
        settings = {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": count, "sticky.partitioning.linger.ms": 0}
        confluent = confluent_kafka.Producer(settings)
        for number in range(count):
            confluent.produce(topic, b"%08d" % number)
        assert confluent.flush(WAIT_SECONDS_MAX) == 0
    else:
        python = KafkaProducer(bootstrap_servers=broker.bootstrap, batch_size=batch_bytes)
        for number in range(count):
            python.send(topic, b"%08d" % number)
        python.close(WAIT_SECONDS_MAX)
    with RawClient(broker.port) as raw:
        ends = end_offsets(raw, topic, partition_count)
    assert sum(ends) == count
    assert min(ends) > count // partition_count // 2, ends


def test_mechanisms_14_and_15_clients_ask_anybody_for_metadata_and_go_straight_to_the_leader(tmp_path: Path) -> None:
    """The bootstrap address is a proxy, the leader is elsewhere; then the leader moves to another port, and clients find it again."""
    with Proxy() as proxy, BrokerProcess(tmp_path, port=lasting_port()) as broker:
        proxy.target_port = broker.port
        create(broker, "straight")
        own = sync.Producer(proxy.bootstrap)
        confluent = confluent_kafka.Producer({"bootstrap.servers": proxy.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})
        python = KafkaProducer(bootstrap_servers=proxy.bootstrap)
        python.send("straight", b"kafka-python").get(WAIT_SECONDS_MAX)
        python.close(WAIT_SECONDS_MAX)  # it does not come back to its bootstrap addresses

        def send_one_each() -> None:
            own.send("straight", b"own").result(WAIT_SECONDS_MAX)
            confluent.produce("straight", b"confluent")
            assert confluent.flush(WAIT_SECONDS_MAX) == 0

        send_one_each()
        assert len(proxy.requests(ApiKey.METADATA)) >= 3
        assert not proxy.requests(ApiKey.PRODUCE), "no record went through the address that only returned the leader"

        broker.stop()
        broker.port = 0
        broker.start()
        proxy.target_port = broker.port
        send_one_each()
        assert not proxy.requests(ApiKey.PRODUCE)
        own.close()
        assert ends(broker, "straight") == 5


def ends(broker: BrokerProcess, topic: str) -> int:
    with RawClient(broker.port) as raw:
        return end_offsets(raw, topic, 1)[0]


# Batches


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Proxy]]:
    """A broker that clients reach through a proxy only."""
    with Proxy() as proxy:
        directory = tmp_path_factory.mktemp("observed")
        port = proxy.target_port = lasting_port()
        with BrokerProcess(directory, port=port, advertised_listeners=f"PLAINTEXT://{proxy.bootstrap}") as broker:
            yield broker, proxy


def requests_with(proxy: Proxy, text: str) -> int:
    """Produce requests that carry the text: in the values, as newer versions name topics by id."""
    return sum(text.encode() in exchange.request for exchange in proxy.requests(ApiKey.PRODUCE))


def test_mechanism_16_linger_and_batch_size_decide_how_many_requests_carry_the_records(observed: tuple[BrokerProcess, Proxy]) -> None:
    broker, proxy = observed
    count = 50

    def requests_for(topic: str, **settings: Any) -> int:
        create(broker, topic)
        with sync.Producer(proxy.bootstrap, **settings) as producer:
            producer.send(topic, b"first", key=b"key")
            producer.flush()  # from here on nothing but linger and batch size keeps a record back
            for _ in range(count):
                producer.send(topic, topic.encode() + bytes(100), key=b"key")
            producer.flush()
        assert ends(broker, topic) == count + 1
        return requests_with(proxy, topic)

    assert requests_for("lingering", linger_ms=FOR_EVER_MS) == 1, "all wait for each other until the flush"
    assert requests_for("small-batches", linger_ms=FOR_EVER_MS, batch_size=100) == count, "a batch is full with one record"

    topic = create(broker, "confluent-lingering")
    confluent = confluent_kafka.Producer({"bootstrap.servers": proxy.bootstrap, "linger.ms": FOR_EVER_MS, "batch.num.messages": 10})
    for _ in range(count):
        confluent.produce(topic, topic.encode())
    assert confluent.flush(WAIT_SECONDS_MAX) == 0
    assert requests_with(proxy, topic) == count // 10


def test_mechanism_16_send_returns_before_the_acknowledgement(observed: tuple[BrokerProcess, Proxy]) -> None:
    broker, proxy = observed
    topic = create(broker, "not-waiting")
    with sync.Producer(proxy.bootstrap, linger_ms=0, request_timeout_ms=1000) as producer:
        producer.send(topic, b"first").result(WAIT_SECONDS_MAX)
        proxy.mute()
        waiting = producer.send(topic, b"second")
        with RawClient(broker.port) as raw:
            while end_offsets(raw, topic, 1) != [2]:
                assert not waiting.done()
        assert not waiting.done(), "it is stored, and not acknowledged yet"
        assert waiting.result(WAIT_SECONDS_MAX).offset == 1, "the request timed out and was sent again: the same place"
    assert ends(broker, topic) == 2


def test_mechanism_17_one_produce_request_carries_batches_for_many_partitions(observed: tuple[BrokerProcess, Proxy]) -> None:
    broker, proxy = observed
    topic = create(broker, "many-partitions", 5)
    with sync.Producer(proxy.bootstrap, linger_ms=FOR_EVER_MS) as producer:
        for index in range(100):
            producer.send(topic, topic.encode(), partition=index % 5)
        producer.flush()
    assert requests_with(proxy, topic) == 1
    with RawClient(broker.port) as raw:
        assert end_offsets(raw, topic, 5) == [20] * 5


def test_mechanism_17_a_fetch_keeps_to_its_limits(client: RawClient, broker: BrokerProcess) -> None:
    """Ten batches of about 1,000 bytes. A batch is never cut; the first one comes even where it is too large."""
    topic = create(broker, "limits")
    batch = batch_of(bytes(1000))
    for _ in range(10):
        client.ask(produce_request(topic, batch), 9)
    size = len(batch)

    def count(**limits: int) -> int:
        records = fetch(client, topic, 0, **limits)
        assert len(records) % size == 0 or limits["partition_bytes"] > size, "brokers may cut the last batch, as Kafka's does"
        return len(list(iterate_batches(records)))

    assert count() == 10
    assert count(partition_bytes=3 * size) == 3
    assert count(max_bytes=4 * size) == 4
    assert count(max_bytes=4 * size, partition_bytes=2 * size) == 2
    assert count(partition_bytes=1) == 1
    assert count(max_bytes=1) == 1
    assert count(min_bytes=10 * size, max_wait_ms=FOR_EVER_MS) == 10, "there is enough: nothing is waited for"


def test_mechanism_61_a_waiting_fetch_is_answered_by_the_append_that_completes_it(client: RawClient, broker: BrokerProcess) -> None:
    """The longest wait is longer than the socket's patience, so that an answer can only have come early."""
    topic = create(broker, "parked")
    batch = batch_of(b"x")
    wanted = FetchPartition(0, partition_max_bytes=1 << 20)
    client.send(FetchRequest(max_wait_ms=FOR_EVER_MS, min_bytes=2 * len(batch), topics=[FetchTopic(topic, partitions=[wanted])]), 4)
    with RawClient(broker.port) as other:
        for _ in range(2):
            other.ask(produce_request(topic, batch), 9)
    records = client.receive().responses[0].partitions[0].records
    assert len(list(iterate_batches(records))) == 2, "the first append was not enough"


def test_mechanism_61_a_fetch_that_nothing_completes_is_answered_when_its_wait_is_over(client: RawClient, broker: BrokerProcess) -> None:
    topic = create(broker, "empty")
    started = time.monotonic()
    assert not fetch(client, topic, 0, max_wait_ms=200)
    assert time.monotonic() - started >= 0.19  # the broker's clock counts whole milliseconds
    client.ask(produce_request(topic, batch_of(b"x")), 9)
    assert len(list(iterate_batches(fetch(client, topic, 0, max_wait_ms=200, min_bytes=1000)))) == 1, "then it gets what there is"


@pytest.mark.parametrize("sent_as", ["none", "gzip", "zstd"])
@pytest.mark.parametrize(("configured", "stored_as"), [("uncompressed", "none"), ("lz4", "lz4"), ("snappy", "snappy"), ("zstd", "zstd")])
def test_mechanism_18_compression_type_of_a_topic_decides_how_its_batches_are_stored(
    broker: BrokerProcess, configured: str, stored_as: str, sent_as: str
) -> None:
    topic = create(broker, f"stored-{configured}-{sent_as}", compression_type=configured)
    fill(broker, topic, 1000, size_bytes=100, compression_type=sent_as)
    batches = list(stored_batches(broker.data / f"{topic}-0"))
    assert {batch.codec for batch in batches} == {stored_as}
    assert sum(batch.record_count for batch in batches) == 1000
    if stored_as != "none":
        assert sum(len(batch.data) for batch in batches) < 1000 * 100 / 2
    got = [record.value for record in read(broker, topic, 1000)]
    assert got == [b"%d" % number + bytes(100) for number in range(1000)]


# Files


@pytest.mark.usefixtures("default_paths")
def test_mechanism_19_acks_0_sends_no_response_bytes(client: RawClient, broker: BrokerProcess) -> None:
    """Not one until the connection ends, which the broker ends when it has done all that was sent."""
    topic = create(broker, "unacknowledged")
    for number in range(3):
        client.send(produce_request(topic, batch_of(b"%d" % number), acks=0), 9, is_answered=False)
    client.socket.shutdown(socket.SHUT_WR)
    assert client.socket.recv(1) == b""
    with RawClient(broker.port) as other:
        assert end_offsets(other, topic, 1) == [3]


def test_mechanism_48_large_fetches_leave_by_sendfile_and_are_not_read(tmp_path: Path) -> None:
    """The broker's own system calls, counted in its process: 8 MB fetched, and next to nothing of it read into the program."""
    batch = batch_of(bytes(900_000))
    with BrokerProcess(tmp_path, module="tests.foreign_clients.counting_broker") as broker:
        create(broker, "large")
        with RawClient(broker.port) as client:
            for _ in range(8):
                client.ask(produce_request("large", batch), 9)
            assert len(fetch(client, "large", 0)) == 8 * len(batch)
    counts = json.loads((tmp_path / COUNTS_NAME).read_text())
    # What a full socket leaves of the region may be too small for sendfile, and is copied.
    assert 0 <= 8 * len(batch) - counts["sendfile"] < PATHS.sendfile_bytes_min
    assert counts["pread"] < len(batch)


def test_mechanism_50_recovery_keeps_what_was_acknowledged_and_cuts_a_torn_tail(tmp_path: Path) -> None:
    """Kill -9, and then half of a batch after the last complete one, as an append that was interrupted."""
    with BrokerProcess(tmp_path, port=lasting_port()) as broker:
        create(broker, "torn")
        fill(broker, "torn", 1000)
        broker.kill()
        (segment,) = (broker.data / "torn-0").glob("*.log")
        whole = segment.read_bytes()
        assert len(whole) > HEADER_SIZE
        torn = batch_of(b"never acknowledged", base_offset=1000)
        with segment.open("ab") as out:
            out.write(torn[: len(torn) // 2])
        broker.start()
        assert ends(broker, "torn") == 1000
        assert segment.read_bytes() == whole
        assert [record.value for record in read(broker, "torn", 1000)] == [b"%d" % number for number in range(1000)]
        assert fill(broker, "torn", 1)[0].offset == 1000


# Consumers


def test_mechanism_52_reading_takes_nothing_away(broker: BrokerProcess) -> None:
    topic = create(broker, "kept")
    fill(broker, topic, 500)
    with sync.Consumer(broker.bootstrap, group_id="kept", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        first = take(consumer, 500)
        consumer.commit()
        consumer.seek_to_beginning()
        assert take(consumer, 500) == first
    assert read(broker, topic, 500) == first


def test_mechanism_59_a_consumer_chooses_where_it_reads(broker: BrokerProcess) -> None:
    topic = create(broker, "positions")
    start_ms = 1_700_000_000_000
    with sync.Producer(broker.bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, timestamp_ms=start_ms + 10 * number)
        producer.flush()
    here = sync.TopicPartition(topic, 0)
    with sync.Consumer(broker.bootstrap) as consumer:
        consumer.assign([here])
        consumer.seek(here, 40)
        assert take(consumer, 1)[0].offset == 40
        consumer.seek(here, 0)
        assert take(consumer, 1)[0].offset == 0
        found, _, _ = consumer.offsets_for_times({here: start_ms + 695})[here]
        assert found == 70
        consumer.seek_to_end()
        assert consumer.position(here) == 100
        fill(broker, topic, 1)
        assert take(consumer, 1)[0].offset == 100

    python = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    there = kafka_partition(topic)
    python.assign([there])
    assert python.offsets_for_times({there: start_ms + 695})[there].offset == 70
    python.seek(there, 70)
    assert next(python).offset == 70
    python.close()


def kafka_partition(topic: str) -> Any:
    from kafka import TopicPartition

    return TopicPartition(topic, 0)


def test_mechanism_60_a_consumer_far_behind_and_a_live_producer_both_make_progress(broker: BrokerProcess) -> None:
    """In turns, so that neither could get on if the other kept the broker to itself: a fetch of the backlog, an acknowledged record."""
    topic = create(broker, "backlog")
    count = 5_000
    fill(broker, topic, count, size_bytes=4_000, batch_size=100_000)
    here = sync.TopicPartition(topic, 0)
    slowly = sync.Consumer(broker.bootstrap, max_partition_fetch_bytes=1_000_000, fetch_max_bytes=1_000_000)
    with slowly as behind, sync.Producer(broker.bootstrap, linger_ms=0) as live:
        behind.assign([here])
        behind.seek_to_beginning()
        turns = 0
        while behind.position(here) < count:
            before = behind.position(here)
            take(behind, 1)
            assert behind.position(here) > before
            assert live.send(topic, b"live").result(WAIT_SECONDS_MAX).offset == count + turns
            turns += 1
    assert turns >= 10, "the backlog took many fetches"

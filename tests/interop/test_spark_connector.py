"""Spark's own Kafka connector (Kafka's Java client 3.9.2 inside), as source and as sink, in batches and as streams."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.broker.certificates import Authority
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port, lasting_ports
from tests.foreign_clients.workload import CODECS, PARTITION_COUNT, RECORD_COUNT, Record, assert_sent, assert_stored_as, key_of, value_of
from tests.interop.connector import jars

from ottla import sync
from ottla.runtime.java import use_java
from ottla.types import Secret


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    use_java()
    builder = SparkSession.builder.master("local[2]").appName("interop")
    settings = {
        "spark.jars": jars(),
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("spark"), port=lasting_port()) as process:
        yield process


def create(broker: BrokerProcess, topic: str) -> None:
    with sync.Admin(broker.bootstrap) as admin:
        assert admin.create_topics([sync.NewTopic(topic, PARTITION_COUNT)]) == {topic: None}


def rows(spark: SparkSession, first: int = 0, last: int = RECORD_COUNT) -> DataFrame:
    return spark.createDataFrame([(key_of(index), value_of(index)) for index in range(first, last)], "key binary, value binary")


def write(frame: DataFrame, broker: BrokerProcess, topic: str, **options: str) -> None:
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic)
    writer.options(**options).save()


def read(spark: SparkSession, broker: BrokerProcess, topic: str, **options: str) -> list[Record]:
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    found = source.options(**options).load().select("partition", "offset", "key", "value").collect()
    return [Record(row.partition, row.offset, bytes(row.key), bytes(row.value)) for row in found]


@pytest.mark.parametrize("codec", CODECS)
def test_10000_records_written_and_read_in_batches(spark: SparkSession, broker: BrokerProcess, codec: str) -> None:
    topic = f"records-{codec}"
    create(broker, topic)
    write(rows(spark).coalesce(1), broker, topic, **{"kafka.compression.type": codec})
    broker.restart()
    got = read(spark, broker, topic)

    assert sorted(record.value for record in got) == [value_of(index) for index in range(RECORD_COUNT)]
    assert_sent(got)
    assert_stored_as(codec, broker.data, topic)


def test_ranges_of_offsets_and_times_are_read_as_asked(spark: SparkSession, broker: BrokerProcess) -> None:
    create(broker, "ranges")
    write(rows(spark, 0, 300).coalesce(1), broker, "ranges")
    everything = read(spark, broker, "ranges")

    some = read(
        spark, broker, "ranges",
        startingOffsets='{"ranges": {"0": 5, "1": -2, "2": -2}}', endingOffsets='{"ranges": {"0": 8, "1": -1, "2": 0}}',
    )  # fmt: skip
    assert sorted(some) == sorted(
        record for record in everything if (record.partition == 0 and 5 <= record.offset < 8) or record.partition == 1
    )
    assert sorted(read(spark, broker, "ranges", startingTimestamp="0")) == sorted(everything)
    with pytest.raises(Exception, match="No offset matched"):
        read(spark, broker, "ranges", startingTimestamp="9000000000000", startingOffsetsByTimestampStrategy="error")


def test_a_stream_resumes_where_it_stopped_though_the_broker_was_restarted(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    create(broker, "stream-in")
    create(broker, "stream-out")

    def run() -> None:
        """What is there now, in micro-batches of at most 1,000 records."""
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", "stream-in")
        frame = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "1000").load()
        sink = frame.select("key", "value").writeStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        query = sink.option("topic", "stream-out").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    half = RECORD_COUNT // 2
    write(rows(spark, 0, half).coalesce(1), broker, "stream-in")
    run()
    assert len(read(spark, broker, "stream-out")) == half
    broker.restart()
    write(rows(spark, half, RECORD_COUNT).coalesce(1), broker, "stream-in")
    run()

    got = read(spark, broker, "stream-out")
    assert sorted(record.value for record in got) == [value_of(index) for index in range(RECORD_COUNT)]
    assert_sent(got)


def test_a_topic_is_copied_by_both_connectors_with_the_same_line(spark: SparkSession, broker: BrokerProcess) -> None:
    import ottla.spark

    assert ottla.spark.__all__, "importing it lets Spark find its source"
    topics = {"original": "kafka", "copy-kafka": "kafka", "copy-ottla": "ottla"}
    for topic in topics:
        create(broker, topic)
    with sync.Producer(broker.bootstrap) as producer:
        for index in range(300):
            headers = [("index", b"%d" % index), ("none", None)] if index % 3 else []
            key = None if index % 5 == 0 else key_of(index)
            producer.send("original", value_of(index), key=key, headers=headers, timestamp_ms=1_700_000_000_000 + index)
    found = {}
    for topic, connector in topics.items():
        options = {"kafka.bootstrap.servers": broker.bootstrap}
        if topic != "original":
            source = spark.read.format(connector).options(subscribe="original", includeHeaders="true", **options).load()
            source.write.format(connector).options(topic=topic, **options).mode("append").save()
        with sync.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([sync.TopicPartition(topic, index) for index in range(PARTITION_COUNT)])
            records: list[sync.ConsumerRecord] = []
            while len(records) < 300:
                records += consumer.poll(1000)
        found[topic] = sorted((record.partition, record.key or b"", record.value or b"", record.headers) for record in records)
        if connector == "ottla":
            assert sorted(record.timestamp_ms for record in records) == [1_700_000_000_000 + index for index in range(300)]
    assert found["copy-kafka"] == found["copy-ottla"] == found["original"]


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def test_over_sasl_ssl_both_connectors_take_the_same_options_with_a_password_and_with_a_token(spark: SparkSession, tmp_path: Path) -> None:
    import ottla.spark

    assert ottla.spark.__all__, "importing it lets Spark find its source"
    authority = Authority(tmp_path / "certificates")
    plain, guarded = lasting_ports(2)
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{guarded}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.location": str(authority.issue("broker").store),
        "delegation.token.secret.key": "the-secret-of-the-cluster",
    }
    with BrokerProcess(tmp_path, port=plain, **properties) as broker:
        with sync.Admin(f"127.0.0.1:{plain}") as admin:
            admin.alter_users([sync.UserChange("alice", "SCRAM-SHA-512", Secret("alice-secret"))])
            admin.create_topics([sync.NewTopic("guarded", 1)])
        known = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.trust),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM} username="alice" password="alice-secret";',
        }
        client: dict[str, Any] = {key.replace(".", "_"): value for key, value in known.items()}
        with sync.Admin(f"127.0.0.1:{guarded}", **client) as alice:
            token = alice.create_token()
        by_token = f'{SCRAM} username="{token.token_id}" password="{token.hmac.reveal()}" tokenauth="true";'
        written = 0
        for login in (known["sasl.jaas.config"], by_token):
            options = {f"kafka.{key}": value for key, value in (known | {"sasl.jaas.config": login}).items()}
            options["kafka.bootstrap.servers"] = f"127.0.0.1:{guarded}"
            for connector in ("kafka", "ottla"):
                writer = rows(spark, 0, 10).write.format(connector).options(**options, topic="guarded")
                writer.mode("append").save()
                written += 10
                assert spark.read.format(connector).options(**options, subscribe="guarded").load().count() == written
        assert token.hmac.reveal() not in broker.log()

import re
import warnings
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.lookup import check_selection
from ottla.spark.options import BATCH, SINK, STREAM, TABLE, Fate, boolean, checked, duration_ms, markdown, positive
from ottla.spark.source import OttlaDataSource

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"
BASE = {"kafka.bootstrap.servers": "localhost:9092"}

# Every option in the guide to Spark's Kafka connector, and the Kafka settings that it says are fixed.
GUIDE = [
    "assign",
    "subscribe",
    "subscribePattern",
    "kafka.bootstrap.servers",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "kafka.group.id",
    "includeHeaders",
    "startingOffsetsByTimestampStrategy",
    "topic",
    "kafka.auto.offset.reset",
    "kafka.key.deserializer",
    "kafka.value.deserializer",
    "kafka.key.serializer",
    "kafka.value.serializer",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
    "kafka.security.protocol",
    "kafka.sasl.mechanism",
    "kafka.sasl.jaas.config",
    "kafka.ssl.truststore.location",
    "kafka.ssl.truststore.password",
    "kafka.ssl.keystore.location",
    "kafka.ssl.keystore.password",
    "kafka.sasl.kerberos.service.name",
]


def refusal(options, use=BATCH):
    with pytest.raises(KafkaError) as raised:
        checked(BASE | options, use)
    assert raised.value.code == ErrorCode.INVALID_CONFIG
    return raised.value.message


@pytest.mark.parametrize("name", GUIDE)
def test_the_table_says_what_becomes_of_each_option_of_the_guide(name):
    assert name in {option.name for option in TABLE}


def test_no_option_is_listed_twice():
    names = [option.name.lower() for option in TABLE]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("option", [option for option in TABLE if option.fate is Fate.REFUSED], ids=lambda option: option.name)
def test_a_refused_option_is_refused_by_name_and_with_the_way_out(option):
    message = refusal({option.name: "x"}, option.uses[0])
    assert option.name in message
    assert option.meaning in message


@pytest.mark.parametrize("option", [option for option in TABLE if option.fate is Fate.IGNORED], ids=lambda option: option.name)
def test_an_ignored_option_warns_and_is_dropped(option):
    with pytest.warns(UserWarning, match=re.escape(option.name)):
        assert checked(BASE | {option.name: "1"}, option.uses[0]) == BASE


@pytest.mark.parametrize("option", [option for option in TABLE if option.fate is Fate.HONOURED], ids=lambda option: option.name)
def test_an_honoured_option_is_kept_under_its_own_name_whatever_its_case(option):
    words = {
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.isolation.level": "read_committed",
        "delivery": "at_least_once",
        "checkpoint": "directory",
    }
    value = words.get(option.name, "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checked(BASE | {option.name.lower(): value}, option.uses[0])[option.name] == value


def test_an_option_with_no_meaning_for_the_use_is_refused():
    assert "batch" in refusal({"endingOffsets": "latest"}, STREAM)
    assert "stream" in refusal({"maxOffsetsPerTrigger": "5"}, BATCH)
    assert "sink" in refusal({"topic": "t"}, BATCH)
    assert "subscribe" in refusal({"subscribe": "t"}, SINK)


def test_a_misspelt_option_is_refused_with_the_nearest_name():
    assert "did you mean maxOffsetsPerTrigger?" in refusal({"maxOffsetPerTrigger": "5"}, STREAM)


def test_the_bootstrap_servers_must_be_named():
    with pytest.raises(KafkaError, match=r"kafka\.bootstrap\.servers"):
        checked({"subscribe": "t"}, BATCH)


def test_isolation_levels_are_written_as_kafka_writes_them():
    assert "read_committed" in refusal({"kafka.isolation.level": "READ_COMMITTED"})


def test_protocols_other_than_plaintext_are_refused():
    assert "SASL_SSL" in refusal({"kafka.security.protocol": "SASL_SSL"})


@pytest.mark.parametrize("options", [{}, {"subscribe": "a", "assign": "{}"}, {"assign": "[1]"}, {"subscribePattern": "("}])
def test_partitions_are_named_in_exactly_one_way(options):
    with pytest.raises(KafkaError):
        check_selection(options)


@pytest.mark.parametrize("options", [{"subscribe": "a,b"}, {"assign": '{"a": [0, 1]}'}, {"subscribePattern": "a.*"}, {"path": "a"}])
def test_each_way_of_naming_partitions_is_taken(options):
    check_selection(options)


def test_values_are_read_or_refused_by_name():
    assert boolean({"failOnDataLoss": "FALSE"}, "failOnDataLoss", True) is False
    assert positive({}, "minPartitions") is None
    assert [duration_ms({"maxTriggerDelay": text}, "maxTriggerDelay", "15m") for text in ("250ms", "3 s", "2m", "1h")] == [
        250,
        3_000,
        120_000,
        3_600_000,
    ]
    refusals: list = [(boolean, "failOnDataLoss", "yes"), (duration_ms, "maxTriggerDelay", "soon")]
    for read, name, text in refusals:
        with pytest.raises(KafkaError, match=f"{name}={text}"):
            read({name: text}, name, "15m")
    for text in ("0", "-1", "many"):
        with pytest.raises(KafkaError, match="minPartitions"):
            positive({"minPartitions": text}, "minPartitions")


NUMBERS = [option for option in TABLE if option.number_min is not None]


@pytest.mark.parametrize("option", NUMBERS, ids=lambda option: option.name)
def test_a_number_is_checked_when_it_is_read_and_the_error_names_the_option(option):
    for text in ("", "many", "-1", "2s", "1e6", "1.5", "\N{SUPERSCRIPT TWO}", str(2**63), "9" * 5000):
        assert f"{option.name}={text} is not a whole number of at least {option.number_min}" in refusal({option.name: text}, option.uses[0])
    for number in (option.number_min, 2**63 - 1):
        assert checked(BASE | {option.name: f" {number} "}, option.uses[0])[option.name] == str(number)


def test_every_option_whose_default_is_a_number_is_checked_as_one():
    assert [option.name for option in TABLE if option.default.isdigit() and option.number_min is None] == []


@pytest.mark.parametrize("use", [BATCH, STREAM])
@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{"t": {"0": -3}}'},
        {"startingTimestamp": "-1"},
        {"startingOffsetsByTimestamp": '{"t": {"0": -1}}'},
        {"startingOffsetsByTimestampStrategy": "now"},
        {"assign": '{"t": [-1]}', "subscribe": None},
    ],
)
def test_a_source_checks_its_bounds_before_the_query_starts(use, options):
    given = {name: value for name, value in (BASE | {"subscribe": "t"} | options).items() if value is not None}
    source = OttlaDataSource(given)
    with pytest.raises(KafkaError, match=next(iter(options))):
        source.reader(StructType()) if use == BATCH else source.streamReader(StructType())


def test_the_document_has_the_table_as_the_code_has_it():
    assert markdown() in DOCUMENT.read_text(encoding="utf-8")

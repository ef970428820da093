import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.client.security import SecuritySettings
from ottla.client.settings import checks_of
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.link import link_for
from ottla.spark.lookup import check_selection
from ottla.spark.options import (
    BATCH,
    BOOLEANS,
    SINK,
    STREAM,
    TABLE,
    Fate,
    boolean,
    checked,
    duration_ms,
    markdown,
    number_of,
    positive,
    texts,
)
from ottla.spark.pipelines import brokers_of, running
from ottla.spark.security import MEANINGS, SECRETS, HiddenText, is_security, settings_of
from ottla.spark.source import OttlaDataSource
from ottla.spark.streams import source_options
from ottla.types import Secret

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "spark.md"
ROW = StructType([StructField("value", BinaryType())])
BASE = {"kafka.bootstrap.servers": "localhost:9092"}
SASL = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-256",
    "kafka.sasl.plain.username": "alice",
    "kafka.sasl.plain.password": "marked-secret",
}
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="marked-secret";'
OAUTH = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token",
    "kafka.sasl.oauthbearer.client.credentials.client.id": "job",
    "kafka.sasl.oauthbearer.client.credentials.client.secret": "marked-secret",
}

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


def test_numbers_and_truth_values_are_taken_for_their_text():
    taken = texts({"maxOffsetsPerTrigger": 10_000, "failOnDataLoss": False, "group": HiddenText("x")})
    assert taken == {"maxOffsetsPerTrigger": "10000", "failOnDataLoss": "false", "group": "x"}
    assert repr(taken["group"]) == "[hidden]"
    wrong: Any = {"kafka.sasl.password": b"secret"}
    with pytest.raises(KafkaError, match=r"option kafka\.sasl\.password is a bytes: give a text") as refused:
        texts(wrong)
    assert "secret" not in str(refused.value)


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
        "maxTriggerDelay": "1s",
        "delivery": "at_least_once",
        "checkpoint": "directory",
        "kafka.compression.type": "ZSTD",
        **dict.fromkeys(BOOLEANS, "TRUE"),
    }
    value, more = words.get(option.name, "1"), {}
    if option.name.startswith("kafka.ssl."):
        more = {"kafka.security.protocol": "SSL"}
    elif option.name.startswith("kafka.sasl.oauthbearer."):
        more = OAUTH
    elif option.name.startswith("kafka.sasl."):
        more = SASL
        value = more.get(option.name, value)
        if option.name == "kafka.sasl.jaas.config":
            value, more = SCRAM, {name: text for name, text in more.items() if "plain" not in name}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = more.get(option.name, value)
        assert checked(BASE | more | {option.name.lower(): value}, option.uses[0])[option.name] == value


def test_an_option_with_no_meaning_for_the_use_is_refused():
    assert "batch" in refusal({"endingOffsets": "latest"}, STREAM)
    assert "stream" in refusal({"maxOffsetsPerTrigger": "5"}, BATCH)
    assert "sink" in refusal({"topic": "t"}, BATCH)
    assert "subscribe" in refusal({"subscribe": "t"}, SINK)


def test_a_misspelt_option_is_refused_with_the_nearest_name():
    assert "did you mean maxOffsetsPerTrigger?" in refusal({"maxOffsetPerTrigger": "5"}, STREAM)
    assert "failOnDataLoss=maybe is neither true nor false" in refusal({"failOnDataLoss": "maybe"}, BATCH), "before a task looks at it"
    assert "kafka.compression.type=zip is not one of none, " in refusal({"kafka.compression.type": "zip"}, SINK)
    assert "did you mean checkpointLocation?" in refusal({"checkpointLocaton": "/c"}, SINK)


def test_options_that_sparks_writers_add_to_a_query_are_accepted():
    own = {"queryname": "totals", "checkpointLocation": "/checkpoints/totals"}
    assert checked(BASE | own, SINK) == BASE | {"checkpointLocation": "/checkpoints/totals"}
    assert checked(BASE | own, STREAM) == BASE


def test_the_bootstrap_servers_must_be_named():
    with pytest.raises(KafkaError, match=r"kafka\.bootstrap\.servers"):
        checked({"subscribe": "t"}, BATCH)


def test_isolation_levels_are_written_as_kafka_writes_them():
    assert "read_committed" in refusal({"kafka.isolation.level": "READ_COMMITTED"})


def test_security_options_are_the_settings_of_a_client_and_secrets_hide_themselves():
    shown = checks_of(SecuritySettings).keys() - {"sasl_oauth_token"}  # a function, which an option is not
    assert {name.replace(".", "_") for name in MEANINGS} == shown
    assert {name.replace(".", "_") for name in SECRETS} == {name for name in shown if isinstance(_made(name), Secret)}
    kept = checked(BASE | SASL, SINK)
    assert kept["kafka.sasl.plain.password"] == "marked-secret"
    assert "marked-secret" not in repr(kept) + repr(pickle.loads(pickle.dumps(kept))) + repr(tuple(sorted(kept.items())))
    assert settings_of(kept).sasl_plain_password == Secret("marked-secret")


def _made(name: str) -> object:
    return checks_of(SecuritySettings)[name](name, "plaintext" if name == "security_protocol" else "x")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol='TLS': it must be one of plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.mechanism has no effect with security.protocol=plaintext"),
        ({"kafka.ssl.keystore.key": "marked-secret"}, "kafka.ssl.keystore.key has no effect with security.protocol=plaintext"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism is not set"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism=GSSAPI is not supported"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.plain.password": "marked-secret"},
            "needs a name and a password",
        ),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": "marked-secret"},
            "sasl.jaas.config",
        ),
    ],
)
def test_security_options_that_do_not_go_together_are_refused_by_name_and_without_secrets(options, says):
    message = refusal(options)
    assert says in message
    assert "marked-secret" not in message


def test_another_password_makes_another_link_and_unreadable_stores_are_refused_by_name():
    first = checked(BASE | SASL, SINK)
    assert link_for(first) is link_for(dict(first))
    assert link_for(first) is not link_for(first | {"kafka.sasl.plain.password": "another"})
    with pytest.raises(KafkaError, match=r"the store /nowhere\.pem cannot be read"):
        link_for(first | {"kafka.ssl.truststore.location": "/nowhere.pem"})
    with pytest.raises(KafkaError, match="the store /nowhere"):
        OttlaDataSource(dict(first) | {"topic": "t", "kafka.ssl.truststore.location": "/nowhere.pem"}).writer(ROW, overwrite=False)


def test_dead_letters_are_read_as_who_the_source_is():
    assert all(is_security(f"kafka.{name}") and is_security(f"KAFKA.{name.upper()}") for name in MEANINGS)
    assert not is_security("kafka.client.id")


def test_a_runners_password_is_for_its_own_brokers():
    client = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.plain.password": "marked-secret"}
    with running("app", "f", "own:1", client=client) as found:
        assert brokers_of(None, {}) == {"kafka.bootstrap.servers": "own:1", **client}
        assert brokers_of("other:1", {}) == {"kafka.bootstrap.servers": "other:1"}
        assert brokers_of(None, {"Kafka.Bootstrap.Servers": "other:1"}) == {}
        assert "marked-secret" not in repr(found)


@pytest.mark.parametrize("options", [{}, {"subscribe": "a", "assign": "{}"}, {"assign": "[1]"}, {"subscribePattern": "("}])
def test_partitions_are_named_in_exactly_one_way(options):
    with pytest.raises(KafkaError):
        check_selection(options)


@pytest.mark.parametrize("name", ["subscribe", "path"])
def test_topics_in_a_list_are_refused_with_the_form_that_is_meant(name: str):
    """PySpark makes a text of it, of which the second half had been "topic 'b\\']'" with no reason."""
    with pytest.raises(KafkaError, match=r"=\['a', 'b'\]: the character .* several topics have commas between them: orders,payments"):
        check_selection({name: "['a', 'b']"})
    many: Any = ["a", "b"]
    with pytest.raises(KafkaError, match="topic is a list: give a text, several topics with commas between them"):
        source_options(many, "broker:1", None, {})


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
    assert f"{option.name}={option.number_max + 1} is not a whole number" in refusal(
        {option.name: str(option.number_max + 1)}, option.uses[0]
    )
    for number in (option.number_min, option.number_max):
        assert checked(BASE | {option.name: f" {number} "}, option.uses[0])[option.name] == str(number)


def test_a_number_that_a_request_has_fits_there():
    """The first fetch refused it, and ottla pipeline run started the query again without end."""
    for name, use in [
        ("kafka.fetch.max.bytes", BATCH),
        ("kafka.max.partition.fetch.bytes", STREAM),
        ("kafka.transaction.timeout.ms", SINK),
    ]:
        assert f"{name}={2**31} is not a whole number of at least 1 and at most {2**31 - 1}" in refusal({name: str(2**31)}, use)


def test_a_number_that_is_not_given_is_the_one_that_the_table_shows():
    assert number_of({}, "kafka.batch.size") == 262144
    assert number_of({"kafka.batch.size": "10"}, "kafka.batch.size") == 10


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
        source.reader(StructType()) if use == BATCH else source.streamReader(StructType()).initialOffset()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger=many"),
        ({"maxTriggerDelay": "1 parsec"}, "maxTriggerDelay=1 parsec is not a duration such as 500ms"),
        ({"assign": "{}"}, "subscribe"),
    ],
)
def test_a_refused_reader_of_a_stream_says_why_whatever_spark_asks_first(options, word):
    reader: Any = OttlaDataSource(BASE | {"subscribe": "t"} | options).streamReader(StructType())
    asked: list = [
        reader.getDefaultReadLimit, reader.prepareForTriggerAvailableNow, reader.initialOffset, lambda: reader.latestOffset({}, None),
        reader.reportLatestOffset, lambda: reader.partitions({}, {}), lambda: reader.read(None),
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(KafkaError, match=word):
            ask()
    reader.stop()


def test_the_document_has_the_table_as_the_code_has_it():
    assert markdown() in DOCUMENT.read_text(encoding="utf-8")

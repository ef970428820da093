"""The options of ``format("ottla")``: one table, which says of each what becomes of it.

Every option of the guide to Spark's Kafka connector is here: honoured, ignored with a warning, or refused with the way out.
``docs/reference/spark.md`` is checked against the table. Keys are looked up without regard to case, as everywhere in Spark; an option that
the table does not have is refused with the nearest name, for a misspelt limit would otherwise be no limit at all.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.security import MEANINGS, PREFIX, REFUSED, SECRETS, HiddenText, check_settings

BATCH: Final = "batch"
STREAM: Final = "stream"
SINK: Final = "sink"
_READ: Final = (BATCH, STREAM)
_ALL: Final = (BATCH, STREAM, SINK)
NUMBER_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
"""Of a number that a request has, which Kafka's clients do not take a larger one of either."""


class Fate(Enum):
    HONOURED = "honoured"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    uses: tuple[str, ...]  # where it has a meaning
    fate: Fate
    meaning: str  # what it does; for what is ignored or refused: why, and what to do instead
    default: str = ""
    number_min: int | None = None  # of an option that is a whole number
    number_max: int = NUMBER_MAX


def _honoured(name: str, uses: tuple[str, ...], meaning: str, default: str = "") -> Option:
    return Option(name, uses, Fate.HONOURED, meaning, default)


def _number(name: str, uses: tuple[str, ...], number_min: int, meaning: str, default: str = "", number_max: int = NUMBER_MAX) -> Option:
    return Option(name, uses, Fate.HONOURED, meaning, default, number_min, number_max)


def _ignored(name: str, uses: tuple[str, ...], meaning: str) -> Option:
    return Option(name, uses, Fate.IGNORED, meaning)


def _harmless(names: str, uses: tuple[str, ...], meaning: str) -> list[Option]:
    """Returns settings of Kafka's Java clients that a query may carry over as they are."""
    return [_ignored(f"kafka.{name}", uses, meaning) for name in names.split()]


def _refused(name: str, uses: tuple[str, ...], meaning: str) -> Option:
    return Option(name, uses, Fate.REFUSED, meaning)


TABLE: Final = (
    _honoured("kafka.bootstrap.servers", _ALL, "host:port of some brokers, with commas; required"),
    _honoured("subscribe", _READ, "topics, with commas; one of subscribe, subscribePattern and assign is required"),
    _honoured("subscribePattern", _READ, "a regular expression (Python's) that the whole name of a topic matches"),
    _honoured("assign", _READ, 'partitions as JSON: {"topic": [0, 1]}'),
    _honoured("startingOffsets", _READ, 'earliest, latest (streams only) or JSON {"topic": {"0": 23, "1": -2}}; -2 earliest, -1 latest',
              "latest for streams, earliest for batches"),
    _honoured("startingOffsetsByTimestamp", _READ, 'JSON {"topic": {"0": milliseconds}}; takes precedence over startingOffsets'),
    _honoured("startingTimestamp", _READ, "milliseconds since 1970, or an ISO time (of UTC, unless it has another offset), for all "
              "partitions; takes precedence over startingOffsetsByTimestamp"),
    _honoured("startingOffsetsByTimestampStrategy", _READ, "error or latest: where to start when there is no such record", "error"),
    _honoured("endingOffsets", (BATCH,), "latest or JSON; -1 latest; follow: of a table that is joined to a stream, the latest offsets in "
              "each batch", "latest"),
    _honoured("endingOffsetsByTimestamp", (BATCH,), "JSON; takes precedence over endingOffsets"),
    _honoured("endingTimestamp", (BATCH,), "milliseconds since 1970, or an ISO time, for all partitions; takes precedence over "
              "endingOffsetsByTimestamp"),
    _number("maxOffsetsPerTrigger", (STREAM,), 1, "the most offsets in a batch, divided over partitions in proportion to their backlogs",
            "200000, or minOffsetsPerTrigger where that is more"),
    _number("minOffsetsPerTrigger", (STREAM,), 1, "a batch waits until this many offsets are available, or maxTriggerDelay has passed"),
    _honoured("maxTriggerDelay", (STREAM,), "how long minOffsetsPerTrigger may delay a batch: 500ms, 30s, 15m, 1h", "15m"),
    _number("minPartitions", _READ, 1, "the fewest Spark partitions; a number above that of the topic-partitions splits the larger ones",
              "as many as there are cores, fewer for few records"),
    _number("defaultTasks", _READ, 1, "the most Spark partitions where minPartitions asks for none; import ottla.spark sets it to "
            "defaultParallelism where executors are elsewhere", "the cores of local[...], else of this machine"),
    _number("maxRecordsPerPartition", _READ, 1, "the most offsets in one Spark partition"),
    _honoured("pushFilters", (BATCH,), "whether filters on partition, offset and timestamp narrow what is read; true needs "
              "spark.sql.python.filterPushdown.enabled", "true in a session of ottla.spark, else false"),
    _honoured("failOnDataLoss", _READ, "whether the query fails when wanted offsets no longer exist, or continues after them", "true"),
    _honoured("failOnTimestamp", _READ, "whether the query fails at a record whose time Spark cannot have, more than 292,000 years from "
              "1970; false makes its timestamp null", "true"),
    _honoured("includeHeaders", _ALL, "whether a source has a column headers, array<struct<key: string, value: binary>>; a sink writes "
              "one that is there", "false"),
    _number("kafkaConsumer.pollTimeoutMs", _READ, 0, "how long a task keeps requesting the same offset", "120000"),
    _number("fetchOffset.numRetries", _READ, 0, "how many times the driver asks again, where kafka.default.api.timeout.ms has passed or a "
            "log ends before what was read", "3"),
    _number("fetchOffset.retryIntervalMs", _READ, 0, "how long the driver waits between these retries", "1000"),
    _number("kafka.default.api.timeout.ms", _READ, 0, "how long the driver repeats a request that no broker answers, in each of "
            "these tries", "60000"),
    _honoured("delivery", (SINK,), "of a stream: exactly_once (one transaction a batch) or at_least_once; a batch is written at least once",
              "exactly_once for streams"),
    _honoured("checkpoint", (SINK,), "of a stream that is exactly once: directory, or topic, which keeps the checkpoint in the topic "
              "APP-checkpoint, too; with to_topic and sink", "directory; topic by ottla pipeline run on one machine"),
    _honoured("app", (SINK,), "the name of an application that is exactly once, whatever its checkpoint: transactional id, and group of "
              "its offsets; at least once the group alone", "to-TOPIC, with the option topic; at least once none"),
    _honoured("topic", (SINK,), "the topic of all rows; takes precedence over a column topic"),
    _honoured("path", _ALL, "set by load(path) and save(path): an alias of subscribe, and of topic"),
    _honoured("kafka.client.id", _ALL, "the client id in broker logs and quotas", "ottla-spark"),
    _number("kafka.request.timeout.ms", _ALL, 1, "how long one request may take", "30000"),
    _honoured("kafka.isolation.level", _READ, "read_uncommitted or read_committed", "read_uncommitted"),
    _honoured("kafka.check.crcs", _READ, "whether checksums are verified", "true"),
    _number("kafka.fetch.max.bytes", _READ, 1, "bytes of one response", "52428800", _INT_MAX),
    _number("kafka.max.partition.fetch.bytes", _READ, 1, "bytes of one partition in a response", "1048576", _INT_MAX),
    _honoured("kafka.compression.type", (SINK,), "none, gzip, snappy, lz4 or zstd", "none"),
    _number("kafka.batch.size", (SINK,), 0, "bytes of one record batch before compression", "262144"),
    _number("kafka.buffer.memory", (SINK,), 0, "bytes of a task's batches that are not full yet, of all partitions together", "33554432"),
    _number("kafka.metadata.max.age.ms", _ALL, 0, "how long a sink may miss new partitions; a source asks before each batch", "300000"),
    _number("kafka.delivery.timeout.ms", (SINK,), 0, "how long a batch may take with all its retries", "120000"),
    _number("kafka.transaction.timeout.ms", (SINK,), 1, "how long a transaction may be open, from its first row to its commit", "120000",
            _INT_MAX),
    _honoured("kafka.acks", (SINK,), "all (or -1): the sink is idempotent, which needs it; others are refused", "all"),
    _honoured("kafka.enable.idempotence", (SINK,), "true; false is refused", "true"),
    *(_honoured(f"{PREFIX}{name}", _ALL, *words) for name, words in MEANINGS.items()),
    _ignored("groupIdPrefix", _READ, "no group is joined; progress is in the checkpoint"),
    _ignored("kafka.group.id", _READ, "no group is joined; progress is in the checkpoint"),
    _ignored("kafka.linger.ms", (SINK,), "batches of a task fill by size and are sent at its end"),
    _ignored("kafka.max.in.flight.requests.per.connection", (SINK,), "always one for each partition, which preserves order"),
    _ignored("kafka.retries", (SINK,), "retries continue until kafka.delivery.timeout.ms"),
    _ignored("kafka.fetch.min.bytes", _READ, "a task reads only offsets that already exist"),
    _ignored("kafka.fetch.max.wait.ms", _READ, "a task reads only offsets that already exist"),
    _ignored("kafka.max.poll.records", _READ, "rows come in Arrow batches of 10,000"),
    _ignored("kafka.session.timeout.ms", _READ, "no group is joined"),
    _ignored("kafka.heartbeat.interval.ms", _READ, "no group is joined"),
    *_harmless("max.poll.interval.ms partition.assignment.strategy group.instance.id group.protocol group.remote.assignor", _READ,
               "no group is joined"),
    *_harmless("allow.auto.create.topics", _READ, "a source creates no topics"),
    *_harmless("exclude.internal.topics", _READ, "subscribePattern always leaves them out; name one with subscribe"),
    *_harmless("client.rack", _READ, "records come from leaders"),
    *_harmless("max.request.size", (SINK,), "a request has one batch; kafka.batch.size and the topic's max.message.bytes bound it"),
    *_harmless("max.block.ms metadata.max.idle.ms", (SINK,), "kafka.delivery.timeout.ms bounds every wait"),
    *_harmless("partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms", (SINK,),
               "rows without a key go to any partition"),
    *_harmless("compression.gzip.level compression.lz4.level compression.zstd.level", (SINK,), "codecs have a level of their own"),
    *_harmless("connections.max.idle.ms receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms "
               "retry.backoff.ms send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms "
               "client.dns.lookup metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms", _ALL,
               "connection settings of the Java clients; ottla retries after 50 ms to 1 s"),
    *_harmless("sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds "
               "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter "
               "sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.kerberos.min.time.before.relogin "
               "sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor", _ALL,
               "how the Java clients get tokens and tickets; ottla asks for a token when it connects"),
    *_harmless("auto.include.jmx.reporter enable.metrics.push metric.reporters metrics.num.samples metrics.recording.level "
               "metrics.sample.window.ms", _ALL, "metrics of the Java clients; Spark's progress reports show the rates"),
    _refused("kafka.auto.offset.reset", _READ, "use startingOffsets"),
    _refused("kafka.enable.auto.commit", _READ, "progress is in the checkpoint; the source commits none"),
    _refused("kafka.key.deserializer", _READ, "keys are binary; decode them in the DataFrame: CAST(key AS STRING)"),
    _refused("kafka.value.deserializer", _READ, "values are binary; decode them in the DataFrame, for example with from_json"),
    _refused("kafka.key.serializer", (SINK,), "keys are strings or binary; encode them in the DataFrame"),
    _refused("kafka.value.serializer", (SINK,), "values are strings or binary; encode them in the DataFrame, for example with to_json"),
    _refused("kafka.interceptor.classes", _ALL, "there are no interceptors; transform the DataFrame"),
    _refused("kafka.partitioner.class", (SINK,), "murmur2 of the key decides; for another choice give a column partition"),
    _refused("kafka.transactional.id", (SINK,), "app names the transactional id of a sink that is exactly once"),
    *(_refused(f"{PREFIX}{name}", _ALL, way_out) for names, way_out in REFUSED.items() for name in names.split()),
)  # fmt: skip

_BY_KEY: Final = {option.name.lower(): option for option in TABLE}
CHECKPOINT: Final = "checkpointLocation"
"""Which Spark adds to the options of a sink; of no other use it is one."""
SPARKS_OWN: Final = frozenset({CHECKPOINT.lower(), "queryname"})
"""What Spark's writers add to a sink's options: of a query, and of a flow of a declarative pipeline."""
BOOLEANS: Final = ("failOnDataLoss", "failOnTimestamp", "includeHeaders", "pushFilters", "kafka.check.crcs")
"""Checked with the others: a task would look at some of them when it reads or writes."""
DELIVERIES: Final = ("exactly_once", "at_least_once")
CHECKPOINTS: Final = ("directory", "topic")
_ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")
_DURATION_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


Options = Mapping[str, str | int | float | bool]
"""As an application gives them, by name; numbers and truth values are passed on as PySpark passes them on."""


def invalid(text: str) -> KafkaError:
    """Returns the error that Spark shows about the options."""
    return KafkaError(ErrorCode.INVALID_CONFIG, text)


def texts(given: Options) -> dict[str, str]:
    """Returns the options as Spark has them: texts, as PySpark's ``option`` makes them. INVALID_CONFIG for what has no such text."""
    return {name: _text(name, value) for name, value in given.items()}


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    raise invalid(f"option {name} is a {type(value).__name__}: give a text, a number, True or False")  # it may be a secret


def checked(given: Mapping[str, str], use: str) -> dict[str, str]:
    """Returns the honoured options by the table's own names. Warns of ignored ones; KafkaError INVALID_CONFIG for all others."""
    taken: dict[str, str] = {}
    for key, value in given.items():
        option = _BY_KEY.get(key.lower())
        if option is None:
            if key.lower() not in SPARKS_OWN:
                raise invalid(f"unknown option {key!r}{_nearest(key)}")
            if use == SINK and key.lower() == CHECKPOINT.lower():
                taken[CHECKPOINT] = value
        elif option.fate is Fate.REFUSED:
            raise invalid(f"option {option.name} is refused: {option.meaning}")
        elif use not in option.uses:
            raise invalid(f"option {option.name} has no meaning for a {use}, only for a {' or a '.join(option.uses)}")
        elif option.fate is Fate.IGNORED:
            warnings.warn(f"option {option.name} is ignored: {option.meaning}", stacklevel=2)
        elif option.number_min is not None:
            taken[option.name] = str(_whole(option.name, value, option.number_min, option.number_max))
        else:
            taken[option.name] = HiddenText(value) if option.name.removeprefix(PREFIX) in SECRETS else value
    if not taken.get("kafka.bootstrap.servers"):
        raise invalid("option kafka.bootstrap.servers is missing: host:port of a broker, in functions that take it as bootstrap=")
    check_settings(taken)
    for name in BOOLEANS:
        boolean(taken, name, True)
    if "maxTriggerDelay" in taken:
        duration_ms(taken, "maxTriggerDelay", "")
    if "kafka.compression.type" in taken:
        _check_codec(taken["kafka.compression.type"])
    if taken.get("kafka.isolation.level", _ISOLATION_LEVELS[0]) not in _ISOLATION_LEVELS:
        level = taken["kafka.isolation.level"]
        raise invalid(f"kafka.isolation.level={level} is not one of {', '.join(_ISOLATION_LEVELS)}{did_you_mean(level, _ISOLATION_LEVELS)}")
    for name, words in (("delivery", DELIVERIES), ("checkpoint", CHECKPOINTS)):
        if taken.get(name, words[0]) not in words:
            raise invalid(f"{name}={taken[name]} is neither {' nor '.join(words)}{did_you_mean(taken[name], words)}")
    if is_mirrored(taken) and taken.get("delivery", DELIVERIES[0]) != DELIVERIES[0]:
        raise invalid("checkpoint=topic needs delivery=exactly_once: the checkpoint is in the transaction of its batch")
    return taken


def _check_codec(name: str) -> None:
    from ottla.records.compression import CODEC_NAMES  # which brings the codecs themselves

    if name.lower() not in CODEC_NAMES:
        raise invalid(f"kafka.compression.type={name} is not one of {', '.join(CODEC_NAMES)}{did_you_mean(name, CODEC_NAMES)}")


def number_of(settings: Mapping[str, str], name: str) -> int:
    """Returns the number that was given, or the table's default."""
    return int(settings.get(name, _BY_KEY[name.lower()].default))


def is_mirrored(settings: Mapping[str, str]) -> bool:
    """True when a sink keeps its checkpoint in a topic, too."""
    return settings.get("checkpoint") == CHECKPOINTS[1]


def _nearest(key: str) -> str:
    names = {known: option.name for known, option in _BY_KEY.items()} | {CHECKPOINT.lower(): CHECKPOINT}
    found = difflib.get_close_matches(key.lower(), names, n=1)
    return f"; did you mean {names[found[0]]}?" if found else ""


def did_you_mean(text: str, words: Iterable[str]) -> str:
    """Returns which of the words a wrong value may mean, for the end of an error; empty where none is near."""
    found = difflib.get_close_matches(text.lower(), list(words), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise invalid(f"{name}={text} is neither true nor false")
    return text == "true"


def positive(options: Mapping[str, str], name: str) -> int | None:
    """Returns the whole number, at least 1; None when the option is not given."""
    text = options.get(name)
    return None if text is None else _whole(name, text, 1)


def _whole(name: str, text: str, number_min: int, number_max: int = NUMBER_MAX) -> int:
    found = re.fullmatch(r"\s*([0-9]{1,19})\s*", text)
    if found is None or not number_min <= int(found[1]) <= number_max:
        at_most = "" if number_max == NUMBER_MAX else f" and at most {number_max}"
        raise invalid(f"{name}={text} is not a whole number of at least {number_min}{at_most}")
    return int(found[1])


def duration_ms(options: Mapping[str, str], name: str, default: str) -> int:
    text = options.get(name, default).strip().lower()
    found = re.fullmatch(r"([0-9]+)\s*(ms|s|min|m|h|d)", text)
    if found is None:
        raise invalid(f"{name}={text} is not a duration such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _DURATION_MS[found[2]]


def markdown() -> str:
    """Returns the table as docs/reference/spark.md shows it."""
    lines = ["| option | for | fate | meaning | default |", "|--|--|--|--|--|"]
    for option in TABLE:
        cells = [f"`{option.name}`", ", ".join(option.uses), option.fate.value, option.meaning, option.default]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"

"""Figures and keys in pages are those of the code, and measured tables those that the benchmarks left in ``bench/results``."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any, Final

import pytest
from tests.test_repository import tracked_files

from ottla.broker.controller import membership
from ottla.broker.coordinators import parked
from ottla.broker.liveness import failing_brokers
from ottla.broker.replicas import full_directories
from ottla.broker.requests.gatekeeper import SEND_BUFFER_BYTES
from ottla.cli.pipeline_runs import CAUGHT_UP_RESTARTS
from ottla.cli.templates.prometheus import LAG_MAX
from ottla.client import options
from ottla.client.admin.hanging import LONGER_THAN_MS
from ottla.config.registry import CLIENT_METRICS_KEYS, GROUP_KEYS, OWN_KEYS, TOPIC_KEYS, find_broker_key
from ottla.controller import delegation_tokens as tokens
from ottla.controller import false_alarms, producer_ids
from ottla.groups.consumer import groups
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.replication import fetch_sessions
from ottla.runtime.io_policy import chosen
from ottla.runtime.serve import GC_THRESHOLDS
from ottla.spark.defaults import MIRRORED
from ottla.spark.mirror_plan import SNAPSHOT_BYTES_MAX
from ottla.spark.stream_reader import ROWS_MAX
from ottla.storage.directory.room import RESERVE_BYTES
from ottla.storage.segment.tally import INLINE_BYTES_MAX
from ottla.types import LATE_TRANSACTION_MS

ROOT: Final = Path(__file__).parent.parent
SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
DAY_MS: Final = 24 * 60 * MINUTE_MS
KIB, MIB = 1 << 10, 1 << 20
DECISIONS: Final = "docs/decisions"


def default(key: str) -> Any:
    found = find_broker_key(key)
    assert found is not None
    return found.default


FIGURES: Final = [
    ("docs/performance.md", f"the thresholds are ({', '.join(f'{part:,}' for part in GC_THRESHOLDS)})"),
    ("docs/performance.md", f"a client's socket gets {SEND_BUFFER_BYTES // KIB} KiB"),
    ("docs/pipelines.md", f"`spark.sql.streaming.minBatchesToRetain={MIRRORED['spark.sql.streaming.minBatchesToRetain']}`"),
    ("COMPATIBILITY.md", f"{tokens.OF_REQUESTER_MAX:,} tokens a requester and {tokens.TOKENS_MAX:,} in all"),
    ("COMPATIBILITY.md", f"{tokens.RENEWERS_MAX} renewers at most"),
    ("COMPATIBILITY.md", f"A fetch session has at most {fetch_sessions.PARTITIONS_MAX:,} partitions"),
    ("docs/pipelines.md", f"follow {SNAPSHOT_BYTES_MAX // MIB} MB a batch"),
    ("docs/production.md", f"{ROWS_MAX:,} offsets unless `maxOffsetsPerTrigger`"),
    ("docs/production.md", f"a group that is {LAG_MAX:,} records behind"),
    ("docs/security.md", f"within {default('ottla.authentication.timeout.ms') // SECOND_MS} seconds (`ottla.authentication.timeout.ms`)"),
    ("docs/security.md", f"{default('ottla.unauthenticated.connections.max'):,} such connections"),
    ("docs/security.md", f"after {default('connection.failed.authentication.delay.ms')} ms (`connection.failed.authentication.delay.ms`)"),
    ("docs/transactions.md", f"`transaction.max.timeout.ms` ({default('transaction.max.timeout.ms') // MINUTE_MS} minutes)"),
    ("docs/transactions.md", f"`transactional.id.expiration.ms` ({default('transactional.id.expiration.ms') // DAY_MS} days)"),
    ("docs/transactions.md", f"without a record for {LONGER_THAN_MS // MINUTE_MS} minutes (`--longer-than`)"),
    ("docs/zookeeper.md", f"(`zookeeper.session.timeout.ms`, {default('zookeeper.session.timeout.ms') // SECOND_MS} s)"),
    ("docs/zookeeper.md", f"`reserved.broker.max.id` ({default('reserved.broker.max.id')})"),
    ("docs/zookeeper.md", f"`ottla.zookeeper.request.bytes.max` ({default('ottla.zookeeper.request.bytes.max'):,})"),
    (f"{DECISIONS}/0004-three-classes-of-file-work.md", f"Up to {INLINE_BYTES_MAX // MIB} MiB are walked inline"),
    (f"{DECISIONS}/0004-three-classes-of-file-work.md", f"from {int(chosen('').paced_append_bytes_max) // KIB} KiB on class b"),
    (f"{DECISIONS}/0011-disks-that-fail-and-disks-that-are-full.md", f"A reserve of {RESERVE_BYTES // MIB} MiB"),
    (f"{DECISIONS}/0011-disks-that-fail-and-disks-that-are-full.md", f"every {full_directories.PROBE_MS_MAX // SECOND_MS} s"),
    (f"{DECISIONS}/0013-batches-are-opened.md", f"may unpack to {DECOMPRESSED_BYTES_MAX // MIB} MiB"),
    (f"{DECISIONS}/0015-proof-of-death.md", f"active for {membership.SILENT_MS / SECOND_MS} s"),
    (f"{DECISIONS}/0015-proof-of-death.md", f"every broker {membership.HELLO_MS} ms to send"),
    (f"{DECISIONS}/0019-what-clients-are-told-while-a-broker-fails.md", f"for {failing_brokers.LINGER_MS / SECOND_MS} s"),
    (f"{DECISIONS}/0020-a-partition-at-rest.md", f"{fetch_sessions.WATCHED_PARTITIONS_MIN} partitions or more"),
    (f"{DECISIONS}/0021-transactions-wait-for-their-markers.md", f"{parked.PARKED_MAX:,} wait in a shard"),
    (f"{DECISIONS}/0023-consumer-groups-from-their-records-alone.md", f"every {groups.REGEX_REFRESH_MS_MIN // SECOND_MS} s for each group"),
]
WORDS: Final = [
    ("docs/transactions.md", "up to a second", parked.WAIT_MS, SECOND_MS),
    ("docs/transactions.md", "and five minutes more", LATE_TRANSACTION_MS, 5 * MINUTE_MS),
    ("docs/pipelines.md", "with `--until-caught-up`, as in a nightly job, five are the limit", CAUGHT_UP_RESTARTS, 5),
    ("docs/zookeeper.md", "ids from the controller by the thousand", producer_ids.BLOCK_SIZE, 1000),
    (f"{DECISIONS}/0011-disks-that-fail-and-disks-that-are-full.md", "Every half second", full_directories.PROBE_MS, 500),
    (f"{DECISIONS}/0015-proof-of-death.md", "third false alarm within ten minutes", false_alarms.WITHIN_MS, 10 * MINUTE_MS),
    (f"{DECISIONS}/0019-what-clients-are-told-while-a-broker-fails.md", "one second at most", failing_brokers.HOLD_MS, SECOND_MS),
]
"""Figures that pages have as words: the page, its words, what the code has, and what the words mean."""
MEASURED: Final = ("broker", "replicated", "spark", "spark_streams", "client")


def flat(page: str) -> str:
    """The page's text, with one space in place of each break."""
    return re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize(("page", "sentence"), FIGURES)
def test_a_figure_of_a_page_is_that_of_the_code(page: str, sentence: str) -> None:
    assert sentence in flat(page)


@pytest.mark.parametrize(("page", "words", "figure", "meant"), WORDS)
def test_a_figure_in_words_is_that_of_the_code(page: str, words: str, figure: int, meant: int) -> None:
    assert words in flat(page)
    assert figure == meant


@pytest.mark.parametrize("name", MEASURED)
def test_a_table_of_the_page_on_performance_is_the_last_one_measured(name: str) -> None:
    measured = (ROOT / "bench" / "results" / f"{name}.txt").read_text(encoding="utf-8").strip()
    assert f"\n{measured}\n" in (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")


def test_the_versions_of_clients_that_were_tried_are_those_that_are_installed() -> None:
    locked = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE))
    page = (ROOT / "COMPATIBILITY.md").read_text(encoding="utf-8").partition("\n## Clients tried\n")[2]
    tried = re.findall(r"^\| (confluent-kafka|kafka-python|aiokafka) ([\d.]+)[^|]*\| the round", page, re.MULTILINE)
    assert [name for name, _ in tried] == ["confluent-kafka", "kafka-python", "aiokafka"]
    for name, version in [*tried, *re.findall(r"^(PySpark) ([\d.]+);", page, re.MULTILINE)]:
        assert f"{locked[name.lower()]}.".startswith(f"{version}."), name


KEY = re.compile(
    r"^([a-z]\w*(?:\.[\w-]+)+)=|`([a-z][a-z0-9]*(?:\.[a-z0-9_-]+)+)(?:=[^`]*)?`|(?:-X|--config|-c) ([a-z]\w*(?:\.[\w-]+)+)=", re.MULTILINE
)
FILE = re.compile(r"\.(?:py|md|txt|json|jsonl|properties|log|pem|key|sh|toml|lock|yaml)$")
OF_FEATURES: Final = "eligible.leader.replicas group kraft metadata share streams transaction"
OF_OTHERS: Final = """
    bootstrap.servers exactly.once.source.support jute.maxbuffer kafka.authorizer.logger kafka.bootstrap.servers message.timeout.ms
    metadata.recovery.strategy processing.guarantee retry.backoff.ms spark.archives spark.driver.memory spark.python.unix.domain.socket.dir
    spark.python.unix.domain.socket.enabled spark.speculation spark.sql.shuffle.partitions topic.metadata.refresh.interval.ms
"""
"""Keys of other clients and programs, and the name of a logger."""
OF_PYTHON: Final = """
    asyncio.timeout consumer.getmany error.is_retriable fault.wait future.get history.sending jdk.incubator.vector loggers.send_to os.fork
    ottla.spark.session producer.produce pyarrow.array python3.11 record.headers record.timestamp record.timestamp_ms record.topic
    record.value spark.read
"""
"""Names in Python that look like keys."""
PARTS: Final = "expected.audience sasl.oauthbearer"
"""Parts of keys, in sentences that say so."""
OTHERS: Final = {f"{name}.version" for name in OF_FEATURES.split()} | {*OF_OTHERS.split(), *OF_PYTHON.split(), *PARTS.split()}


def named_keys(text: str) -> set[str]:
    names = {next(filter(None, match.groups())) for match in KEY.finditer(text)}
    return {name for name in names if not FILE.search(name)}


def is_known_key(name: str) -> bool:
    """True for a key of brokers, topics, groups, clients or the Spark source, and for a module."""
    if find_broker_key(name) or any(name in keys for keys in (OWN_KEYS, TOPIC_KEYS, GROUP_KEYS, CLIENT_METRICS_KEYS)):
        return True
    settings = {key for kind in vars(options).values() for key in getattr(kind, "__annotations__", {})}
    if name.removeprefix("kafka.").replace(".", "_") in settings:
        return True
    return name.split(".", maxsplit=1)[0] in ("ottla", "bench") and importlib.util.find_spec(name) is not None


def test_every_key_that_a_page_names_is_known() -> None:
    pages = [path for path in tracked_files() if path.suffix == ".md" and "reference" not in path.parts]
    pages = [path for path in pages if path.name not in ("CHANGELOG.md", "planted-bugs.md")]
    named = {(path.name, key) for path in pages for key in named_keys(path.read_text(encoding="utf-8"))}
    assert len(named) > 300
    unknown = {(page, key) for page, key in named if key not in OTHERS and not is_known_key(key)}
    assert not unknown, "misspelt, or of another program, and then it belongs into OTHERS"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("`log.dirs` and `acks=all` in `a.properties`", {"log.dirs"}),
        ("```\nnode.idd=1\n```", {"node.idd"}),
        ("ottla topic create t -c retention.mss=1", {"retention.mss"}),
    ],
)
def test_a_key_is_found_where_pages_have_it(text: str, keys: set[str]) -> None:
    assert named_keys(text) == keys
    assert {key for key in keys if not is_known_key(key)} == keys - {"log.dirs"}

"""A checkpoint in its topic, without Spark: what a batch's transaction has of the directory is what comes back."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.conftest import Topics
from tests.spark.test_driver_sink import Query, values_of
from tests.waiting import eventually

from ottla.errors import KafkaError
from ottla.spark.checkpoint import PlannedBatch
from ottla.spark.checkpoint_topic import CONFIGS, SEGMENT_BYTES, CheckpointTopic, digest_of, headers_of, key_of
from ottla.spark.driver_sink import DriverSink, app_of, producer_settings
from ottla.spark.exactly_once import StopError
from ottla.spark.restoring import absent_from, restore
from ottla.spark.writer import sink, to_topic
from ottla.sync import Admin, Producer, Topic
from ottla.types import LATEST_TIMESTAMP, TopicPartition

STORE = "state/0/0"


class Mirrored(Query):
    """A query with state, whose checkpoint is a directory that this class writes as Spark does."""

    def __init__(self, topics: Topics, source: str, root: Path, **options: str) -> None:
        super().__init__(topics, source, checkpoint="topic", **options)
        self.root = root

    def write(self, path: str, content: bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(content)

    def planned(self, number: int, end: int, begin: int | None = None) -> PlannedBatch:
        planned = super().planned(number, end, begin)
        return PlannedBatch(planned.query, planned.sources, True, str(self.root))

    def run(self, number: int, end: int, values: list, *, begin: int | None = None, **columns: Any) -> int | None:
        self.write("metadata", json.dumps({"id": self.query}).encode())
        self.write(f"offsets/{number}", f"v1\n{{}}\n{self.planned(number, end, begin).sources[0]}".encode())
        self.write(f"{STORE}/{number + 1}.changelog", b"%d %r" % (number, values))
        found = super().run(number, end, values, begin=begin, **columns)
        self.write(f"commits/{number}", b"v1")
        return found

    def prepare(self) -> int | None:
        return DriverSink(self.options).prepare(self.root.as_uri())

    def files(self) -> dict[str, bytes]:
        return files_of(self.root)


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def query(topics: Topics, tmp_path: Path) -> Mirrored:
    return Mirrored(topics, topics.create(), tmp_path / "checkpoint", topic=topics.create())


def test_lost_files_are_restored_as_of_the_last_committed_batch(query: Mirrored):
    query.run(0, 2, [b"0", b"1"], begin=0)
    query.write(".hidden.tmp", b"of Spark")
    query.write("offsets/.0.crc", b"of Hadoop")
    query.write(f"{STORE}/_metadata/schema", b"schema")
    query.run(1, 3, [b"2"])
    query.write(f"{STORE}/SSTs/a.sst", bytes(3_000_000))  # in pieces, for records have 1 MiB
    query.write(f"{STORE}/2.zip", random.Random(1).randbytes(700_000))
    (query.root / STORE / "1.changelog").unlink()
    query.run(2, 5, [b"3", b"4"])
    expected = query.files()
    for name in ("commits/2", ".hidden.tmp", "offsets/.0.crc"):
        del expected[name]
    assert f"{STORE}/1.changelog" not in expected
    assert query.prepare() is None  # it is there
    shutil.rmtree(query.root)
    assert query.prepare() == len(expected)
    assert query.files() == expected
    assert query.restart().run(2, 5, [b"3", b"4"]) is None  # as Spark does it again
    assert query.run(3, 6, [b"5"]) == 1
    assert values_of(query.topics, query.options["topic"]) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("lost", ["offsets", "commits", "state", "sources"])
def test_a_checkpoint_that_lost_one_of_its_directories_is_written_back(query: Mirrored, lost: str):
    """It was left alone as long as its metadata was there: Spark refused it again and again, or read from the start."""
    query.write("sources/0/0", b"v1")
    query.run(0, 1, [b"0"], begin=0)
    query.run(1, 2, [b"1"])
    expected = {name: content for name, content in query.files().items() if name != "commits/1"}
    shutil.rmtree(query.root / lost)
    if lost == "commits":
        (query.root / lost).mkdir()  # as Spark leaves it after a start
    assert query.prepare() == len(expected)
    assert query.files() == expected
    assert query.prepare() is None
    assert query.restart().run(1, 2, [b"1"]) is None
    assert query.run(2, 3, [b"2"]) == 1


@pytest.mark.parametrize("torn", ["metadata", "offsets/1", "commits/0"])
def test_a_checkpoint_with_an_empty_file_that_spark_reads_at_each_start_is_written_back(query: Mirrored, torn: str):
    """As after a power loss. An empty file of offsets ended the command with a ValueError, and the others failed their query for ever."""
    query.run(0, 1, [b"0"], begin=0)
    query.run(1, 2, [b"1"])
    (query.root / "commits" / "1").unlink()
    expected = query.files()
    query.write(torn, b"")
    assert query.prepare() == len(expected)
    assert query.files() == expected
    assert query.prepare() is None


def test_an_empty_file_of_a_checkpoint_that_is_in_no_topic_is_left_to_spark(query: Mirrored):
    query.write("metadata", b"{}")
    query.write("offsets/0", b"")
    assert absent_from(query.root) == {"commits", "sources", "state"}
    assert query.prepare() is None
    assert query.files().keys() == {"metadata", "offsets/0"}


def test_a_directory_that_a_query_never_had_is_not_missed(query: Mirrored):
    ours, other = '{"orders": {"0": 1}, "topic ids": {"orders": "x"}}', '{"orders": {"0": 1}}'
    for sources, expected in (((ours,), set()), ((ours, other), {"sources"}), ((ours, "-"), {"sources"}), ((), {"sources"})):
        for name in ("state/0", "commits/0"):
            query.write(name, b"v1")
        query.write("offsets/9", "\n".join(["v1", "{}", *sources]).encode())
        query.write("offsets/10", "\n".join(["v1", "{}", *sources]).encode())
        query.write("offsets/.10.crc", b"of Hadoop")
        assert absent_from(query.root) == expected
    shutil.rmtree(query.root / "state")
    assert "state" in absent_from(query.root)
    query.write("metadata", b"{}")
    assert query.prepare() is None, "there is no topic"


def test_a_copy_that_goes_on_from_the_topic_stops_the_one_that_runs(query: Mirrored, tmp_path: Path):
    query.run(0, 1, [b"0"], begin=0)
    copy = Mirrored(query.topics, query.source, tmp_path / "elsewhere", topic=query.options["topic"])
    assert copy.prepare() is not None
    with pytest.raises(StopError, match="another producer has its transactional id"):
        query.run(1, 2, [b"1"])
    assert copy.run(0, 1, [b"0"], begin=0) is None
    assert copy.run(1, 2, [b"1"]) == 1
    assert values_of(query.topics, query.options["topic"]) == [b"0", b"1"]


def test_a_batch_that_was_aborted_leaves_nothing_in_the_topic(query: Mirrored):
    query.run(0, 1, [b"0"], begin=0)
    query.write(f"{STORE}/1.changelog", b"as the batch had it that is aborted")
    with pytest.raises(KafkaError):
        query.run(1, 2, [b"1"], partition=pa.array([7], pa.int32()))
    (query.root / "offsets" / "1").unlink()
    (query.root / STORE / "2.changelog").unlink()
    query.write(f"{STORE}/1.changelog", b"0 [b'0']")
    expected = query.files().keys() - {"commits/0"}
    shutil.rmtree(query.root)
    query.prepare()
    assert query.files().keys() == expected
    assert query.files()[f"{STORE}/1.changelog"] == b"0 [b'0']"
    assert query.restart().run(0, 1, [b"0"], begin=0) is None
    assert query.run(1, 2, [b"1"]) == 1
    shutil.rmtree(query.root)
    query.prepare()
    assert query.files().keys() == expected | {f"{STORE}/2.changelog", "offsets/1", "commits/0"}


def test_a_file_that_was_deleted_while_its_query_runs_is_not_deleted_in_the_topic(query: Mirrored):
    for number in range(3):
        query.run(number, number + 1, [b"%d" % number], begin=None if number else 0)
    expected = query.files().keys() - {"commits/2"}
    shutil.rmtree(query.root / "commits")
    with pytest.raises(FileNotFoundError, match="was deleted while its query runs"):
        query.run(3, 4, [b"3"])
    shutil.rmtree(query.root)
    query.prepare()
    assert query.files().keys() == expected


def test_pieces_are_below_what_the_topic_takes_and_shrink_with_their_file(query: Mirrored):
    query.run(0, 1, [b"0"], begin=0)
    with Admin(query.topics.bootstrap) as admin:
        admin.alter_configs({Topic(f"to-{query.options['topic']}-checkpoint"): {"max.message.bytes": 1000}})
    for number, size in ((1, 30_000), (2, 700), (3, 1_300)):
        query.write("sources/0/0", random.Random(number).randbytes(size))
        query.restart().run(number, number + 1, [b"%d" % number])
        expected = query.files()
        shutil.rmtree(query.root)
        query.prepare()
        query.write(f"commits/{number}", expected[f"commits/{number}"])  # as Spark does when the batch has been skipped
        assert query.files() == expected


def test_a_checkpoint_that_does_not_belong_to_what_was_written_is_not_written_back(query: Mirrored):
    query.run(0, 1, [b"0"], begin=0)
    without = Query(query.topics, query.source, topic=query.options["topic"])
    assert without.run(1, 2, [b"1"]) == 1  # checkpoint=directory, for once
    shutil.rmtree(query.root)
    with pytest.raises(StopError, match=r"has the checkpoint of batch 0 .* is batch 1 .*ottla topic delete to-.*-checkpoint --yes"):
        query.prepare()
    assert not query.root.exists()


@pytest.mark.parametrize("kept", ["some", "none"])
def test_a_checkpoint_whose_first_records_were_deleted_is_not_written_back(query: Mirrored, kept: str):
    """Its first file was looked for in vain (FileNotFoundError); of a topic without records a restore said that all was well."""
    query.run(0, 1, [b"0"], begin=0)
    query.run(1, 2, [b"1"])
    app = app_of(query.options)
    topic = TopicPartition(f"{app}-checkpoint", 0)
    with Admin(query.topics.bootstrap) as admin:
        end = admin.offsets_for_times({topic: LATEST_TIMESTAMP})[topic].offset
        admin.alter_configs({Topic(topic.topic): {"cleanup.policy": "compact,delete"}})
        admin.delete_records({topic: 1 if kept == "some" else end})
    before = query.files()
    with pytest.raises(StopError, match="does not have all of its checkpoint: records were deleted"):
        restore(app, query.options, producer_settings(query.options, app), query.root, replaces=True)
    assert query.files() == before


@pytest.mark.parametrize("what", ["made again", "records deleted", "deleted"])
def test_a_topic_that_lost_its_records_while_its_query_runs_gets_all_of_the_checkpoint_again(
    query: Mirrored, what: str, monkeypatch: pytest.MonkeyPatch
):
    """It got what had changed since, and no machine could go on from there."""
    monkeypatch.setattr("ottla.spark.mirror.ORIGIN_AGE_S_MAX", 0.0)
    query.run(0, 1, [b"0"], begin=0)
    query.run(1, 2, [b"1"])
    name = f"to-{query.options['topic']}-checkpoint"
    if what == "records deleted":
        with Admin(query.topics.bootstrap) as admin:
            admin.alter_configs({Topic(name): {"cleanup.policy": "compact,delete"}})
            found = admin.delete_records({TopicPartition(name, 0): -1})  # all
            assert not isinstance(found[TopicPartition(name, 0)], KafkaError)
            admin.alter_configs({Topic(name): {"cleanup.policy": "compact"}})
    else:
        query.topics.delete(name)
        if what == "made again":
            query.topics.create(1, name, **CONFIGS)
    mirror = query.application._mirror
    assert mirror is not None
    sent_bytes = mirror.sent_bytes
    query.run(2, 3, [b"2"])
    query.run(3, 4, [b"3"])
    assert mirror.sent_bytes - sent_bytes < 2 * sum(map(len, query.files().values())), "all of it once"
    expected = {path: content for path, content in query.files().items() if path != "commits/3"}
    shutil.rmtree(query.root)
    assert query.prepare() == len(expected)
    assert query.files() == expected


def test_rows_of_several_topics_from_a_source_that_has_none_yet_have_their_marker_for_the_checkpoints_topic(topics: Topics, tmp_path: Path):
    """A pattern that no topic matches when its query starts."""
    target = topics.create()
    query = Mirrored(topics, "none", tmp_path / "checkpoint", app="routed")
    assert query.run(0, 0, [], begin=0, topic=[]) == 0
    assert {str(partition): place.offset for partition, place in query.committed().items()} == {"routed-checkpoint-0": 1}
    query.source = topics.create()
    assert query.restart().run(1, 2, [b"0", b"1"], topic=[target, target]) == 2
    assert query.restart().run(1, 2, [b"0", b"1"], topic=[target, target]) is None
    assert query.run(2, 3, [b"2"], topic=[target]) == 1
    assert values_of(topics, target) == [b"0", b"1", b"2"]


def test_topics_that_are_not_compacted_and_foreign_directories_are_refused(query: Mirrored):
    other = Mirrored(query.topics, query.source, query.root, app="plain")
    query.topics.create(1, "plain-checkpoint")
    with pytest.raises(KafkaError, match=r"cleanup\.policy=delete, and needs compact"):
        other.run(0, 1, [b"0"], begin=0, topic=["x"])
    shutil.rmtree(query.root)
    query.run(0, 1, [b"0"], begin=0)
    (query.root / "metadata").unlink()
    query.write("thesis.txt", b"precious")
    with pytest.raises(KafkaError, match=r"has 'thesis\.txt', which is of no checkpoint"):
        query.prepare()
    assert (query.root / "thesis.txt").read_bytes() == b"precious"


def test_a_record_of_another_writer_leads_nowhere(query: Mirrored):
    query.run(0, 1, [b"0"], begin=0)
    expected = query.files().keys() - {"commits/0"}
    name = f"to-{query.options['topic']}-checkpoint"
    query.topics.produce(name, [(b"metadata#7", b"note"), (b"\xff", b"x")])
    shutil.rmtree(query.root)
    query.prepare()
    assert query.files().keys() == expected
    with Producer(query.topics.bootstrap) as producer:
        headers = [("file", b"../../out"), ("at", b"0"), ("size", b"1"), ("digest", b"")]
        producer.send(name, b"x", key=b"../../out", headers=headers).result()
    shutil.rmtree(query.root)
    with pytest.raises(StopError, match="which is of no checkpoint"):
        query.prepare()


def test_what_a_restore_that_was_killed_has_left_is_deleted_by_the_next_start(query: Mirrored):
    query.run(0, 1, [b"0"], begin=0)
    left = [query.root.with_name(f".{query.root.name}.{what}") for what in ("restoring", "replaced")]
    for path in left:
        (path / "state").mkdir(parents=True)
    assert query.prepare() is None
    assert not any(path.exists() for path in left)


def test_a_restore_that_ends_while_it_deletes_the_former_checkpoint_leaves_a_whole_one(query: Mirrored, monkeypatch: pytest.MonkeyPatch):
    """It deleted the former one file by file, and then had the new one in its place: what was left of it looked like a checkpoint."""
    query.run(0, 1, [b"0"], begin=0)
    query.run(1, 2, [b"1"])
    expected = query.files().keys() - {"commits/1"}
    delete = shutil.rmtree

    def end(path: Path, **options: Any) -> None:
        if (path / "commits" / "1").exists():  # which the topic does not have yet
            (path / "offsets" / "1").unlink()
            raise KeyboardInterrupt
        delete(path, **options)

    monkeypatch.setattr("ottla.spark.restoring.shutil.rmtree", end)
    app = app_of(query.options)
    with pytest.raises(KeyboardInterrupt):
        restore(app, query.options, producer_settings(query.options, app), query.root, replaces=True)
    assert query.files().keys() == expected


@pytest.mark.parametrize("is_tombstone_gone", [False, True])
def test_a_deleted_file_does_not_come_back_where_compaction_has_left_some_of_its_pieces(query: Mirrored, is_tombstone_gone: bool):
    """As where the tombstones of its pieces are in two segments, and the newer one is not compacted yet: a snapshot without its start."""
    query.run(0, 1, [b"0"], begin=0)
    expected = query.files().keys() - {"commits/0"}
    path = f"{STORE}/9.zip"
    with Producer(query.topics.bootstrap) as producer:
        name = f"to-{query.options['topic']}-checkpoint"
        producer.send(name, b"end", key=key_of(path, 1), headers=headers_of(path, at=5, size=8, digest=digest_of(b"startend"))).result()
        for index in (1,) if is_tombstone_gone else (0, 1):
            producer.send(name, None, key=key_of(path, index)).result()
    shutil.rmtree(query.root)
    query.prepare()
    assert query.files().keys() == expected


def test_the_size_of_the_topic_is_bounded_by_its_live_records(own_broker: Callable[..., Topics], tmp_path: Path):
    topics = own_broker(**{"log.cleaner.backoff.ms": "100"})
    query = Mirrored(topics, topics.create(), tmp_path / "checkpoint", topic=topics.create())
    rng = random.Random(1)
    for number in range(60):
        query.write(f"{STORE}/{number + 1}.zip", rng.randbytes(1_000_000))  # two are live: they replace what was there before
        query.write(f"{STORE}/SSTs/always.sst", b"as it was")
        for version in range(1, number):
            for kind in ("zip", "changelog"):
                (query.root / STORE / f"{version}.{kind}").unlink(missing_ok=True)
        query.run(number, number + 1, [b"x"], begin=None if number else 0)
    live = sum(map(len, query.files().values()))
    name = f"to-{query.options['topic']}-checkpoint"

    def size_bytes() -> int:
        with Admin(topics.bootstrap) as admin:
            [found] = admin.describe_log_dirs()[1]
        return sum(replica.size_bytes for replica in found.replicas if replica.partition.topic == name)

    bound = 1.25 * live + 2 * SEGMENT_BYTES
    assert bound < 20_000_000 < 60_000_000
    eventually(size_bytes, lambda size: live < size < bound)
    expected = query.files().keys() - {"commits/59"}
    shutil.rmtree(query.root)
    query.prepare()
    assert query.files().keys() == expected


def test_the_topic_is_made_with_its_settings_once(query: Mirrored):
    topic = CheckpointTopic("once", query.options)
    topic.ensure()
    topic.ensure()
    with Admin(query.topics.bootstrap) as admin:
        for name, value in CONFIGS.items():
            assert admin.describe_config_of_topics(["once-checkpoint"], name) == {"once-checkpoint": value}


def test_what_a_checkpoint_in_a_topic_needs_is_refused_where_it_is_missing(spark, topics: Topics):
    base = {"kafka.bootstrap.servers": topics.bootstrap, "topic": "t", "checkpoint": "topic"}
    with pytest.raises(KafkaError, match="needs delivery=exactly_once"):
        sink(base | {"delivery": "at_least_once"})
    with pytest.raises(KafkaError, match="checkpoint=disk is neither directory nor topic"):
        sink(base | {"checkpoint": "disk"})
    frame = spark.readStream.format("rate").load().selectExpr("'x' as value")
    with pytest.raises(KafkaError, match=r"needs options=.*written back before the start"):
        to_topic(frame, "t", value="value", bootstrap=topics.bootstrap, checkpoint="topic")
    made: Any = sink(base)
    with pytest.raises(KafkaError, match="is not on this machine"):
        made.prepare("s3a://bucket/checkpoint")

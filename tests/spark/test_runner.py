"""The runner of pipelines: which queries it starts again, which it does not; without Spark."""

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.spark.conftest import Topics

from ottla.errors import ErrorCode, KafkaError
from ottla.spark import dead_letters
from ottla.spark import pipelines as pipelines_module
from ottla.spark.dead_letters import BadRows
from ottla.spark.exactly_once import Batch, StopError, is_written
from ottla.spark.marker import Committed, Marker
from ottla.spark.pipelines import attached, check_source, is_query_of, made_by, name_of, pipeline, pipelines_of, running
from ottla.spark.reading import AFTER_DELETION, DataLossError, report_loss
from ottla.spark.runner import CHANGED_STATE_WAY_OUT, MADE_AGAIN, REFUSALS, Runner, place_of, reason_of
from ottla.spark.writer import sink
from ottla.sync import Admin
from ottla.types import TopicPartition

FENCED = """[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] Reason:
Traceback (most recent call last):
  File "x.py", line 1, in deliver
ottla.client.transaction_errors.ProducerFencedError: PRODUCER_FENCED: fenced

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
ottla.spark.exactly_once.StopError: application 'a': another producer has its transactional id
 SQLSTATE: 39000
"""
AWAY = "[STREAM_FAILED] Traceback (most recent call last):\nottla.errors.KafkaError: NETWORK_EXCEPTION: away\n"


class Query:
    """A query that ends, in turn, with these errors; None is a good end, and "runs" none at all."""

    def __init__(self, end: str | None) -> None:
        self._end = end
        self.isActive = end == "runs"
        self.lastProgress: Any = None
        self.status = {"message": "Waiting for data to arrive"}
        self.is_stopped = False

    @property
    def recentProgress(self) -> list[Any]:
        return [self.lastProgress]

    def exception(self) -> str | None:
        return self._end

    def stop(self) -> None:
        self.is_stopped = True


class Writer:
    def __init__(self, ends: list[Any]) -> None:
        self.ends = ends
        self.said: dict[str, Any] = {}
        self.queries: list[Query] = []

    def queryName(self, name: str) -> "Writer":
        self.said["name"] = name
        return self

    def option(self, name: str, value: str) -> "Writer":
        self.said[name] = value
        return self

    def trigger(self, **given: Any) -> "Writer":
        self.said["trigger"] = given
        return self

    def start(self) -> Query:
        self.queries.append(Query(self.ends.pop(0)))
        return self.queries[-1]


class Clock:
    def __init__(self, pauses_max: int = 10_000) -> None:
        self.now_s = 0.0
        self.left = pauses_max

    def pause(self, seconds: float) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        self.now_s += seconds


def runner(
    tmp_path: Path,
    pipelines: Any,
    clock: Clock,
    said: list[str],
    *,
    until_caught_up: bool = False,
    restarts_max: int | None = None,
    bootstrap: str = "broker:1",
    absent: Callable[[set[str]], set[str]] = lambda topics: set(),
    loops: Sequence[str] = (),
) -> Runner:
    return Runner(
        "session",
        "app",
        pipelines,
        checkpoints=tmp_path,
        bootstrap=bootstrap,
        checkpoint="topic",
        until_caught_up=until_caught_up,
        restarts_max=restarts_max,
        say=said.append,
        now_s=lambda: clock.now_s,
        pause=clock.pause,
        streams=lambda writer: ["orders"],
        loops=lambda writer, query, settings: loops,
        absent=absent,
    )


class Sink:
    """Of a query whose checkpoint is in a topic; what it says, in turn, of writing it back."""

    def __init__(self, said: list[Any]) -> None:
        self._said = said
        self.locations: list[str] = []

    def prepare(self, location: str) -> int | None:
        self.locations.append(location)
        found = self._said.pop(0)
        if isinstance(found, Exception):
            raise found
        assert found is None or isinstance(found, int)
        return found


def test_a_checkpoint_that_was_lost_is_written_back_before_its_query_starts(tmp_path: Path):
    away, stop = KafkaError(ErrorCode.NETWORK_EXCEPTION, "away"), StopError("it does not belong to it")
    sinks = [Sink([away, 7, None]), Sink([stop])]
    writers, lines = [Writer([AWAY, None]), Writer([])], list[str]()

    def several(session: Any) -> list[Writer]:
        found = pipelines_module.runner()
        assert found is not None
        found.sinks.extend(sinks)
        return writers

    assert not runner(tmp_path, {"several": several}, Clock(), lines).run()
    assert [len(writer.queries) for writer in writers] == [2, 0]
    assert sinks[0].locations == [str(tmp_path / "app-several")] * 3
    assert "app-several  had lost its checkpoint; 7 files are written back from its topic" in lines
    assert any("failed, and is started again in 1 s: KafkaError: NETWORK_EXCEPTION: away" in line for line in lines)
    assert "app-several-2  stopped, and is not started again: it does not belong to it" in lines


def test_the_sink_of_a_run_that_has_failed_is_closed_before_the_next_one_starts(tmp_path: Path):
    """Each restart left a producer with its connections, for as long as the command ran: of a bad record, one in a minute."""
    writer, sinks, closed = Writer([AWAY, AWAY, None]), list[Any](), list[Any]()

    def function(session: Any) -> Any:
        made: Any = sink({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
        made.prepare = lambda location: None
        made.close = lambda: closed.append((made, len(writer.queries)))
        sinks.append(made)
        return attached(writer, made)

    assert runner(tmp_path, {"one": function}, Clock(), []).run()
    started = sinks[1:]  # the first one was for what the runner says of the query
    assert closed == [(started[0], 1), (started[1], 2)]


def test_a_query_that_writes_what_it_reads_is_warned_of(tmp_path: Path):
    said: list[str] = []
    assert runner(tmp_path, {"totals": lambda session: Writer([None])}, Clock(), said, loops=["orders"]).run()
    text = "each row that it writes there comes back, without end, unless a filter drops it"
    assert said[1] == f"warning: app-totals  writes topic orders, which it reads: {text}"


def test_a_query_that_fails_is_started_again_after_longer_and_longer_pauses(tmp_path: Path):
    writer, clock, said = Writer([AWAY] * 8 + [None]), Clock(), list[str]()
    assert runner(tmp_path, {"totals": lambda session: writer}, clock, said).run()
    assert said.pop(0) == f"app-totals  reads orders; checkpoint in {tmp_path}/app-totals", "its sink is none of ours"
    assert [line.split(" in ")[1].split(" s")[0] for line in said[:8]] == ["1", "2", "4", "8", "16", "32", "60", "60"]
    assert "KafkaError: NETWORK_EXCEPTION: away" in said[0]
    assert said[8] == "app-totals  has ended"
    assert writer.said == {"name": "app-totals", "checkpointLocation": str(tmp_path / "app-totals")}


@pytest.mark.parametrize(
    "end",
    [
        FENCED,
        "ottla.spark.driver_sink.BatchTooLargeError: batch 3 is larger than spark.driver.maxResultSize",
        "ottla.spark.reading.DataLossError: orders-0: offset 5 is below the first one, 9. Set failOnDataLoss=false to continue",
    ],
)
def test_a_query_that_may_not_go_on_is_not_started_again_and_others_are(tmp_path: Path, end: str):
    stopped, other, said = Writer([end]), Writer([AWAY, None]), list[str]()
    both = runner(tmp_path, {"one": lambda session: stopped, "two": lambda session: other}, Clock(), said)
    assert not both.run()
    assert (both.cannot_continue, both.is_to_be_reset) == (True, False), "the text has its own way out"
    assert len(stopped.queries) == 1
    assert len(other.queries) == 2
    assert any(line.startswith("app-one  stopped, and is not started again: ") for line in said)


@pytest.mark.parametrize("is_in_topic", [True, False])
def test_a_query_that_could_begin_again_leaves_the_commands_for_it_to_the_runners_caller(tmp_path: Path, is_in_topic: bool):
    arrived = Batch("query", 3, "hash", None, {TopicPartition("orders", 0): 5}, is_mirrored=is_in_topic)
    with pytest.raises(StopError) as stop:
        is_written("app-one", arrived, Committed(Marker("query", 5, "hash", 7), {TopicPartition("orders", 0): 9}))
    said: list[str] = []
    found = runner(tmp_path, {"one": lambda session: Writer([f"ottla.spark.exactly_once.StopError: {stop.value}"])}, Clock(), said)
    assert not found.run()
    assert (found.cannot_continue, found.is_to_be_reset, found.can_be_restored) == (True, True, is_in_topic)
    assert "the checkpoint is older than what was written, as one from a backup is. To go on after it, without" in said[-1]
    assert said[-1].endswith("""startingOffsets='{"orders": {"0": 9}}'.""")


def test_a_query_whose_topic_was_made_again_can_begin_again(tmp_path: Path):
    error = f"ottla.spark.reading.DataLossError: a-0 ends at 0, before offset 2: {MADE_AGAIN}, or its log has lost its end"
    found = runner(tmp_path, {"one": lambda session: Writer([error])}, Clock(), [])
    assert not found.run()
    assert (found.cannot_continue, found.is_to_be_reset) == (True, True)


@pytest.mark.parametrize(("delivery", "says_how_to_go_on"), [("exactly_once", False), ("at_least_once", True)])
@pytest.mark.parametrize("what", ["orders-0 no longer exists", f"orders-0 ends at 0, before offset 2: {MADE_AGAIN}"])
def test_a_query_whose_only_topic_was_deleted_is_not_advised_to_go_on(tmp_path: Path, delivery: str, says_how_to_go_on: bool, what: str):
    """Exactly once it stopped again, with failOnDataLoss=false: its group has no offsets any more."""
    with pytest.raises(DataLossError) as lost:
        report_loss(what, fails=True, way_out=AFTER_DELETION)

    def totals(session: Any) -> Any:
        writer = Writer([f"ottla.spark.reading.DataLossError: {lost.value}"])
        options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "delivery": delivery}
        return attached(writer, sink(options | ({"checkpoint": "directory"} if delivery == "exactly_once" else {})))

    said: list[str] = []
    found = runner(tmp_path, {"totals": totals}, Clock(), said)
    assert not found.run()
    assert (found.cannot_continue, found.is_to_be_reset) == (True, True)
    assert ("failOnDataLoss=false" in said[-1]) == says_how_to_go_on
    if not says_how_to_go_on:
        assert said[-1] == f"app-totals  stopped, and is not started again: {what}."


@pytest.mark.parametrize(
    "error",
    [
        "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
        "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE",
        "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
        "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    ],
)
def test_a_query_whose_state_is_not_that_of_its_checkpoint_is_not_started_again(tmp_path: Path, error: str):
    writer, said = Writer([f"[{error}] Provided value schema does not match existing state value schema.\nmore"]), list[str]()
    found = runner(tmp_path, {"one": lambda session: writer}, Clock(), said)
    assert not found.run()
    assert len(writer.queries) == 1
    assert (found.cannot_continue, found.is_to_be_reset) == (True, True)
    assert said[-1].startswith(f"app-one  stopped, and is not started again: [{error}] Provided value schema")
    assert said[-1].endswith("Run the file as it was, or this one beside it as another application, with --app.")


@pytest.mark.parametrize(
    ("error", "before", "now"),
    [
        ("VARIABLE_TYPE_CHANGE] Cannot change s", "ValueState", "ListState"),
        ("CONFIG_AFTER_RESTART] Cannot change timeMode", "None", "EventTime"),
    ],
)
def test_a_processor_whose_state_or_time_is_of_another_kind_by_now_is_not_started_again(tmp_path: Path, error: str, before: str, now: str):
    """It was, for ever; and Spark's advice, a new checkpoint, would have stopped the query."""
    text = f"[STATE_STORE_INVALID_{error} to {now} between restarts. Please set it to {before}"
    writer, said = Writer([f"{text}, or restart with a new checkpoint directory. SQLSTATE: 42K06\nmore"]), list[str]()
    found = runner(tmp_path, {"one": lambda session: writer}, Clock(), said)
    assert not found.run()
    assert (len(writer.queries), found.cannot_continue, found.is_to_be_reset) == (1, True, True)
    assert said[-1] == f"app-one  stopped, and is not started again: {text}. {CHANGED_STATE_WAY_OUT}"


@pytest.mark.parametrize("is_in_topic", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        "[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart streaming query.\nStateful operators in current batch: [x].",
        (
            "[STREAM_FAILED] Traceback (most recent call last):\npy4j.protocol.Py4JJavaError: An error occurred.\n"
            ": org.apache.spark.SparkException: Exception thrown in awaitResult: \nCaused by: org.apache.spark.SparkException: "
            "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] An error occurred: 1.changelog does not exist.\n\tat x\n"
            "org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
        ),
        "java.lang.IllegalStateException: Failed to read log file file:/c/app/commits/1. Incomplete log file in the offset commit log",
        (
            "Caused by: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred.\n\tat x\n\t... 9 more\n"
            "Caused by: java.io.EOFException\n\tat x\n"
        ),
    ],
    ids=["all", "a file", "what it has", "what a file of the state has"],
)
def test_a_query_whose_checkpoint_has_lost_its_state_is_not_started_again(tmp_path: Path, error: str, is_in_topic: bool):
    """It was, for ever, and said nothing of the command that mends it."""

    def totals(session: Any) -> Any:
        options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "checkpoint": "topic" if is_in_topic else "directory"}
        made: Any = sink(options)
        made.prepare = lambda location: None
        return attached(writer, made)

    writer, said = Writer([error]), list[str]()
    found = runner(tmp_path, {"totals": totals}, Clock(), said)
    assert not found.run()
    assert (len(writer.queries), found.cannot_continue) == (1, True)
    assert (found.can_be_restored, found.is_to_be_reset) == (is_in_topic, True)
    lost = re.search(r"\[(STREAMING|CANNOT)_.*|Failed to read .* log file\b", error)
    assert lost is not None
    assert said[-1] == f"app-totals  stopped, and is not started again: {lost[0]}"


def test_a_checkpoint_that_has_lost_its_metadata_alone_stops_its_query_and_no_other(tmp_path: Path):
    """It had ended all queries of the file."""
    refusal: Any = type("AnalysisException", (Exception,), {"__module__": "pyspark.errors.exceptions.captured"})
    reason = "[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] Checkpoint location /c is in an inconsistent state"
    torn, other, said = Unwritable([refusal(reason)]), Writer([None]), list[str]()
    found = runner(tmp_path, {"one": lambda session: torn, "two": lambda session: other}, Clock(), said)
    assert not found.run()
    assert (found.cannot_continue, found.is_to_be_reset, len(other.queries)) == (True, True, 1)
    assert f"app-one  stopped, and is not started again: its checkpoint cannot be used: {reason}" in said


def test_a_checkpoint_with_empty_metadata_stops_its_query(tmp_path: Path):
    """It was started again and again, without a word of the way out."""
    java: Any = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    reason = "com.fasterxml.jackson.databind.exc.MismatchedInputException: No content to map due to end-of-input"
    torn, said = Unwritable([java(f"An error occurred while calling o1.start.\n: {reason}\n\tat x\n")]), list[str]()
    found = runner(tmp_path, {"one": lambda session: torn}, Clock(), said)
    assert not found.run()
    assert (found.cannot_continue, found.is_to_be_reset) == (True, True)
    assert said[-1] == f"app-one  stopped, and is not started again: its checkpoint cannot be used: {reason}"


@pytest.mark.parametrize("kind", ["UNRELEASED_THREAD_ERROR", "UNCATEGORIZED"])
def test_a_state_that_could_not_be_had_for_another_reason_is_tried_again(tmp_path: Path, kind: str):
    error = f"Caused by: x.SparkException: [CANNOT_LOAD_STATE_STORE.{kind}] RocksDB instance could not be acquired\n\tat x\n"
    error += "Caused by: java.io.IOException: No space left on device\nCaused by: java.io.EOFException\n"
    writer, said = Writer([error, None]), list[str]()
    assert runner(tmp_path, {"one": lambda session: writer}, Clock(), said).run()


def test_a_query_that_fails_again_and_again_ends_where_restarts_are_bounded(tmp_path: Path):
    said: list[str] = []
    writer, clock = Writer([AWAY, AWAY, AWAY, None]), Clock()
    bounded = runner(tmp_path, {"f": lambda session: writer}, clock, said, restarts_max=2)
    assert not bounded.run()
    assert not bounded.cannot_continue
    assert len(writer.queries) == 3
    assert said[-1] == "app-f  has failed 3 times in a row, and is not started again: KafkaError: NETWORK_EXCEPTION: away"


REFUSED = """[STREAM_FAILED] Traceback (most recent call last):
ottla.errors.KafkaError: TOPIC_AUTHORIZATION_FAILED: topic 'orders'

During handling of the above exception, another exception occurred:

RuntimeError: the batch ends
"""


@pytest.mark.parametrize("when", ["it runs", "its checkpoint is looked for"])
def test_what_a_user_may_not_do_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str):
    said: list[str] = []
    writer = Writer([REFUSED, None])
    found = runner(tmp_path, {"f": lambda session: writer}, Clock(pauses_max=100), said)
    monkeypatch.setattr(found, "_explain", lambda error, reads: f"{error.code.name}, {error.message}, of {reads}: the way out")
    if when == "its checkpoint is looked for":

        def refuse(started: object) -> None:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic 'orders'")

        monkeypatch.setattr(found, "_start", refuse)
    assert not found.run()
    assert (found.cannot_continue, found.is_to_be_reset) == (True, False)
    assert said[-1] == "app-f  stopped, and is not started again: TOPIC_AUTHORIZATION_FAILED, topic 'orders', of orders: the way out"


@pytest.mark.parametrize("code", sorted(REFUSALS))
def test_a_login_that_is_refused_is_not_tried_again_either(tmp_path: Path, code: ErrorCode):
    said: list[str] = []
    refused = Writer([f"[STREAM_FAILED] Traceback (most recent call last):\nottla.errors.KafkaError: {code.name}\n", None])
    found = runner(tmp_path, {"f": lambda session: refused}, Clock(), said)
    assert not found.run()
    assert (found.cannot_continue, said[-1]) == (True, f"app-f  stopped, and is not started again: {code.name}")


@pytest.mark.parametrize("more", ["", "\nDuring handling of it another exception occurred:\n\nRuntimeError: the batch ends\n"])
def test_an_option_that_is_wrong_is_not_tried_again(tmp_path: Path, more: str):
    said: list[str] = []
    text = "INVALID_CONFIG: startingOffsets=earlyest is neither"
    wrong = Writer([f"[STREAM_FAILED] Traceback (most recent call last):\nottla.errors.KafkaError: {text}\n{more}", None])
    found = runner(tmp_path, {"f": lambda session: wrong}, Clock(pauses_max=100), said)
    assert not found.run()
    assert (found.cannot_continue, found.is_to_be_reset) == (True, False)
    assert said[-1] == f"app-f  stopped, and is not started again: {text}"


@pytest.mark.parametrize(("batch", "ran_s", "restarts"), [(None, 300, 3), (0, 300, 6), (None, 1000, 6), (0, 30, 3)])
def test_a_query_that_waits_in_vain_for_minutes_has_failed_in_a_row(tmp_path: Path, batch: int | None, ran_s: int, restarts: int):
    """It did no batch: brokers that stayed away kept a bounded run from its end."""
    said: list[str] = []
    clock = Clock(pauses_max=100_000)

    class Waiting(Query):
        @property
        def isActive(self) -> bool:
            return clock.now_s < self.began_s + ran_s

        @isActive.setter
        def isActive(self, value: bool) -> None:
            self.began_s = clock.now_s

    class Away(Writer):
        def start(self) -> Query:
            self.queries.append(Waiting(self.ends.pop(0)))
            if batch is not None:
                self.queries[-1].lastProgress = {"batchId": batch, "numInputRows": 1}
            return self.queries[-1]

    writer = Away([AWAY] * 5 + [None])
    assert runner(tmp_path, {"f": lambda session: writer}, clock, said, restarts_max=2).run() == (restarts == 6)
    assert len(writer.queries) == restarts


def test_a_query_that_has_never_started_waits_longer_each_time_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The clock of a machine does not begin at zero: each failure was taken for the first one after a minute's work."""
    said: list[str] = []
    clock = Clock(pauses_max=20)
    clock.now_s = 1_000_000.0
    found = runner(tmp_path, {"f": lambda session: Writer([])}, clock, said, restarts_max=2)

    def fail(started: object) -> None:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "away")

    monkeypatch.setattr(found, "_start", fail)
    with suppress(KeyboardInterrupt):
        assert not found.run()
    assert [line.partition(": ")[0] for line in said[1:]] == [
        "app-f  failed, and is started again in 1 s",
        "app-f  failed, and is started again in 2 s",
        "app-f  has failed 3 times in a row, and is not started again",
    ]


class Unwritable(Writer):
    """A writer whose checkpoint cannot be written, in turn, as Spark and the restore of a checkpoint say it."""

    def start(self) -> Query:
        if isinstance(self.ends[0], Exception):
            raise self.ends.pop(0)
        return super().start()


def test_a_checkpoint_that_cannot_be_written_fails_its_query_and_no_other(tmp_path: Path):
    """It had ended all queries of the file, also where it came with a restart."""
    java: Any = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    full = java("An error occurred while calling o1.start.\n: java.io.IOException: No space left on device\n\tat x\n")
    unwritable, other = Unwritable([NotADirectoryError(20, "Not a directory", "c"), full, None]), Writer([None])
    said: list[str] = []
    assert runner(tmp_path, {"one": lambda session: unwritable, "two": lambda session: other}, Clock(), said).run()
    assert len(other.queries) == 1
    where = "and is started again in"
    assert [line for line in said if where in line] == [
        f"app-one  failed, {where} 1 s: NotADirectoryError: its checkpoint cannot be used: [Errno 20] Not a directory: 'c'",
        f"app-one  failed, {where} 2 s: Py4JJavaError: its checkpoint cannot be used: java.io.IOException: No space left on device",
    ]


@pytest.mark.parametrize("module", ["py4j.protocol", "pyspark.errors"])
def test_a_jvm_that_has_ended_and_a_refusal_of_spark_end_all_queries(tmp_path: Path, module: str):
    error = type("Py4JNetworkError" if module == "py4j.protocol" else "AnalysisException", (Exception,), {"__module__": module})
    said: list[str] = []
    with pytest.raises(error):
        runner(tmp_path, {"one": lambda session: Unwritable([error()])}, Clock(), said).run()
    assert (said[-1] == "app-one  cannot be started") == (module == "pyspark.errors"), "Spark's error does not name the query"
    with pytest.raises(ConnectionRefusedError):
        runner(tmp_path, {"one": lambda session: Unwritable([ConnectionRefusedError()])}, Clock(), []).run()


def test_the_queries_of_a_function_have_names_and_checkpoints_of_their_own(tmp_path: Path):
    writers, seen = [Writer([None]), Writer([None])], []

    def several(session: Any) -> list[Writer]:
        found = pipelines_module.runner()
        assert found is not None
        seen.append((next(found.names), next(found.names), found.bootstrap, found.checkpoint))
        return writers

    assert runner(tmp_path, {"several": several}, Clock(), [], until_caught_up=True).run()
    assert set(seen) == {("app-several", "app-several-2", "broker:1", "topic")}
    assert [writer.said["name"] for writer in writers] == ["app-several", name_of("app", "several", 1)]
    assert writers[0].said["trigger"] == {"availableNow": True}
    assert pipelines_module.runner() is None


def test_batches_without_records_are_not_said_before_the_first_one(tmp_path: Path):
    class Counting(Writer):
        def start(self) -> Query:
            query = super().start()
            query.lastProgress = {"id": "q", "batchId": 0, "numInputRows": 0}
            return query

    class Filling(Clock):
        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            query = writer.queries[0]
            if self.left == 7:
                query.lastProgress = {"id": "q", "batchId": 1, "numInputRows": 2}
            if self.left == 4:
                query.lastProgress = {"id": "q", "batchId": 2, "numInputRows": 0}

    writer, lines = Counting(["runs"]), list[str]()
    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path, {"totals": lambda session: writer}, Filling(pauses_max=10), lines, bootstrap="127.0.0.1:1").run()
    assert [line.split("  ")[1] for line in lines[1:]] == ["waits for records in orders", "#1", "#2"]


def test_every_batch_is_said_once_and_a_progress_of_an_idle_query_is_none(tmp_path: Path):
    """Several batches may end between two looks; an idle query has a progress each ten seconds, with the number of its next batch."""

    def progress(number: int, rows: int, *steps: str) -> dict[str, Any]:
        return {"id": "q", "batchId": number, "numInputRows": rows, "durationMs": dict.fromkeys(("latestOffset", *steps), 1)}

    class Recent(Query):
        recent: list[Any]

        @property
        def recentProgress(self) -> list[Any]:
            return self.recent

    class Counting(Writer):
        def start(self) -> Query:
            query = Recent(self.ends.pop(0))
            query.recent = []
            self.queries.append(query)
            return query

    class Filling(Clock):
        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            query = writer.queries[0]
            assert isinstance(query, Recent)
            coming = {
                8: [progress(24, 5, "addBatch"), progress(25, 5, "addBatch")],
                6: [progress(26, 5, "addBatch"), progress(27, 0, "addBatch"), progress(28, 5, "addBatch")],
                4: [progress(29, 0)],
                2: [progress(29, 0), progress(29, 5, "addBatch"), progress(30, 0)],
            }
            query.recent += coming.get(self.left, [])
            query.lastProgress = query.recent[-1] if query.recent else None

    writer, lines = Counting(["runs"]), list[str]()
    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path, {"totals": lambda session: writer}, Filling(pauses_max=10), lines, bootstrap="127.0.0.1:1").run()
    assert [word for line in lines for word in line.split("  ") if word.startswith("#")] == ["#24", "#25", "#26", "#27", "#28", "#29"]


@pytest.mark.parametrize(
    ("until_caught_up", "watermarks", "last"),
    [(True, [None] * 9, "#3"), (True, ["a", "a", "b", "c", "c", "c", "c", "c", "c"], "#5"), (False, [None] * 9, "#8")],
)
def test_a_query_that_spark_runs_on_and_on_for_its_timers_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until_caught_up: bool, watermarks: list[str | None], last: str
):
    """A state by the clock, with timers or a TTL, has Spark run a batch after the other, also where a query is to end at what there is."""

    def progress(number: int) -> dict[str, Any]:
        ends = [None, 5, 9, 9, 9, 9, 9, 9, 9, 9]  # the batch that comes again at a start says nothing, nor does one that lost records
        offsets = [None if end is None else {"orders": {"0": end}} for end in ends]
        source = {"startOffset": offsets[number], "endOffset": offsets[number + 1], "latestOffset": offsets[-1]}
        event_time = {} if watermarks[number] is None else {"watermark": watermarks[number]}
        return {"id": "q", "batchId": number, "numInputRows": int(number < 2), "sources": [source], "eventTime": event_time}

    class Turning(Writer):
        def start(self) -> Query:
            query = super().start()
            query.isActive, query.lastProgress = True, progress(0)
            return query

    class Filling(Clock):
        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            query = writer.queries[0]
            query.lastProgress = progress(query.lastProgress["batchId"] + 1)
            query.isActive = not query.is_stopped

    writer, lines = Turning([None]), list[str]()
    turning = runner(
        tmp_path, {"f": lambda session: writer}, Filling(pauses_max=8), lines, until_caught_up=until_caught_up, bootstrap="127.0.0.1:1"
    )
    monkeypatch.setattr(turning._progress, "commit", lambda *_, **__: None)
    with suppress(KeyboardInterrupt):
        turning.run()
    assert [word for line in lines for word in line.split("  ") if word.startswith("#")][-1] == last
    assert (lines[-1] == "app-f  has caught up") == until_caught_up


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_sink_that_leaves_bad_rows_out_is_said_to_once(tmp_path: Path, is_ours: bool):
    """As of parquet: read_topic has taken them out of its rows, and nothing had written them or said so."""

    class Counting(Writer):
        def start(self) -> Query:
            query = super().start()
            query.lastProgress = {"id": "q", "batchId": 0, "numInputRows": 3, "observedMetrics": {"ottla.bad_rows.0": (2,)}}
            return query

    class Filling(Clock):
        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            writer.queries[0].lastProgress = writer.queries[0].lastProgress | {"batchId": 10 - self.left}

    def made(session: Any) -> Writer:
        found = pipelines_module.runner()
        assert found is not None
        if is_ours:
            found.sinks.append(object())
            found.settings.append({"app": next(found.names)})
        return writer

    writer, lines = Counting(["runs"]), list[str]()
    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path, {"totals": made}, Filling(pauses_max=10), lines, bootstrap="127.0.0.1:1").run()
    assert [line for line in lines if "#" in line]
    assert all(line.endswith("bad rows 2") for line in lines if "#" in line)
    assert len([line for line in lines if line.startswith("app-totals  leaves bad rows out: ")]) == (0 if is_ours else 1)


def test_a_topic_of_bad_rows_that_does_not_exist_is_said_before_the_first_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    form: Any = None
    made = {name: BadRows(frozenset({"orders"}), form, name, {}) for name in ("orders-bad", "orders-bda")}
    monkeypatch.setattr(dead_letters, "_SOURCES", made)
    asked, lines = list[set[str]](), list[str]()

    def absent(topics: set[str]) -> set[str]:
        asked.append(topics)
        return topics - {"orders-bad"}

    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path, {"totals": lambda session: Writer(["runs"])}, Clock(pauses_max=10), lines, absent=absent).run()
    assert asked == [{"orders-bad", "orders-bda"}]
    assert lines[1] == "bad_rows=orders-bda: there is no such topic; the first bad row fails its query, unless the brokers create topics"


def test_a_query_says_what_it_will_do_and_once_that_it_waits(tmp_path: Path):
    writers, lines = [Writer(["runs"]), Writer(["runs"])], list[str]()

    def several(session: Any) -> list[Writer]:
        found = pipelines_module.runner()
        assert found is not None
        found.sinks.extend([Sink([None]), Sink([None])])
        found.settings.extend({"app": next(found.names), "checkpoint": "topic", **topic} for topic in ({"topic": "totals"}, {}))
        return writers

    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path, {"several": several}, Clock(pauses_max=50), lines).run()
    at = f"checkpoint in {tmp_path}"
    assert lines == [
        f"app-several  reads orders, writes totals; {at}/app-several and topic app-several-checkpoint",
        f"app-several-2  reads orders, writes the topics of its rows; {at}/app-several-2 and topic app-several-2-checkpoint",
        "app-several  waits for records in orders",
        "app-several-2  waits for records in orders",
    ]


@pytest.mark.parametrize("name", ["orders", "orders-totals", "orders-totals-2", "orders-_by_day"])
def test_the_queries_of_an_application_are_known_by_their_names(name: str):
    assert is_query_of("orders", name)


@pytest.mark.parametrize("name", ["orders-eu-totals", "orders-eu-totals-2", "orders-totals-eu", "orderstotals", "orders-", "orders-2"])
def test_an_application_does_not_list_queries_of_another_with_the_same_prefix(name: str):
    assert not is_query_of("orders", name)


def test_the_offsets_of_a_query_whose_sink_commits_none_are_its_groups(tmp_path: Path, topics: Topics):
    topic = topics.create()
    source = {"endOffset": {topic: {"0": 5}}, "latestOffset": {topic: {"0": 5}}}

    class Measured(Writer):
        def start(self) -> Query:
            query = super().start()
            query.lastProgress = {"id": "q", "batchId": 4, "sources": [source]}
            return query

    def several(session: Any) -> list[Writer]:
        sink({"kafka.bootstrap.servers": topics.bootstrap, "topic": "t"})  # of the first one
        return [Measured([None]), Measured([None])]

    lines: list[str] = []
    assert runner(tmp_path, {"several": several}, Clock(), lines, bootstrap=topics.bootstrap).run()
    assert "app-several-2  #4  in 0/s  batch 0 ms  lag 0" in lines
    with Admin(topics.bootstrap) as admin:
        assert [place.offset for place in admin.committed_offsets("app-several-2").values()] == [5]
        assert admin.committed_offsets("app-several") == {}


def test_a_sink_has_the_name_of_its_writers_query_in_whatever_order_they_were_made(tmp_path: Path):
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}

    def several(session: Any) -> list[Any]:
        second, _plain, first = sink(options), sink(options | {"delivery": "at_least_once"}), sink(options)
        return [attached(Writer([]), first), Writer([]), attached(Writer([]), second), Writer([])]

    made = made_by(several, None, "app", "several", bootstrap="b:1", checkpoint="topic")
    assert {index: settings["app"] for index, settings in made.settings.items()} == {
        0: "app-several",
        1: "app-several-2",
        2: "app-several-3",
    }
    assert all(vars(made.writers[index])["__ottla_sink__"] is made.sinks[index] for index in (0, 2))
    turns = iter([[0, 1], [1, 0], [0, 1]])

    def changing(session: Any) -> list[Any]:
        sinks = [sink(options), sink(options)]
        return [attached(Writer([]), sinks[index]) for index in reversed(next(turns))]

    with pytest.raises(KafkaError, match="returns its writers in another order each time"):
        made_by(changing, None, "app", "changing", bootstrap="b:1", checkpoint="topic")


@pytest.mark.parametrize(("made", "said"), [(None, "None"), ([Writer([]), None], "None"), (Query("runs"), "a value of type Query")])
def test_a_pipeline_that_returns_no_writer_is_refused_by_its_name(made: Any, said: str):
    with pytest.raises(KafkaError, match=f"the pipeline totals returned {said}: return what to_topic makes") as refused:
        made_by(lambda session: made, None, "app", "totals", bootstrap="b:1", checkpoint="topic")
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_a_ctrl_c_stops_all_queries(tmp_path: Path):
    writers = [Writer(["runs"]), Writer(["runs"])]
    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path, {"several": lambda session: writers}, Clock(pauses_max=3), []).run()
    assert [query.is_stopped for writer in writers for query in writer.queries] == [True, True]


def test_a_ctrl_c_interrupts_a_sink_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its query does not stop before its batch has ended, which had waited for a topic that was gone: two minutes."""
    monkeypatch.setattr("ottla.spark.runner.STOP_S_MAX", 0)
    is_interrupted = threading.Event()

    class Waiting(Query):
        def stop(self) -> None:
            self.is_stopped = is_interrupted.wait(10)

    class Writing(Writer):
        def start(self) -> Query:
            self.queries.append(Waiting("runs"))
            return self.queries[-1]

    def made(session: Any) -> Writer:
        found = pipelines_module.runner()
        assert found is not None
        found.sinks.append(SimpleNamespace(interrupt=is_interrupted.set))
        found.settings.append({"app": next(found.names)})
        return writer

    writer = Writing([])
    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path, {"totals": made}, Clock(pauses_max=2), []).run()
    assert [query.is_stopped for query in writer.queries] == [True]


def test_the_reason_is_the_error_that_ended_it_all():
    assert reason_of(FENCED) == ("StopError", "application 'a': another producer has its transactional id")
    assert reason_of(AWAY) == ("KafkaError", "NETWORK_EXCEPTION: away")
    assert reason_of("[STREAM_FAILED] something else") == ("error", "[STREAM_FAILED] something else")


CRASHED = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An exception was raised. Return Message: Traceback (most recent call last):
  File "x.py", line 1, in getResult
py4j.protocol.Py4JJavaError: An error occurred while calling o1049.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:{space}
    at org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
    at org.apache.spark.api.python.BasePythonRunner
Caused by: java.io.EOFException

Driver stacktrace:
    at org.apache.spark.scheduler.DAGScheduler
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting 'x' to 'true'.
    at org.apache.spark.api.python.BasePythonRunner
Caused by: java.io.EOFException
    ... 31 more

org.apache.spark.SparkException: Exception thrown in awaitResult:{space}
 SQLSTATE: 39000
""".format(space=" ")


def test_a_reason_that_says_nothing_gives_way_to_its_innermost_cause():
    """As of a Python worker without memory: the line ended with a colon."""
    assert reason_of(CRASHED) == ("SparkException", "Python worker exited unexpectedly (crashed). Consider setting 'x' to 'true'.")
    without = "\n".join(line for line in CRASHED.splitlines() if not line.startswith("Caused by"))
    assert reason_of(without) == ("SparkException", "Exception thrown in awaitResult: ")
    udf = traceback_of("/jobs/udf.py:7") + CRASHED
    assert reason_of(udf)[1].startswith("Python worker exited"), "what comes last counts"


def traceback_of(*frames: str, error: str = "ZeroDivisionError: float division by zero") -> str:
    lines = "".join(f'  File "{frame.replace(":", chr(34) + ", line ")}, in f\n    x / 0\n    ~~^~~\n' for frame in frames)
    return f"Traceback (most recent call last):\n{lines}{error}\n"


OWN = str(Path(pipelines_module.__file__).parent / "reading.py")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (traceback_of("/jobs/udf.py:7", "/jobs/more.py:9"), " (/jobs/more.py:9)"),
        (traceback_of("/jobs/udf.py:7", "/usr/lib/python3.11/json/decoder.py:3", "/v/site-packages/numpy/core.py:5"), " (/jobs/udf.py:7)"),
        (traceback_of("/v/site-packages/pyspark/worker.py:1", f"{OWN}:5"), ""),
        (traceback_of("/jobs/udf.py:7", error="ValueError: x") + "\n" + traceback_of("/v/site-packages/pyspark/worker.py:1"), ""),
        (traceback_of("/jobs/udf.py:7", error="ottla.errors.KafkaError: NETWORK_EXCEPTION: away"), ""),
        ("[STREAM_FAILED] something else", ""),
    ],
    ids=["the innermost", "in a library", "not the user's", "another traceback", "of ottla's own", "no traceback"],
)
def test_a_failure_of_a_users_function_has_its_place(tmp_path: Path, text: str, place: str):
    kind, reason = reason_of(text)
    assert place_of(text, kind, reason) == place
    said: list[str] = []
    assert not runner(tmp_path, {"f": lambda session: Writer([text])}, Clock(), said, restarts_max=0).run()
    assert said[-1] == f"app-f  has failed, and is not started again: {kind}: {reason}{place}"


def test_a_file_has_its_pipelines_by_the_names_of_their_functions(tmp_path: Path):
    path = tmp_path / "orders.py"
    path.write_text("from ottla.spark import pipeline\n\n@pipeline\ndef totals(spark):\n    return spark\n\ndef helper():\n    pass\n")
    assert list(pipelines_of(path)) == ["totals"]
    path.write_text("x = 1\n")
    with pytest.raises(KafkaError, match="has no pipeline: put @pipeline"):
        pipelines_of(path)
    assert pipeline(runner) is runner


def test_what_ottla_refuses_of_a_pipeline_has_its_line_and_its_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file of two pipelines: the error named neither."""
    path = tmp_path / "two.py"
    code = ["from ottla.spark import pipeline, sink", "", "", "@pipeline", "def two(spark):", "    return made()", "", "", "def made():"]
    path.write_text("\n".join([*code, "    return sink({'topics': 't'})", ""]))
    text = "unknown option 'topics'; did you mean topic?"
    for directory, shown in (("/usr", str(path)), (str(tmp_path), "two.py")):
        monkeypatch.chdir(directory)
        with pytest.raises(KafkaError) as refused:
            made_by(pipelines_of(path)["two"], None, "app", "two", bootstrap="b:1", checkpoint="topic")
        assert str(refused.value) == f"INVALID_CONFIG: {shown}:10 (pipeline two): {text}"
    path.write_text("from ottla.spark import sink\n\nsink({'topics': 't'})\n")
    with pytest.raises(KafkaError) as refused:
        pipelines_of(path)
    assert str(refused.value) == f"INVALID_CONFIG: two.py:3: {text}"


def test_other_errors_of_a_pipeline_stay_as_they_are():
    def away(session: Any) -> Any:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "away")

    with pytest.raises(KafkaError, match=r"^NETWORK_EXCEPTION: away$"):
        made_by(away, None, "app", "away", bootstrap="b:1", checkpoint="topic")


@pytest.mark.parametrize("head", ["totals()", "totals(spark, day)", "totals(spark, *, day)"])
@pytest.mark.parametrize("check", [check_source, pipelines_of])
def test_a_pipeline_that_does_not_take_the_session_is_refused_before_it_is_called(tmp_path: Path, head: str, check: Any):
    path = tmp_path / "orders.py"
    path.write_text(f"from ottla.spark import pipeline\n\n\n@pipeline\ndef {head}:\n    return None\n")
    said = f"{path}:5: a pipeline takes the SparkSession, and nothing else: def totals(spark)"
    with pytest.raises(KafkaError, match=re.escape(said)):
        check(path)
    path.write_text(path.read_text().replace("import pipeline", "import pipeline as job").replace("@pipeline", "@job"))
    with pytest.raises(KafkaError, match=re.escape(said.replace(":5", ""))):  # Python knows it, once the file is loaded
        pipelines_of(path)


@pytest.mark.parametrize("head", ["totals(spark)", "totals(spark, day=1)", "totals(*session)", "totals(spark, *, day=1, **more)"])
def test_a_pipeline_may_have_more_arguments_with_values_of_their_own_and_brackets(tmp_path: Path, head: str):
    path = tmp_path / "orders.py"
    path.write_text(f"from ottla.spark import pipeline\n\n\n@pipeline()\ndef {head}:\n    return None\n")
    assert list(pipelines_of(path)) == ["totals"]


def test_another_decorator_may_give_a_pipeline_its_arguments(tmp_path: Path):
    path = tmp_path / "orders.py"
    wraps = "def with_day(call):\n    return lambda spark: call(spark, 1)\n\n"
    path.write_text(f"from ottla.spark import pipeline\n\n{wraps}@pipeline\n@with_day\ndef totals(spark, day):\n    return None\n")
    assert list(pipelines_of(path)) == ["totals"]


def test_a_sink_of_a_pipeline_is_named_after_it_unless_it_says_otherwise():
    options = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    with running("app", "totals", "broker:1"):
        made: list[Any] = [sink(options), sink(options | {"app": "own"}), sink(options)]
    assert [found._settings["app"] for found in made] == ["app-totals", "own", "app-totals-3"]

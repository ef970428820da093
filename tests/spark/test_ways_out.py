"""Notes of Spark's errors; what errors they are is tried with Spark itself, in test_python.py and test_writer.py."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from tests.spark.conftest import Topics
from tests.spark.test_source import load

from ottla.spark.ways_out import METHODS, WAYS_OUT, noting

TYPO = "KafkaError: INVALID_CONFIG: unknown option 'startingoffset'; did you mean startingOffsets?"
MISSING = "KafkaError: UNKNOWN_TOPIC_OR_PARTITION: topic 'misspelt' does not exist: create it first, with ottla topic create misspelt, or "


@pytest.mark.parametrize(("owner", "name"), METHODS, ids=lambda part: getattr(part, "__name__", part))
def test_this_pyspark_has_the_methods_whose_errors_are_looked_at(owner: type, name: str):
    method = getattr(owner, name)
    assert method.__wrapped__.__qualname__ == method.__qualname__ == f"{owner.__name__}.{name}"


@pytest.mark.parametrize("text", WAYS_OUT)
def test_an_error_stays_itself_and_has_its_note_once(text: str):
    error = RuntimeError(text.replace("\\", ""))

    def fail():
        raise error

    with pytest.raises(RuntimeError) as raised:
        noting(noting(fail))()
    assert raised.value is error
    assert error.__notes__ == [WAYS_OUT[text]]


def test_an_error_that_cannot_say_what_it_is_stays_itself():
    class Mute(Exception):
        def __str__(self):
            raise ConnectionError("the JVM is gone")

    def fail():
        raise Mute

    with pytest.raises(Mute):
        noting(fail)()


def has_note(text: str) -> bool:
    error = RuntimeError(text)

    def fail():
        raise error

    with pytest.raises(RuntimeError):
        noting(fail)()
    return hasattr(error, "__notes__")


@pytest.mark.parametrize("text", ["Failed to find the data source: kafka.", "kafka does not support Update mode", ""])
def test_other_errors_and_results_are_left_alone(text: str):
    assert not has_note(text)
    assert noting(divmod)(7, 2) == (3, 1)


@pytest.mark.parametrize(
    "text",
    [
        'Traceback (most recent call last):\n  File "job.py"\nZeroDivisionError: division by zero\n',
        "[UNRESOLVED_COLUMN] ottla.errors.KafkaError: quoted in a query\n SQLSTATE: 42703",
        "Traceback (most recent call last):\nottla.errors.KafkaError: INVALID_CONFIG: no topic",
    ],
    ids=["a function of the user's", "no traceback", "it is the last line already"],
)
def test_a_failure_that_ends_with_its_reason_or_is_none_of_ottlas_has_no_note(text: str):
    assert not has_note(text)


def test_the_last_line_of_a_refusal_with_its_plan_is_the_refusal():
    """The plan of a stream has dozens of lines, some of them names of ottla's own."""
    error = AnalysisException("[STREAMING] not supported without watermark;\nProject [id]\n+- Filter (id > 1)\n   +- Relation\n")

    def fail():
        raise error

    with pytest.raises(AnalysisException):
        noting(fail)()
    assert error.__notes__ == ["[STREAMING] not supported without watermark"]


def last_line(run: Callable[[], object]) -> str:
    with pytest.raises(Exception) as raised:
        run()
    return "".join(traceback.format_exception(raised.value)).rstrip().rpartition("\n")[2]


@pytest.mark.spark
def test_the_last_line_of_a_batch_that_has_failed_is_its_reason(spark: Any, topics: Topics, tmp_path: Path):
    missing = load(spark.read, topics, "misspelt")
    actions: list[Callable[[], object]] = [missing.count, missing.collect, missing.show, missing.head, missing.toArrow]
    for action in [*actions, lambda: missing.write.json(str(tmp_path / "out"))]:
        assert last_line(action).startswith(MISSING)
    assert last_line(load(spark.read, topics, topics.create(), startingOffset="earliest").count) == TYPO
    rows = spark.range(1).select(F.col("id").alias("key"), F.lit("x").alias("value"))
    said = last_line(rows.write.format("ottla").options(**topics.sink_options("t")).mode("append").save)
    assert said.startswith("KafkaError: INVALID_CONFIG: column key is bigint; it must be string or binary: .withColumn('key', ")


@pytest.mark.spark
def test_the_last_line_of_a_stream_whose_option_is_misspelt_is_its_reason(spark: Any, topics: Topics, tmp_path: Path):
    frame = load(spark.readStream, topics, topics.create(), startingOffset="earliest")
    for trigger in ("availableNow", "processingTime"):
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / trigger))
        query = (writer.trigger(availableNow=True) if trigger == "availableNow" else writer).start()
        assert last_line(query.awaitTermination) == TYPO
        assert "UnboundLocalError" not in str(query.exception()), "PySpark's own error, behind which the reason is hidden"


@pytest.mark.spark
def test_the_last_line_of_a_checkpoint_that_cannot_be_written_is_its_reason(spark: Any, topics: Topics, tmp_path: Path):
    (tmp_path / "file").touch()
    writer = load(spark.readStream, topics, topics.create()).writeStream.format("noop")
    said = last_line(writer.option("checkpointLocation", str(tmp_path / "file" / "checkpoint")).start)
    assert said == f"org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:{tmp_path}/file"

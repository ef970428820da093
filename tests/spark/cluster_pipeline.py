"""Two pipelines whose tasks a test can hold: ``ottla pipeline submit tests/spark/cluster_pipeline.py``, with HELD in the environment.

``copy`` appends the rows, with their keys and times; ``totals`` counts by key, in update mode. Tasks pass by ``hold`` before the shuffle
("map") and after it ("reduce"). A file ``STAGE-NUMBER`` in the directory HELD holds one task, which takes it away and leaves
``STAGE-NUMBER.PID``, which says where ottla is from, and waits to be killed. With a file ``slow`` the first attempt of every task of the
first partition waits until Spark has started another one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import functions as F

import ottla
from ottla.spark import pipeline, to_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HELD, BROKER = "OTTLA_TEST_HELD", "OTTLA_TEST_BROKER"
SOURCE, COPY, TOTALS = "in", "copy", "totals"
HELD_SECONDS_MAX = 120


def hold(directory: str, stage: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function that hands on what it gets, after the task has been held where it is to be."""

    def held(batches: Iterable[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None, "it runs in a task"
        place = Path(directory)
        deadline = time.monotonic() + HELD_SECONDS_MAX
        for order in sorted(place.glob(f"{stage}-?")):
            mark = order.with_name(f"{order.name}.{os.getpid()}")
            try:
                order.rename(mark)
            except FileNotFoundError:
                continue  # another task has it
            mark.write_text(ottla.__file__)
            while time.monotonic() < deadline:
                time.sleep(0.05)
            raise TimeoutError(f"{mark} was not killed")
        if (place / "slow").exists() and context.partitionId() == 0:
            batch = context.getLocalProperty("streaming.sql.batchId")
            name = f"{stage}.{context.getLocalProperty('sql.streaming.queryId')}.{batch}.attempt"
            (place / f"{name}.{context.attemptNumber()}").touch()
            while context.attemptNumber() == 0 and not (place / f"{name}.1").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        yield from batches

    return held


def rows_of(spark: SparkSession) -> DataFrame:
    options = {
        "subscribe": SOURCE,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "100",
        "minPartitions": "2",
        "includeHeaders": "true",
    }
    rows = spark.readStream.format("ottla").options(**{"kafka.bootstrap.servers": os.environ[BROKER]}, **options).load()
    return rows.mapInArrow(hold(os.environ[HELD], "map"), rows.schema)


@pipeline
def copy(spark: SparkSession) -> Any:
    return to_topic(rows_of(spark).select("key", "value", "headers", "timestamp", F.lit(COPY).alias("topic")))


@pipeline
def totals(spark: SparkSession) -> Any:
    counts = rows_of(spark).groupBy(F.col("key").cast("string").alias("name")).count()
    held = counts.mapInArrow(hold(os.environ[HELD], "reduce"), counts.schema)
    return to_topic(held, TOTALS, key="name").outputMode("update")

"""A pipeline that runs once, until it has caught up: for tests of pipelines, and for notebooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.options import CHECKPOINTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def catch_up(
    spark: SparkSession, pipeline: Callable[[SparkSession], Any], *, bootstrap: str, checkpoints: str | Path, app: str = "test"
) -> list[str]:
    """Runs the pipeline until it has read what is there now, as ``ottla pipeline run --until-caught-up`` does, and returns its lines.

    ``bootstrap`` names the brokers of its topics. ``checkpoints`` is a directory: with the same one the next call goes on where this one
    has ended. Queries are called after ``app`` and the function. KafkaError UNKNOWN_SERVER_ERROR with these lines when a query fails: it
    is not started again.
    """
    from ottla.spark.runner import Runner

    name = getattr(pipeline, "__name__", "")
    lines: list[str] = []
    runner = Runner(
        spark,
        app,
        {name if name.isidentifier() else "pipeline": pipeline},
        checkpoints=checkpoints,
        bootstrap=bootstrap,
        checkpoint=CHECKPOINTS[0],
        until_caught_up=True,
        restarts_max=0,
        say=lines.append,
    )
    if not runner.run():
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "\n".join(lines))
    return lines

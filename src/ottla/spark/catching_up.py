"""A pipeline that runs once, until it has caught up: for tests of pipelines, and for notebooks."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.client.bootstrap import parse_bootstrap
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.options import CHECKPOINTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKERS_S_MAX: Final = 10.0


def catch_up(
    spark: SparkSession,
    pipeline: Callable[[SparkSession], Any],
    *,
    bootstrap: str,
    checkpoints: str | Path,
    app: str = "test",
    timeout_s: float | None = None,
) -> list[str]:
    """Runs the pipeline until it has read what is there now, as ``ottla pipeline run --until-caught-up`` does, and returns its lines.

    ``bootstrap`` names the brokers of its topics. ``checkpoints`` is a directory: with the same one the next call goes on where this one
    has ended. Queries are called after ``app`` and the function. KafkaError with these lines, and the code of the failure
    (UNKNOWN_SERVER_ERROR where it has none), when a query fails: it is not started again. REQUEST_TIMED_OUT after ``timeout_s`` seconds.
    Where no broker answers, it says so within some seconds.
    """
    from ottla.spark.runner import Runner

    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    _check_brokers(bootstrap, BROKERS_S_MAX if timeout_s is None else min(timeout_s, BROKERS_S_MAX))
    name = getattr(pipeline, "__name__", "")
    lines: list[str] = []

    def pause(seconds: float) -> None:
        if end_s is not None and time.monotonic() > end_s:
            text = f"the pipeline has not caught up within timeout_s={timeout_s:g}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "\n".join([text, *lines]))
        time.sleep(seconds)

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
        pause=pause,
    )
    if not runner.run():
        raise KafkaError(runner.failure, "\n".join(lines))
    return lines


def _check_brokers(bootstrap: str, seconds_max: float) -> None:
    """Asks for the cluster's metadata. KafkaError where no address takes a connection; one that does may want a login that is not known."""
    from ottla.sync import Admin

    try:
        with Admin(bootstrap, request_timeout_ms=max(1, int(seconds_max * 1000))) as admin:
            admin.describe_cluster()
    except KafkaError as error:
        if error.code == ErrorCode.INVALID_CONFIG or not any(_accepts(address) for address in parse_bootstrap(bootstrap)):
            raise


def _accepts(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, timeout=1):
            return True
    except OSError:
        return False

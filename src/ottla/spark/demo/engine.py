"""Spark's part of the job: its session and its queries, and what ``--kill`` does to them.

A Python worker gets SIGKILL: the task that it was in fails, and its query with it, since Spark on one machine tries a task once. The
query goes on from its checkpoint. Spark's JVM gets SIGKILL, and the directories of the checkpoints are removed: Spark is started again,
and each query gets its checkpoint back from its topic.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.defaults import BRIEF, MIRRORED, kill_session, session
from ottla.spark.demo.pipeline import QUERIES, start_query

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_WORKER: Final = b"pyspark.daemon\0pyspark.worker\0"


class Engine:
    """The session and the queries, which the caller's thread starts, asks and stops."""

    def __init__(self, directory: Path, master: str, bootstrap: str) -> None:
        self._directory = directory
        self._master = master
        self._bootstrap = bootstrap
        self._spark: Any = None
        self.queries: list[StreamingQuery] = []
        self._may_fail: set[int] = set()  # queries whose next failure is the death of a worker

    @property
    def checkpoints(self) -> Path:
        return self._directory / "checkpoint"

    def start(self) -> str:
        """Starts the queries from where they were. Returns Spark's version."""
        on_interrupt = signal.getsignal(signal.SIGINT)
        self._spark = session("ottla-demo", master=self._master, config=_settings(self._directory), log_file=self._directory / "spark.log")
        signal.signal(signal.SIGINT, on_interrupt)  # PySpark has put its own there
        self.queries = []
        for name in QUERIES:
            self.queries.append(start_query(self._spark, self._bootstrap, self.checkpoints, name))
        return str(self._spark.version)

    def stop(self) -> None:
        """Stops all queries."""
        for query in self.queries:
            query.stop()

    def check(self) -> Iterator[str]:
        """Starts a query again that has failed for want of its worker; any other failure is raised. Yields what has happened, in words."""
        for index, query in enumerate(self.queries):
            failure = query.exception()
            if failure is None:
                continue
            if index not in self._may_fail:
                raise failure
            self._may_fail.remove(index)
            self.queries[index] = start_query(self._spark, self._bootstrap, self.checkpoints, QUERIES[index])
            yield f"           query {QUERIES[index]} has failed with its worker, and goes on from its checkpoint"

    def kill_worker(self) -> str | None:
        """Kills a Spark process that runs Python tasks, by SIGKILL; None where there is none yet."""
        found = sorted(_workers(self._jvm_pid()))
        if not found:
            return None
        self._may_fail = set(range(len(self.queries)))
        os.kill(found[-1], signal.SIGKILL)
        return f"kill       a Python worker of Spark got SIGKILL, of {len(found)}"

    def kill_jvm(self, say: Callable[[str], None]) -> None:
        """Kills Spark's JVM by SIGKILL, removes the checkpoints' directories, and runs the queries again."""
        killed_at = time.monotonic()
        kill_session()
        shutil.rmtree(self.checkpoints)
        say("kill       Spark's JVM got SIGKILL, and the directories of the checkpoints were removed")
        self._may_fail = set()
        self.start()
        count = sum(1 for path in self.checkpoints.rglob("*") if path.is_file())
        took_ms = (time.monotonic() - killed_at) * 1000
        say(f"return     Spark and its queries run again {took_ms:,.0f} ms later, with {count} files of their checkpoints from the topics")

    def _jvm_pid(self) -> int:
        pid: int = self._spark.sparkContext._gateway.proc.pid
        return pid


def _settings(directory: Path) -> dict[str, str]:
    return {
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "spark-local"),
        "spark.sql.streaming.stopTimeout": "20s",
        **MIRRORED,
        **BRIEF,
    }


def _workers(jvm: int) -> Iterator[int]:
    """Yields the processes that run Python tasks of this JVM: its daemon has forked them."""
    parents, daemons = {}, set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                is_worker = (entry / "cmdline").read_bytes().endswith(_WORKER)
            except OSError:
                continue  # it has just ended
            if is_worker:
                parents[int(entry.name)] = parent
                if parent == jvm:
                    daemons.add(int(entry.name))
    yield from (pid for pid, parent in parents.items() if parent in daemons)

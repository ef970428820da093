"""Spark's standalone cluster on loopback: a master and workers, out of the PySpark that is installed here.

The workers' machines have no ottla: what they start sees the packages that were sent to it, and Spark's own.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import pyspark
from tests.waiting import eventually

from ottla.runtime.java import find_java_home

T = TypeVar("T")
HOME: Final = Path(pyspark.__file__).parent
_MASTER: Final = re.compile(r"Starting Spark master at (spark://[\d.:]+)")


class StandaloneCluster:
    """``with StandaloneCluster(directory) as cluster:``; processes are ended by their own ids."""

    def __init__(self, directory: Path, *, worker_count: int = 2, worker_cores: int = 1) -> None:
        self.directory = directory
        self.worker_count = worker_count
        self.worker_cores = worker_cores
        self.master = ""
        self._java = find_java_home()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def conf(self) -> list[str]:
        """What a driver on loopback has to say."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # most of a short life is the JVM's start
            "spark.sql.shuffle.partitions": str(self.worker_count),
        }
        return [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]

    def executors(self) -> list[int]:
        """The process ids of the executors that run."""
        workers = {process.pid for process in self._processes[1:]}
        return [pid for pid, parent in _parents().items() if parent in workers]

    def kill_executor(self, pid: int) -> None:
        """As by kill -9."""
        assert pid in self.executors(), f"{pid} is an executor of this cluster"
        os.kill(pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        try:
            master_log = self._start("master", "127.0.0.1", "master.Master", "--port", "0", "--webui-port", "0")
            self.master = self._wait(lambda: (_MASTER.findall(master_log.read_text(errors="replace")) or [""])[-1])
            logs = [self._start_worker(index) for index in range(self.worker_count)]
            self._wait(lambda: all("Successfully registered with master" in log.read_text(errors="replace") for log in logs))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def _start_worker(self, index: int) -> Path:
        """With a host of its own: Spark starts a second attempt of a slow task on another host only."""
        given = (
            "--cores",
            str(self.worker_cores),
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--work-dir",
            str(self.directory / f"worker-{index}"),
        )
        return self._start(f"worker-{index}", f"127.0.0.{index + 1}", "worker.Worker", *given, self.master)

    def _start(self, name: str, host: str, program: str, *arguments: str) -> Path:
        log = self.directory / f"{name}.log"
        java = [str(self._java / "bin" / "java"), "-cp", f"{HOME}/jars/*", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = [*java, f"org.apache.spark.deploy.{program}", "--host", host, *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "OTTLA"))}
        environment |= {"SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": host, "JAVA_HOME": str(self._java)}
        with log.open("wb") as file:
            self._processes.append(subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=self.directory))
        return log

    def _wait(self, look: Callable[[], T]) -> T:
        def ended() -> list[str]:
            return [str(process.args) for process in self._processes if process.poll() is not None]

        found, gone = eventually(lambda: (look(), ended()), any)
        assert not gone, f"ended, and was to serve: {gone}"
        return found

    def _stop(self) -> None:
        """Workers end their executors when they are asked to end."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _parents() -> dict[int, int]:
    """Of each process its parent."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            except OSError:
                continue  # it has ended meanwhile
    return found

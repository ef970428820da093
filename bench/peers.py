"""The brokers under test, each in a process of its own, on loopback, in temporary directories of one disk."""

from __future__ import annotations

import compileall
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import ottla

HERE = Path(__file__).parent
TARGET = HERE / "target"
KAFKA_CLASSES = f"{TARGET}/kafka/lib/*"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
FETCH_SECONDS_MAX = 600.0


class Peer:
    """A broker that is started by ``with`` and ended by its own process id; the directory goes with it."""

    name = ""
    environment: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix=f"{self.name}-bench-")
        self.directory = Path(self._directory.name)
        self.address = ("127.0.0.1", 0)
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def wait_until_ready(self) -> None:
        """``address`` is that of a broker that takes connections."""
        raise NotImplementedError

    def prepare(self) -> None:
        """What is done once before the first start, and is not part of it."""

    def start(self) -> None:
        environment = os.environ | self.environment
        self._process = subprocess.Popen(self.command(), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        self.wait_until_ready()

    def stop(self) -> None:
        assert self._process is not None, "the process was started"
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(STOP_SECONDS_MAX)

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        self._directory.cleanup()

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def bootstrap(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the process was started"
        return self._process.pid

    def rss_bytes(self) -> int:
        """Resident memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak_rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the kernel tells no VmHWM")

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        return cpu_seconds_of(self.pid)

    def _wait(self, is_ready: object) -> None:
        assert callable(is_ready), "a question"
        deadline = time.monotonic() + START_SECONDS_MAX
        while not is_ready():
            if not self.is_running() or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start")
            time.sleep(0.0005)


class Ottla(Peer):
    name = "ottla"

    def __init__(self, **properties: str) -> None:
        super().__init__()
        self._ready_file = self.directory / "ready"
        self._properties = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self.directory / "data"),
            "group.initial.rebalance.delay.ms": "0",
        } | properties

    def prepare(self) -> None:
        """The modules are compiled to bytecode, as pip does with what it installs; a checkout may have none."""
        compileall.compile_dir(Path(ottla.__file__).parent, quiet=2)

    def command(self) -> list[str]:
        self._ready_file.unlink(missing_ok=True)
        arguments = [sys.executable, "-m", "ottla", "broker", "start", "--log-level", "warning", "--ready-file", str(self._ready_file)]
        for key, value in self._properties.items():
            arguments += ["-X", f"{key}={value}"]
        return arguments

    def wait_until_ready(self) -> None:
        self._wait(self._ready_file.exists)
        host, port = self._ready_file.read_text().strip().rsplit(":", 1)
        self.address = (host, int(port))


class Kafka(Peer):
    """Apache Kafka 4.3.0: one node that is broker and controller, 1 GiB heap, G1, no logger.

    ``properties`` and ``features`` are other than those of a new cluster.
    """

    name = "kafka"

    def __init__(self, properties: Mapping[str, str] = {}, **features: int) -> None:
        super().__init__()
        self.features = {name.replace("_", "."): level for name, level in features.items()}
        self.address = ("127.0.0.1", _free_port())
        controller = _free_port()
        self._config = self.directory / "server.properties"
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.address[1]},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        } | dict(properties)
        self._config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    @staticmethod
    def why_not() -> str | None:
        """Why it cannot be run here; None when it can."""
        missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
        return f"{' and '.join(missing)} not installed" if missing else None

    def prepare(self) -> None:
        fetch_kafka()
        tool = self._java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._config))
        for name, level in self.features.items():
            tool += ["--feature", f"{name}={level}"]
        subprocess.run(tool, check=True, stdout=subprocess.DEVNULL, timeout=START_SECONDS_MAX)

    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self._config), heap="1g")

    def _java(self, *arguments: str, heap: str = "256m") -> list[str]:
        return ["java", f"-Xmx{heap}", f"-Xms{heap}", "-XX:+UseG1GC", "-cp", KAFKA_CLASSES, *arguments]

    def wait_until_ready(self) -> None:
        """It listens before it serves: whoever asks first has to ask again."""
        self._wait(self._listens)

    def _listens(self) -> bool:
        try:
            socket.create_connection(self.address, 1).close()
        except OSError:
            return False
        return True


def fetch_kafka() -> None:
    """Has Apache Kafka's own classes, with its clients, where ``KAFKA_CLASSES`` looks for them."""
    if not (TARGET / "kafka" / "lib").is_dir():
        options = ["-q", "dependency:copy-dependencies", "-DoutputDirectory=${project.build.directory}/lib"]
        subprocess.run(["mvn", *options], cwd=HERE / "kafka", check=True, timeout=FETCH_SECONDS_MAX)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_seconds_of(pid: int) -> float:
    """User and system time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port

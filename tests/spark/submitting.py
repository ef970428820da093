"""Runs of ``ottla pipeline submit`` on a standalone cluster, whose executors a test kills; and what their output must be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.foreign_clients.broker_process import BrokerProcess
from tests.spark.cluster_pipeline import BROKER, COPY, HELD, SOURCE, TOTALS
from tests.spark.kills import PARTITION_COUNT, check_totals, content, fill, read
from tests.spark.standalone import StandaloneCluster
from tests.waiting import PAUSE_SECONDS

from ottla.sync import Admin, NewTopic

FILE = Path(__file__).with_name("cluster_pipeline.py")
ROW_COUNT = 200


class Submitting:
    """A broker with its topics, a cluster, and the directory by which tasks are held."""

    def __init__(self, directory: Path, broker: BrokerProcess, cluster: StandaloneCluster) -> None:
        self.directory = directory
        self.broker = broker
        self.cluster = cluster
        self.held = directory / "held"
        self.archive: Path | None = None  # that of the first run
        self._filled = 0
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, *conf: str, meanwhile: Callable[[], None] = lambda: None) -> str:
        """It has read all that is there; what it has said. ``meanwhile`` is called while it runs."""
        fill(self.broker.bootstrap, self._filled, ROW_COUNT)
        self._filled += ROW_COUNT
        more = (
            ["--only", "ottla", "--python", os.path.realpath(sys.executable)] if self.archive is None else ["--archive", str(self.archive)]
        )
        for pair in conf:
            more += ["--conf", pair]
        arguments = ["pipeline", "submit", str(FILE), "--master", self.cluster.master, "--checkpoints", str(self.directory / "checkpoints")]
        arguments += ["--until-caught-up", "--data", str(self.directory / "driver"), "-B", self.broker.bootstrap, *self.cluster.conf, *more]
        environment = os.environ | {HELD: str(self.held), BROKER: self.broker.bootstrap}
        with (self.directory / "said").open("wb") as file:
            self._process = subprocess.Popen([sys.executable, "-m", "ottla", *arguments], stdout=file, stderr=file, env=environment)
            try:
                meanwhile()
                code = self._process.wait()
            finally:
                self._process.kill()
                self._process.wait()
        assert code == 0, self.said[-4000:]
        self.archive = self.directory / "driver" / "environment.tar.gz"
        return self.said

    @property
    def said(self) -> str:
        """What the last run has said."""
        return (self.directory / "said").read_text(errors="replace")

    def hold(self, stage: str, number: int) -> None:
        """One task of the stage is held when it comes by."""
        (self.held / f"{stage}-{number}").touch()

    def release(self) -> None:
        """No task is held any more, and the same names can be used again."""
        for mark in self.held.iterdir():
            mark.unlink()

    def kill_when_held(self, stage: str, number: int) -> None:
        """All executors are killed, when the task is held in one of them."""
        while not list(self.held.glob(f"{stage}-{number}.*")):
            assert self._process is not None, "it runs"
            assert self._process.poll() is None, f"it has ended, and no task was held:\n{self.said}"
            time.sleep(PAUSE_SECONDS)
        killed = self.cluster.executors()
        assert killed, "one of them has the task"
        for pid in killed:
            self.cluster.kill_executor(pid)

    def check(self) -> None:
        """Every row is in the copy once, as it was; every total once for each batch that changed it."""
        source, copied = read(self.broker.bootstrap, SOURCE), read(self.broker.bootstrap, COPY)
        assert len(source) == self._filled
        assert Counter(map(content, copied)) == Counter(map(content, source))
        check_totals(self.broker.bootstrap, self.directory / "checkpoints" / "cluster_pipeline-totals")


@contextmanager
def submitting(directory: Path, *, worker_cores: int = 1) -> Iterator[Submitting]:
    with BrokerProcess(directory) as broker, StandaloneCluster(directory, worker_cores=worker_cores) as cluster:
        with Admin(broker.bootstrap) as admin:
            topics = [NewTopic(name, PARTITION_COUNT, 1, {"retention.ms": "-1"}) for name in (SOURCE, COPY, TOTALS)]
            assert set(admin.create_topics(topics).values()) == {None}
        found = Submitting(directory, broker, cluster)
        found.held.mkdir()
        yield found

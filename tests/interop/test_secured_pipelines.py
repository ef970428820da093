"""``ottla pipeline`` and ``ottla sql`` as programs, over SASL_SSL; each starts a JVM of its own."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.test_security import PASSWORD, Guarded

PIPELINE = """
from ottla.spark import pipeline, read_topic, to_topic


@pipeline
def copies(spark):
    return to_topic(read_topic(spark, "orders", "id int"), "copies")
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    with made.broker:
        made.create()
        yield made


def test_a_pipeline_and_a_query_connect_by_the_file_of_the_client(guarded: Guarded, tmp_path: Path) -> None:
    file, data = tmp_path / "copy.py", tmp_path / "checkpoints"
    file.write_text(PIPELINE)

    def ottla(*arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "ottla", *arguments, "-B", guarded.broker.bootstrap, "--command-config", str(guarded.file)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == code, done.stdout[-4000:]
        return done.stdout

    said = ottla("pipeline", "run", str(file), "--until-caught-up", "--master", "local[2]", "--data", str(data))
    assert "copy-copies  has caught up" in said
    assert guarded.values("copies", 3) == [b'{"id":0}', b'{"id":1}', b'{"id":2}']
    assert "copy-copies" in ottla("pipeline", "list")
    assert "files written from topic" in ottla("pipeline", "restore", "copy", "--yes", "--data", str(data))
    said += ottla("sql", "select sum(id) as total from orders", "--schema", "orders=id int", "--master", "local[2]", "--format", "json")
    assert '"total": 3' in said or '"total":3' in said
    kept = "".join(path.read_text(errors="replace") for path in data.rglob("*") if path.is_file())
    assert "has caught up" in said
    assert PASSWORD not in said + kept

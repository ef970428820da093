"""``ottla pipeline`` as a program, on the example of a user's file."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from tests.spark.conftest import Topics
from tests.spark.test_driver_sink import values_of

from ottla.sync import Admin

FILE = Path(__file__).parents[2] / "examples" / "orders.py"


def ottla(*arguments: str, expected: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == expected, done.stdout[-4000:]
    return done.stdout


@pytest.mark.spark
@pytest.mark.slow
def test_a_file_is_run_shown_and_reset(topics: Topics, tmp_path: Path):
    source, target, bad = (topics.create(2, name) for name in ("orders", "totals", "orders-bad"))
    topics.create(name="orders-eu-totals-checkpoint")  # of an application whose name begins like this one's
    data = tmp_path / "data"
    values = [b'{"customer":"ada","amount":5}', b"?", b'{"customer":"ada","amount":2}', b'{"customer":"bob","amount":1}']
    topics.produce(source, [(None, value) for value in values], partition=0)
    where = ("--data", str(data), "-B", topics.bootstrap)
    said = ottla(
        "pipeline", "run", str(FILE), "--until-caught-up", "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=3", *where
    )
    assert len(list((data / "orders-totals" / "state" / "0").glob("[0-9]*"))) == 3
    first, second, third, *_ = said.splitlines()
    assert first == f"starting Spark (local[2]) for the pipelines of orders.py; Spark's log is {data}/spark.log"
    assert second == f"orders-totals  reads orders, writes totals; checkpoint in {data}/orders-totals and topic orders-totals-checkpoint"
    assert third.startswith("orders-totals  #0  in ")
    assert "orders-totals  has caught up" in said
    assert values_of(topics, target) == [b'{"customer":"ada","total":7.0}', b'{"customer":"bob","total":1.0}']
    assert values_of(topics, bad) == [b"?"]

    topics.produce(source, [(None, values[0])], partition=0)
    [shown] = json.loads(ottla("pipeline", "status", "orders", "-B", topics.bootstrap, "--format", "json"))["items"]
    assert [shown[name] for name in ("query", "delivery", "batch", "lag", "writes_now")] == ["orders-totals", "exactly_once", 0, 1, False]
    assert json.loads((data / "orders-totals" / "metadata").read_text())["id"] == shown["spark_id"]

    [listed] = json.loads(ottla("pipeline", "list", "-B", topics.bootstrap, "--format", "json"))["items"]
    assert listed.pop("delivery") == "exactly_once"
    assert listed.pop("last_batch") == shown["last_batch"]
    assert abs(datetime.fromisoformat(shown["last_batch"]).timestamp() - time.time()) < 600
    expected = {"query": "orders-totals", "batch": 0, "lag": 1, "late_rows": 0, "writes_now": False, "checkpoint_in_topic": True}
    assert listed == expected

    lost = {path: (data / "orders-totals" / path).read_bytes() for path in ("metadata", "offsets/0", "state/0/_metadata/metadata")}
    shutil.rmtree(data)
    assert "files written from topic orders-totals-checkpoint" in ottla("pipeline", "restore", "orders", *where)
    assert {path: (data / "orders-totals" / path).read_bytes() for path in lost} == lost
    assert "would replace" in ottla("pipeline", "restore", "orders", *where, expected=1)
    (data / "orders-totals" / "offsets" / "0").unlink()
    ottla("pipeline", "restore", "orders", "--yes", *where)
    assert (data / "orders-totals" / "offsets" / "0").read_bytes() == lost["offsets/0"]
    assert "there is no topic with a checkpoint" in ottla("pipeline", "restore", "others", *where, expected=1)

    assert f"topic orders-totals-checkpoint, {data}" in ottla("pipeline", "reset", "orders", *where, expected=1)
    assert data.exists()
    assert "orders-totals: offsets deleted" in ottla("pipeline", "reset", "orders", "--yes", *where)
    assert not data.exists()
    with Admin(topics.bootstrap) as admin:
        assert [name for name in admin.list_topics() if name.endswith("-checkpoint")] == ["orders-eu-totals-checkpoint"]
    assert "no query of an application orders has committed offsets" in ottla(
        "pipeline", "status", "orders", "-B", topics.bootstrap, expected=1
    )


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "stop",
    [
        lambda pid: os.killpg(pid, signal.SIGINT),
        lambda pid: os.kill(pid, signal.SIGTERM),
        lambda pid: os.killpg(pid, signal.SIGTERM),
        lambda pid: os.killpg(pid, signal.SIGHUP),
    ],
    ids=["terminal", "systemd", "timeout", "closed terminal"],
)
def test_a_query_without_records_says_that_it_waits_and_is_stopped(
    own_broker: Callable[..., Topics], tmp_path: Path, stop: Callable[[int], None]
):
    """A terminal sends Ctrl-C to the whole group, systemd with KillMode=mixed SIGTERM to the driver alone.

    ``timeout``, and systemd with its default KillMode, send SIGTERM to the JVM, too. A terminal that closes sends SIGHUP.
    """
    topics = own_broker()
    for name in ("orders", "totals", "orders-bad"):
        topics.create(name=name)
    command = ["pipeline", "run", str(FILE), "--master", "local[2]", "--data", str(tmp_path / "data"), "-B", topics.bootstrap]
    with subprocess.Popen([sys.executable, "-m", "ottla", *command], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            *_, last = (process.stdout.readline() for _ in range(3))
            assert last == "orders-totals  waits for records in orders\n", "Spark's first batches, of no records, are not said"
            stop(process.pid)
            assert (process.stdout.read(), process.wait()) == ("", 130), "while it waits it has no more to say"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("name", "content", "code", "said"),
    [
        ("mine.py", "x = 1\ndef f(:\n", 1, r"Error: \S+mine\.py:2: SyntaxError: invalid syntax"),
        ("mine.txt", "x = 1\n", 2, r"\S+mine\.txt is not a Python file"),
    ],
)
def test_a_file_that_python_cannot_read_is_refused_before_spark_starts(
    topics: Topics, tmp_path: Path, name: str, content: str, code: int, said: str
):
    (tmp_path / name).write_text(content)
    found = ottla("pipeline", "run", str(tmp_path / name), "--data", str(tmp_path / "data"), "-B", topics.bootstrap, expected=code)
    assert re.search(said, found)
    assert len(found.splitlines()) == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.spark
@pytest.mark.slow
def test_a_jvm_that_does_not_start_is_one_line_with_the_reason(topics: Topics, tmp_path: Path):
    where = ["--data", str(tmp_path / "data"), "-B", topics.bootstrap]
    said = ottla("pipeline", "run", str(FILE), "--conf", "spark.driver.memory=99999g", *where, expected=1)
    _, error = said.splitlines()
    assert error.startswith("Error: Spark's JVM does not start: Error occurred during initialization of VM; Could not reserve enough space")
    assert "spark.driver.memory" in error


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)  # four JVMs, one after the other
def test_a_change_of_the_state_is_refused_and_the_file_as_it_was_goes_on(own_broker: Callable[..., Topics], tmp_path: Path):
    """As docs/production.md has it. The command ends with 1 also where the JVM dies, so that a service manager starts it again."""
    topics = own_broker()
    for name in ("orders", "totals", "orders-bad"):
        topics.create(name=name)
    changed = tmp_path / "changed.py"
    changed.write_text(
        FILE.read_text().replace('F.sum("amount").alias("total")', 'F.sum("amount").alias("total"), F.count("*").alias("n")')
    )
    assert changed.read_text() != FILE.read_text()
    how = ["--app", "orders", "--master", "local[1]", "--data", str(tmp_path / "data"), "-B", topics.bootstrap]
    topics.produce("orders", [(None, b'{"customer":"ada","amount":5}')])
    ottla("pipeline", "run", str(FILE), "--until-caught-up", *how)
    topics.produce("orders", [(None, b'{"customer":"ada","amount":2}')])
    said = ottla("pipeline", "run", str(changed), "--until-caught-up", *how, expected=3)
    assert "stopped, and is not started again: the query keeps aggregate by customer (count(1)) by now, and its checkpoint has" in said
    assert "Run the file as it was, or this one beside it as another application, with --app." in said
    assert f"ottla pipeline reset orders --yes --data {tmp_path / 'data'}" in said
    command = [sys.executable, "-m", "ottla", "pipeline", "run", str(FILE), *how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            assert any("orders-totals  #1  in " in line for line in process.stdout)
            [jvm] = [child for child in children_of(process.pid) if "java" in Path(f"/proc/{child}/comm").read_text()]
            os.kill(jvm, signal.SIGKILL)
            assert "Spark's JVM has ended" in process.stdout.read()
            assert process.wait() == 1
        finally:
            process.kill()
    assert values_of(topics, "totals") == [b'{"customer":"ada","total":5.0}', b'{"customer":"ada","total":7.0}']


def children_of(pid: int) -> list[int]:
    """The processes that it has started."""
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def test_a_directory_of_something_else_is_neither_used_nor_deleted(topics: Topics, tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("precious")
    for arguments in (("reset", "app", "--yes"), ("run", __file__)):
        said = ottla("pipeline", *arguments, "--data", str(tmp_path), "-B", topics.bootstrap, expected=1)
        assert "has files that are not of a pipeline" in said
    assert (tmp_path / "thesis.txt").read_text() == "precious"

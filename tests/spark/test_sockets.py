"""Where the Unix sockets of a session are, and where it has none."""

import contextlib
import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.test_executors import CLUSTERS

import ottla
from ottla.spark import sockets
from ottla.spark.sockets import DIRECTORY, ENABLED, PATH_BYTES_MAX, keep_directory, socket_settings

LONG = "d" * 100
OF_A_LONG_DIRECTORY = """
from ottla.spark import session
spark = session("sockets", master="local[1]")
print("ANSWER", spark.range(3).mapInArrow(lambda batches: batches, "id long").count())
"""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has no directory yet."""
    monkeypatch.setattr(sockets, "_MADE", {})


def temporary(monkeypatch: pytest.MonkeyPatch, place: Path) -> Path:
    """Makes the place the first one for temporary files."""
    place.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.mark.spark
def test_a_session_starts_where_the_jvms_temporary_directory_is_too_long_for_sockets(tmp_path: Path):
    """OSError: AF_UNIX path too long; java.io.tmpdir is where Spark makes them by itself."""
    place = tmp_path / LONG
    place.mkdir()
    environment = os.environ | {"JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={place}", "PYTHONPATH": str(Path(ottla.__file__).parents[1])}
    command = [sys.executable, "-c", OF_A_LONG_DIRECTORY]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert "ANSWER 3" in ended.stdout, ended.stderr


def test_the_directory_is_the_users_alone_and_one_for_all_sessions(fresh, monkeypatch: pytest.MonkeyPatch):
    """Who can write to a socket of Spark's daemon has it run anything: over a Unix socket it does not ask for the secret."""
    before = os.umask(0)
    try:
        settings = socket_settings("local[2]", {})
    finally:
        os.umask(before)
    place = Path(settings[DIRECTORY])
    assert settings[ENABLED] == "true"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert len(os.fsencode(place)) <= PATH_BYTES_MAX
    assert list(place.iterdir()) == []
    assert socket_settings("local[2]", {}) == settings
    place.rmdir()  # as something that cleans temporary directories does
    assert Path(socket_settings("local[2]", {})[DIRECTORY]).is_dir()


def test_a_long_temporary_directory_is_not_used_and_without_any_other_there_is_tcp(fresh, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    place = temporary(monkeypatch, tmp_path / LONG)
    assert place not in Path(socket_settings("local[*]", {})[DIRECTORY]).parents
    monkeypatch.setattr(sockets, "_MADE", {})
    monkeypatch.setattr(sockets, "_PLACES", (str(tmp_path / "absent"),))
    assert socket_settings("local[*]", {}) == {ENABLED: "false"}
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("given", [{ENABLED: "false"}, {DIRECTORY: "/run/spark"}])
def test_what_was_given_stays(given: dict[str, str]):
    assert socket_settings("local[2]", given) == ({} if ENABLED in given else {ENABLED: "true"})


@pytest.mark.parametrize("master", CLUSTERS)
def test_executors_elsewhere_have_no_directory_of_this_machine(master: str):
    """A container of YARN has its temporary directory below some 150 characters."""
    assert socket_settings(master, {}) == {}


def test_a_directory_that_was_cleaned_away_is_made_again(fresh):
    """A session had no way to its Python processes from then on: each batch failed, and each restart of its query."""
    place = Path(socket_settings("local[1]", {})[DIRECTORY])
    for _ in range(2):
        with _descriptor(place) as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which systemd-tmpfiles asks for before it removes one
        place.rmdir()
        keep_directory()
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    keep_directory()
    place.rmdir()
    place.write_text("of somebody else")
    with pytest.raises(PermissionError, match="is not this user's directory any more"):
        keep_directory()
    place.unlink()


@contextlib.contextmanager
def _descriptor(directory: Path) -> Iterator[int]:
    found = os.open(directory, os.O_RDONLY)
    try:
        yield found
    finally:
        os.close(found)

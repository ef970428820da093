"""What PySpark's own threads say of a JVM that has ended: in the log, and nothing of it on stderr."""

import io
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from ottla.spark.noise import keep_in


@pytest.fixture
def log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that has it; everything is as before afterwards."""
    logger = logging.getLogger("py4j")
    handlers, propagates, hook = list(logger.handlers), logger.propagate, threading.excepthook
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(_accumulatorServer=SimpleNamespace()))
    keep_in(tmp_path / "spark.log")
    yield tmp_path / "spark.log"
    logger.handlers, logger.propagate, threading.excepthook = handlers, propagates, hook


def raised_in(name: str) -> Callable[[], object]:
    """Returns a function of a module of this name, which raises."""
    space: dict[str, Any] = {"__name__": name}
    exec("def fail():\n    raise EOFError('the JVM has ended')\n", space)
    found: Callable[[], object] = space["fail"]
    return found


def ended(target: Callable[[], object]) -> None:
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()


def test_what_py4j_logs_is_in_the_file_alone(log_file: Path, monkeypatch: pytest.MonkeyPatch):
    """Some 110 lines of tracebacks came before the one line that says what has happened."""
    shown = io.StringIO()
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(shown)])  # as the first line of a program's own leaves it
    try:
        raised_in("ottla.spark.x")()
    except EOFError:
        logging.getLogger("py4j.clientserver").exception("There was an exception while executing the Python Proxy on the Python Side.")
    logging.getLogger("orders").error("of a user's own")
    assert shown.getvalue() == "of a user's own\n"
    text = log_file.read_text()
    assert "driver ERROR py4j.clientserver: There was an exception while executing the Python Proxy" in text
    assert "EOFError: the JVM has ended" in text


def test_what_ends_a_thread_of_theirs_is_in_the_file_alone(log_file: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[Any] = []
    monkeypatch.setattr("threading.excepthook", lambda arguments: seen.append(arguments.exc_value))
    keep_in(log_file)
    for name in ("py4j.clientserver", "pyspark.accumulators"):
        ended(raised_in(name))
    assert (seen, log_file.read_text().count("EOFError: the JVM has ended")) == ([], 2)
    ended(raised_in("orders"))
    assert [str(error) for error in seen] == ["the JVM has ended"], "a thread of a user's own"


def test_what_the_server_of_accumulators_prints_is_in_the_file(log_file: Path):
    context: Any = SparkContext._active_spark_context
    try:
        raised_in("pyspark.accumulators")()
    except EOFError:
        context._accumulatorServer.handle_error(None, ("127.0.0.1", 1))
    assert "EOFError: the JVM has ended" in log_file.read_text()


def test_a_log_without_room_is_no_noise_either(log_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Where the disk was full each failed batch printed some 300 lines: the error, and that it could not be logged."""
    keep_in(Path("/dev/full"))
    logging.getLogger("py4j.clientserver").error("There was an exception")
    ended(raised_in("py4j.clientserver"))
    assert capsys.readouterr() == ("", "")

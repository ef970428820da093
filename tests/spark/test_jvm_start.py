"""How a command starts Spark's JVM."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import java_gateway
from pyspark.errors import PySparkRuntimeError

from ottla.runtime.java import JavaMissingError
from ottla.spark.defaults import LOGGING, with_logging
from ottla.spark.jvm_start import SparkStartError, check_options, explained, last_lines, owned_by_driver, reason_of

STOPS_MASK = 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGHUP - 1)


def start(log: Path, said: str, error: Exception) -> None:
    with owned_by_driver(log):
        os.write(2, said.encode())
        raise error


def test_a_jvm_that_does_not_start_is_an_error_with_what_it_said_this_time(tmp_path: Path):
    log = tmp_path / "spark.log"
    log.write_text("of an earlier run\n")
    said = "WARNING: Using incubator modules\nError occurred during initialization of VM\nCould not reserve enough space\n"
    with pytest.raises(SparkStartError) as stopped:
        start(log, said, PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}))
    assert isinstance(stopped.value, JavaMissingError), "commands have one way to say that"
    text = str(stopped.value)
    assert text.startswith(
        "Spark's JVM does not start: Error occurred during initialization of VM; Could not reserve enough space. Its settings are "
    )
    assert text.endswith(f"; {log} has what it said")


def test_settings_that_spark_refuses_are_an_error_of_one_line_and_the_log_has_all_of_it(tmp_path: Path):
    log = tmp_path / "spark.log"
    refusal = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    error = refusal("An error occurred while calling None.x.JavaSparkContext.\n: java.net.BindException: bind failed\n\tat x\n")
    with pytest.raises(SparkStartError, match=r"^Spark does not start: java.net.BindException: bind failed; .* has all of it$"):
        start(log, "", error)
    assert "Py4JJavaError" in log.read_text()
    with pytest.raises(KeyError):
        start(log, "", KeyError("what has nothing to do with Spark"))


def test_the_jvm_ignores_sigterm_and_sighup_and_its_driver_does_not(tmp_path: Path):
    show = [sys.executable, "-c", "print([line for line in open('/proc/self/status') if line.startswith('SigIgn')][0])"]
    module: Any = java_gateway
    before = module.Popen
    with owned_by_driver(tmp_path / "spark.log"):
        with module.Popen(show, stdout=subprocess.PIPE, preexec_fn=lambda: None) as process:
            said, _ = process.communicate()
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    assert int(said.split()[1], 16) & STOPS_MASK == STOPS_MASK
    assert module.Popen is before


class Py4JNetworkError(Exception):
    """Of this name py4j has one, too."""


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("Answer from Java side is empty")])
def test_a_jvm_that_ends_while_spark_starts_is_named(tmp_path: Path, error: Exception):
    """It was "[Errno 111] Connection refused"."""
    with pytest.raises(SparkStartError, match=r"^Spark's JVM has ended while Spark started.*; .*spark\.log may say why$"):
        start(tmp_path / "spark.log", "", error)


def test_a_reason_is_what_was_said_last_and_javas_of_a_call():
    assert last_lines("Picked up JAVA_TOOL_OPTIONS: -X\n\n") == "it said nothing"
    assert last_lines("a\nb\nc\nd.\n\tat e\n") == "b; c; d"
    assert reason_of("[SOME] text.\nmore") == "[SOME] text."


def test_without_a_log_the_error_says_where_the_reason_is():
    error = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    with pytest.raises(PySparkRuntimeError) as raised, explained():
        raise error
    [note] = raised.value.__notes__
    assert note.startswith("Its reason is on stderr, above; session(..., log_file=FILE) has it in the error instead. Its settings are ")
    with pytest.raises(KeyError) as other, explained():
        raise KeyError
    assert not hasattr(other.value, "__notes__")


def test_options_of_the_jvm_leave_what_it_logs_as_it_is():
    """With an option of the user's own Spark had its own logging, with its warnings on stderr."""
    assert with_logging("-Dx=y").split()[1:] == ["-Dx=y"]
    assert with_logging("-Dx=y").startswith(LOGGING)
    assert with_logging(f"{LOGGING}mine -Dx=y") == f"{LOGGING}mine -Dx=y"


def test_an_option_that_the_jvm_does_not_know_is_refused(tmp_path: Path):
    """Spark starts its JVM with -XX:+IgnoreUnrecognizedVMOptions: it was without effect, and nothing said so."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        '#!/bin/sh\necho "$@" >> "$0.calls"\n[ "$1" = -XX:+UseFooGC ] || exit 0\n'
        "echo \"Unrecognized VM option 'UseFooGC'\nDid you mean '(+/-)UseG1GC'?\" >&2\n"
        'echo "Error: Could not create the Java Virtual Machine." >&2\nexit 1\n'
    )
    java.chmod(0o755)
    check_options(tmp_path, "-Dx=y -Xss512k")
    assert not Path(f"{java}.calls").exists(), "a JVM costs a tenth of a second"
    check_options(tmp_path, "-Dx=y -XX:+UseG1GC")
    said = r"^spark.driver.extraJavaOptions: Unrecognized VM option 'UseFooGC'; Did you mean .*UseG1GC'\?$"
    with pytest.raises(SparkStartError, match=said):
        check_options(tmp_path, "-XX:+UseFooGC")


def test_a_start_that_is_broken_off_leaves_no_jvm(tmp_path: Path):
    """It ignored SIGINT and SIGTERM, and stayed for ever where PySpark had removed the directory for its answer."""
    begun: list[Any] = []

    def break_off() -> None:
        module: Any = java_gateway
        with owned_by_driver(tmp_path / "spark.log"):
            begun.append(module.Popen(["sleep", "600"], preexec_fn=lambda: None))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert begun[0].poll() == -signal.SIGKILL


def test_a_ctrl_c_while_the_process_of_the_jvm_is_made_leaves_no_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The process was not known yet, and `ottla sql` could not end."""
    begun: list[Any] = []
    popen = subprocess.Popen

    def pressed(*arguments: Any, **rest: Any) -> Any:
        begun.append(popen(*arguments, **rest))
        signal.raise_signal(signal.SIGINT)
        return begun[0]

    monkeypatch.setattr(java_gateway, "Popen", pressed)
    module: Any = java_gateway
    try:
        with pytest.raises(KeyboardInterrupt), owned_by_driver(tmp_path / "spark.log"):
            module.Popen(["sleep", "600"], preexec_fn=lambda: None)
        assert begun[0].poll() == -signal.SIGKILL
    finally:
        begun[0].kill()
        begun[0].wait()

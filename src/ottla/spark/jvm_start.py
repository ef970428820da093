"""How a command starts Spark's JVM: its stderr is in a file, it ignores the signals of others, and says why it does not start.

PySpark's JVM ignores SIGINT, so that a Ctrl-C of a terminal reaches the driver alone. ``timeout`` and systemd's default send SIGTERM to the
JVM, too, and a terminal that closes sends SIGHUP: it would end under the driver while that stops its queries. A JVM that was started with
these ignored leaves them so; it ends with its standard input, and so with its driver. PySpark's daemon of workers sets SIGTERM itself. A
start that a Ctrl-C breaks off ends its JVM: that one fails where PySpark has removed the directory for its answer, before it reads its
standard input, and would stay for ever.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ottla.runtime.java import PROBE_TIMEOUT_S, JavaMissingError
from ottla.runtime.stops import stop_signals

EXITED: Final = "JAVA_GATEWAY_EXITED"
JVM_OPTION: Final = "-XX:+DisplayVMOutputToStderr"
"""Without it a JVM that has no room for its heap says so on stdout, where the file does not have it."""
REASON_LINES_MAX: Final = 3
WAY_OUT: Final = (
    "Its settings are spark.driver.memory and spark.driver.extraJavaOptions, its Java is that of JAVA_HOME, its files are in TMPDIR and "
    "spark.local.dir"
)
_NOISE: Final = re.compile(r"WARNING: |Using Spark's default log4j|Setting default log level|To adjust logging level|\s+at |Picked up ")
_OF_ALL: Final = re.compile(r"Error: (Could not create the Java Virtual Machine|A fatal exception has occurred)|Picked up ")
"""What any JVM says at its end that refuses an option."""


class SparkStartError(JavaMissingError):
    """Spark does not start here: its JVM has ended before it could be asked for anything, or has refused its settings."""


@contextlib.contextmanager
def owned_by_driver(log_file: Path) -> Iterator[None]:
    """Lets the JVM that is started within add what it says to the file, and ignore SIGTERM and SIGHUP.

    SparkStartError where Spark does not start.
    """
    size = log_file.stat().st_size if log_file.exists() else 0
    try:
        with _stderr_to(log_file), _ignoring_stops():
            yield
    except Exception as error:
        if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
            ended = "Spark's JVM has ended while Spark started, as when it is killed for its memory"
            raise SparkStartError(f"{ended}; {log_file} may say why") from None
        if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark"):
            raise
        if EXITED in str(error):
            with log_file.open("rb") as log:
                log.seek(size)
                said = log.read().decode(errors="replace")
            raise SparkStartError(f"Spark's JVM does not start: {last_lines(said)}. {WAY_OUT}; {log_file} has what it said") from None
        with log_file.open("a") as text:
            traceback.print_exc(file=text)
        raise SparkStartError(f"Spark does not start: {reason_of(str(error)).rstrip('.')}; {log_file} has all of it") from None


def last_lines(said: str, noise: re.Pattern[str] = _NOISE) -> str:
    """Returns why a JVM has ended, of what it said: its last lines that say something."""
    lines = [line.strip().rstrip(".") for line in said.splitlines() if line.strip() and not noise.match(line)]
    return "; ".join(lines[-REASON_LINES_MAX:]) or "it said nothing"


def reason_of(text: str) -> str:
    """Returns the line of an error's text that has its reason: of one of py4j's that of Java's exception, else the first one."""
    lines = text.strip().splitlines() or [""]
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Lets the error of a JVM that does not start, and has said why on this process's stderr, say so, and what can be changed."""
    try:
        yield
    except Exception as error:
        if EXITED in str(error):
            error.add_note(f"Its reason is on stderr, above; session(..., log_file=FILE) has it in the error instead. {WAY_OUT}")
        raise


def check_options(java_home: Path, text: str) -> None:
    """Checks the options -XX of the text. SparkStartError for one that this JVM refuses: Spark has it ignore unknown ones."""
    given = [option for option in shlex.split(text) if option.startswith("-XX:")]
    if not given:
        return
    command = [str(java_home / "bin" / "java"), *given, JVM_OPTION, "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_S, check=False)
    if answer.returncode != 0:
        raise SparkStartError(f"spark.driver.extraJavaOptions: {last_lines(answer.stderr, _OF_ALL)}")


@contextlib.contextmanager
def _stderr_to(log_file: Path) -> Iterator[None]:
    """Gives processes that are started meanwhile the file as their stderr."""
    sys.stderr.flush()
    own = os.dup(2)
    with log_file.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(own, 2)
        os.close(own)


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Lets a signal that ends the process come after the block; on other threads than the main one, which none breaks off, does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    earlier = {number: signal.signal(number, lambda number, _: heard.append(number)) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
    if heard:
        signal.raise_signal(heard[0])


@contextlib.contextmanager
def _ignoring_stops() -> Iterator[None]:
    """Lets the JVM that PySpark starts meanwhile ignore SIGTERM and SIGHUP; this process does not.

    It is ended where its start does not end well.
    """
    from pyspark import SparkContext, java_gateway

    module: Any = java_gateway
    popen = module.Popen
    begun: list[subprocess.Popen[bytes]] = []

    def started(command: list[str], *, preexec_fn: Callable[[], object], **rest: Any) -> Any:
        def prepare() -> None:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            preexec_fn()

        with _signals_wait():  # a KeyboardInterrupt within Popen would leave a process that no code knows
            process: subprocess.Popen[bytes] = popen(command, preexec_fn=prepare, **rest)
            begun.append(process)
        return process

    module.Popen = started
    try:
        yield
    except BaseException:
        gateway: Any = SparkContext._gateway
        for process in begun:
            if process is not getattr(gateway, "proc", None):  # which ends with its standard input
                process.kill()
                process.wait()
        raise
    finally:
        module.Popen = popen

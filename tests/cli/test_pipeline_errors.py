"""What the code of a pipeline's file raises: one line for the user, the traceback for the log. Without Spark."""

from __future__ import annotations

import importlib.util
import logging
import os
import shlex
import signal
import socket
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException

from ottla.cli.main import cli
from ottla.cli.pipeline_runs import errors_of
from ottla.errors import ErrorCode, KafkaError


def run(file: Path, code: str, log_file: Path | None = None) -> None:
    """Runs the file as a pipeline's file is run."""
    file.write_text(code)
    found = importlib.util.spec_from_file_location("orders", file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    with errors_of(file, log_file):
        found.loader.exec_module(module)
        module.totals()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def totals():\n    raise ValueError('boom')\n", ":2: ValueError: boom"),
        ("def totals():\n    wrong()\n\ndef wrong():\n    raise ValueError('[UNKNOWN] no such\\ncolumn')\n", ":5: [UNKNOWN] no such"),
        ("import nosuch\n", ":1: ModuleNotFoundError: No module named 'nosuch'"),
        ("def totals(:\n", ":1: SyntaxError: invalid syntax (orders.py, line 1)"),
    ],
)
def test_an_error_of_the_files_own_code_names_its_line(tmp_path: Path, code: str, said: str) -> None:
    file, log_file = tmp_path / "orders.py", tmp_path / "spark.log"
    with pytest.raises(click.ClickException) as found:
        run(file, code, log_file)
    assert found.value.message == f"{file}{said}"
    assert "Traceback (most recent call last)" in log_file.read_text()


def test_errors_of_ottla_are_left_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="away"), errors_of(tmp_path / "orders.py"):
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "away")
    with pytest.raises(ZeroDivisionError), errors_of(tmp_path / "orders.py"):
        print(1 / 0)


def test_what_ottla_refuses_of_the_file_is_a_wrong_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, errors_of(tmp_path / "orders.py"):
        raise KafkaError(ErrorCode.INVALID_CONFIG, "orders.py:5: startingOffsets=earlyest is wrong; did you mean earliest?")
    said = "ottla: INVALID_CONFIG: orders.py:5: startingOffsets=earlyest is wrong; did you mean earliest?\n"
    assert (ended.value.code, capsys.readouterr().err) == (2, said)


def test_what_spark_refuses_at_a_start_is_one_line_with_its_way_out(tmp_path: Path) -> None:
    file, log_file = tmp_path / "orders.py", tmp_path / "spark.log"
    error = AnalysisException("[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append.\nmore")
    error.add_note("[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append.")  # said already
    error.add_note("the way out")
    with pytest.raises(click.ClickException) as found, errors_of(file, log_file):
        raise error
    text = "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append."
    assert found.value.message == f"{file}: Spark refuses to start a query: {text}; the way out"
    assert "Traceback (most recent call last)" in log_file.read_text()


def test_an_error_of_java_that_pyspark_has_no_class_for_is_one_line_too(tmp_path: Path) -> None:
    """As where a checkpoint's directory cannot be written."""
    refusal = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    with pytest.raises(click.ClickException) as found, errors_of(tmp_path / "orders.py", tmp_path / "spark.log"):
        raise refusal("An error occurred while calling o1.start.\n: java.io.FileNotFoundException: /c (Read-only file system)\n\tat x\n")
    said = "Spark refuses to start a query: java.io.FileNotFoundException: /c (Read-only file system)"
    assert found.value.message == f"{tmp_path}/orders.py: {said}"


def test_a_reason_that_spark_has_in_the_error_below_is_shown(tmp_path: Path) -> None:
    """As of a setting that is no number: its error ended with the name of a class of Spark's."""
    error: Any = AnalysisException("Error while instantiating 'SessionStateBuilder':\n\nJVM stacktrace:\n")
    error._cause = AnalysisException("[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'abc' is invalid.\nmore")
    with pytest.raises(click.ClickException) as found, errors_of(tmp_path / "orders.py", tmp_path / "spark.log"):
        raise error
    said = "Spark refuses to start a query: [INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'abc' is invalid."
    assert found.value.message == f"{tmp_path}/orders.py: {said}"


def test_a_jvm_that_has_ended_is_named(tmp_path: Path) -> None:
    file, log_file = tmp_path / "orders.py", tmp_path / "spark.log"
    with pytest.raises(click.ClickException, match="Spark's JVM has ended") as found, errors_of(file, log_file):
        raise ConnectionRefusedError(111, "Connection refused")
    assert str(log_file) in found.value.message
    with pytest.raises(click.ClickException, match=r"orders.py:2: ConnectionRefusedError: away"):
        run(file, "def totals():\n    raise ConnectionRefusedError('away')\n", log_file)


def test_a_call_that_was_under_way_when_its_jvm_ended_is_no_traceback(tmp_path: Path) -> None:
    """Py4J says then that there was an error, and not which; where it was Java's, it has that."""
    file, log_file = tmp_path / "orders.py", tmp_path / "spark.log"
    failure = type("Py4JError", (Exception,), {"__module__": "py4j.protocol"})
    with pytest.raises(click.ClickException, match="Spark's JVM has ended"), errors_of(file, log_file):
        raise failure("An error occurred while calling o494.size")
    with pytest.raises(failure), errors_of(file, log_file):
        raise failure("An error occurred while calling o494.size. Trace:\njava.lang.IllegalStateException\n")


def test_a_jvm_that_has_ended_while_the_files_code_calls_it_is_named_and_not_the_code(tmp_path: Path) -> None:
    """It was ORDERS.PY:3: [Errno 111] Connection refused, as if the file called a service of its own that is away."""
    file, log_file = tmp_path / "orders.py", tmp_path / "spark.log"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    calls = "from py4j.clientserver import ClientServer, JavaParameters, PythonParameters\ndef totals():\n"
    calls += f"    ClientServer(JavaParameters(port={port}), PythonParameters(eager_load=False)).jvm.java.lang.System.nanoTime()\n"
    with pytest.raises(click.ClickException, match=r"^Spark's JVM has ended"):
        run(file, calls, log_file)
    with pytest.raises(click.ClickException, match=r"orders.py:2: FileNotFoundError: \[Errno 2\] No such file"):
        run(file, "def totals():\n    open('/there/is/none')\n", log_file)


@pytest.mark.parametrize("where", ["default", "given"])
@pytest.mark.parametrize(
    ("is_well", "cannot_continue", "is_to_be_reset", "code"),
    [(True, False, False, 0), (False, False, False, 1), (False, True, False, 3), (False, True, True, 3)],
)
def test_a_query_that_may_not_continue_has_an_exit_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, is_well: bool, cannot_continue: bool, is_to_be_reset: bool, code: int
) -> None:
    """A service manager starts the others again. The way to begin again is one command, with what this one was given."""

    class Ended:
        def __init__(self, *arguments: object, **options: object) -> None:
            self.cannot_continue = cannot_continue
            self.is_to_be_reset = self.can_be_restored = is_to_be_reset

        def run(self) -> bool:
            return is_well

    monkeypatch.setattr("ottla.spark.runner.Runner", Ended)
    monkeypatch.setattr("ottla.spark.defaults.session", lambda *arguments, **options: None)
    monkeypatch.setattr("ottla.spark.defaults.stop_session", lambda: None)
    monkeypatch.setattr("ottla.cli.pipeline_runs.check_brokers", lambda bootstrap: None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "orders.py").write_text("from ottla.spark import pipeline\n\n\n@pipeline\ndef totals(spark): ...\n")
    given = ["--data", str(tmp_path / "my data"), "-B", "broker:1"] if where == "given" else []
    result = CliRunner().invoke(cli, ["pipeline", "run", str(tmp_path / "orders.py"), *given])
    assert result.exit_code == code, result.output
    said = [
        f"{what}: {shlex.join(['ottla', 'pipeline', name, 'orders', '--yes', *given])}"
        for what, name in (("to go on from the checkpoints in topics", "restore"), ("to begin again, with repeated results", "reset"))
    ]
    assert result.output.splitlines()[1:] == (said if is_to_be_reset else [])
    forgetful = CliRunner().invoke(cli, ["pipeline", "reset", "orders", "-B", "127.0.0.1:1"])
    assert (f"orders ran last with --data '{tmp_path / 'my data'}'" in forgetful.output) == (where == "given")


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [(ErrorCode.SASL_AUTHENTICATION_FAILED, 3), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 3), (ErrorCode.REQUEST_TIMED_OUT, 1)],
)
def test_a_user_whom_brokers_refuse_is_not_to_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, exit_code: int
) -> None:
    def refuse(bootstrap: str) -> None:
        raise KafkaError(code, "why")

    monkeypatch.setattr("ottla.cli.pipeline_runs.check_brokers", refuse)
    (tmp_path / "orders.py").write_text("")
    result = CliRunner().invoke(cli, ["pipeline", "run", str(tmp_path / "orders.py"), "--data", str(tmp_path / "data")])
    assert (result.exit_code, f"{code.name}: why" in f"{result.output}{result.exception}") == (exit_code, True)


@pytest.mark.parametrize(
    ("code", "text", "advice"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic 'orders'", "-o read --topic orders"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic 'totals'", "-o write --topic totals"),
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "topic 'a-b-checkpoint'",
            "-o create -o read -o write -o describe-configs --topic a-b-checkpoint",
        ),
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "topic 'a-b-checkpoint': to see its configuration takes DESCRIBE_CONFIGS",
            "-o describe-configs --topic a-b-checkpoint",
        ),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "group 'a-b'", "-o read --group a-b"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional id 'a-b'", "-o write --transactional-id a-b"),
    ],
)
def test_a_refused_query_names_what_it_does_with_the_resource(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, text: str, advice: str
) -> None:
    said: list[str] = []

    class Refused:
        cannot_continue, is_to_be_reset, can_be_restored = True, False, False

        def __init__(self, *arguments: object, **options: Any) -> None:
            self._explain = options["explain"]

        def run(self) -> bool:
            said.append(self._explain(KafkaError(code, text), "orders, more"))
            return False

    monkeypatch.setattr("ottla.spark.runner.Runner", Refused)
    monkeypatch.setattr("ottla.spark.defaults.session", lambda *arguments, **options: None)
    monkeypatch.setattr("ottla.spark.defaults.stop_session", lambda: None)
    monkeypatch.setattr("ottla.cli.pipeline_runs.check_brokers", lambda bootstrap: None)
    (tmp_path / "a.py").write_text("from ottla.spark import pipeline\n\n\n@pipeline\ndef b(spark): ...\n")
    user = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.plain.username=gus")
    result = CliRunner().invoke(cli, ["pipeline", "run", str(tmp_path / "a.py"), "--data", str(tmp_path / "data"), *user])
    assert result.exit_code == 3, result.output
    assert f"`ottla acl allow User:gus {advice} --yes`" in said[0]


def test_a_sigterm_while_spark_starts_ends_as_a_ctrl_c_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process was gone at once: the directory of its sockets stayed, and its JVM for some seconds."""
    unheard: list[int] = []

    def start(*arguments: object, **options: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise RuntimeError("Spark has started")

    monkeypatch.setattr("ottla.spark.defaults.session", start)
    monkeypatch.setattr("ottla.cli.pipeline_runs.check_brokers", lambda bootstrap: None)
    (tmp_path / "orders.py").write_text("")
    before = signal.signal(signal.SIGTERM, lambda number, _: unheard.append(number))
    try:
        result = CliRunner().invoke(cli, ["pipeline", "run", str(tmp_path / "orders.py"), "--data", str(tmp_path / "data")])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (unheard, type(result.exception)) == ([], SystemExit), result.exception


def test_brokers_are_asked_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: object, **options: object) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr("ottla.spark.defaults.session", start)
    (tmp_path / "orders.py").write_text("")
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        result = CliRunner().invoke(
            cli, ["pipeline", "run", str(tmp_path / "orders.py"), "-B", address, "--until-caught-up", "--data", str(tmp_path / "data")]
        )
    assert isinstance(result.exception, KafkaError), result.exception
    assert f"no broker at {address}" in str(result.exception)
    assert "starting Spark" not in result.output
    assert not (tmp_path / "data").exists()


def test_what_py4j_logs_of_a_jvm_that_has_ended_is_not_shown(tmp_path: Path) -> None:
    """Its traceback came before the line that says so."""
    root = logging.getLogger()
    with errors_of(tmp_path / "orders.py"):
        for place, is_shown in (("/packages/py4j/java_gateway.py", False), ("/orders.py", True)):
            record = logging.LogRecord("root", logging.ERROR, place, 1, "Exception while sending command.", None, None)
            assert bool(root.filter(record)) == is_shown


def test_a_name_that_no_topic_may_have_is_refused_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a file "my orders.py": its queries had failed again and again, with a topic's name and no reason."""
    monkeypatch.setattr("ottla.cli.pipeline_runs.check_brokers", lambda bootstrap: pytest.fail("brokers are asked"))
    file = tmp_path / "my orders.py"
    file.write_text("")
    result = CliRunner().invoke(cli, ["pipeline", "run", str(file), "--data", str(tmp_path / "data")])
    assert result.exit_code == 2
    assert "the application is called 'my orders', and its checkpoints are in topics: the character ' ' is not one of" in result.output
    assert "give another --app" in result.output


def test_what_spark_logs_of_a_query_it_refuses_is_not_shown(tmp_path: Path) -> None:
    """An error of a DataFrame came as a line of JSON of some kilobytes, before the line of the command."""
    with pytest.raises(click.ClickException, match=r"no such column$"), errors_of(tmp_path / "orders.py", tmp_path / "spark.log"):
        raise AnalysisException("[UNRESOLVED_COLUMN] no such column;\n'Project [x]\n")
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        assert logging.getLogger(name).disabled

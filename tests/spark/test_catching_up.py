"""``catch_up`` where it cannot catch up; without Spark."""

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.spark.test_runner import Writer

from ottla.errors import ErrorCode, KafkaError
from ottla.spark import catch_up

FAILED = "[STREAM_FAILED] Traceback (most recent call last):\nottla.errors.KafkaError: {}\n"


@pytest.fixture(autouse=True)
def reads_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writers here have no plan."""
    monkeypatch.setattr("ottla.spark.plans.plan_of", lambda frame: SimpleNamespace(streams=["orders"]))
    monkeypatch.setattr(Writer, "_df", None, raising=False)
    monkeypatch.setattr("ottla.spark.outputs.field_of", lambda writer, name: "memory")


def caught_up(pipeline: Any, bootstrap: str, directory: Path, **more: Any) -> list[str]:
    session: Any = None
    return catch_up(session, pipeline, bootstrap=bootstrap, checkpoints=directory, **more)


def test_no_broker_is_said_before_the_pipeline_is_asked_for_anything(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(KafkaError, match=f"127.0.0.1:{port}") as refused:
        caught_up(lambda session: pytest.fail("it is asked"), f"127.0.0.1:{port}", tmp_path, timeout_s=2)
    assert refused.value.code != ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(KafkaError, match="is a URL: host:port is expected"):
        caught_up(lambda session: pytest.fail("it is asked"), "http://127.0.0.1:1", tmp_path)


@pytest.mark.parametrize(
    ("reason", "code"),
    [("NETWORK_EXCEPTION: away", ErrorCode.NETWORK_EXCEPTION), ("NO_SUCH_THING: what", ErrorCode.UNKNOWN_SERVER_ERROR)],
)
def test_a_query_that_fails_has_the_code_of_its_failure(tmp_path: Path, reason: str, code: ErrorCode, topics: Any):
    with pytest.raises(KafkaError, match=f"has failed, and is not started again: KafkaError: {reason}") as failed:
        caught_up(writing([FAILED.format(reason)]), topics.bootstrap, tmp_path)
    assert failed.value.code == code


def test_a_pipeline_that_does_not_catch_up_in_time_is_stopped(tmp_path: Path, topics: Any):
    writer = Writer(["runs"])
    with pytest.raises(KafkaError, match=r"the pipeline has not caught up within timeout_s=0\.01") as late:
        caught_up(lambda session: writer, topics.bootstrap, tmp_path, timeout_s=0.01)
    assert late.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert all(query.is_stopped for query in writer.queries)


def writing(ends: list[str]) -> Any:
    return lambda session: Writer(ends)

"""The broker's logs: one event, one line, whatever is in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.wire import RawClient

from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.headers import RequestHeader, encode_request_header
from ottla.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.metadata.image import RESOURCE_BROKER_LOGGER
from ottla.sync import Admin, NewTopic

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="%s";'
TROUBLE = r"""
import sys, structlog
from ottla.cli.logging import configure_logging
configure_logging("info", json=sys.argv[1] == "json")
log = structlog.get_logger()
log.debug("unseen")
try:
    raise ValueError("one\ntwo")
except ValueError as error:
    log.error("trouble", client="evil\n2026-01-01 [info] forged\r\x1b[31m\u2028", count=3, exc_info=error)
"""


def lines_of(form: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", TROUBLE, form], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    return done.stderr.splitlines()  # at every character that ends a line somewhere


def test_an_event_with_a_traceback_and_foreign_text_is_one_line_of_json() -> None:
    [line] = lines_of("json")
    event = json.loads(line)
    assert (event["event"], event["level"], event["count"]) == ("trouble", "error", 3)
    assert event["client"].startswith("evil\n2026")
    assert event["exception"].endswith("ValueError: one\ntwo")
    assert event["timestamp"].endswith("Z")
    assert list(event)[:3] == ["timestamp", "level", "event"]


def test_an_event_with_a_traceback_and_foreign_text_is_one_line_of_text() -> None:
    [line] = lines_of("text")
    assert r"evil\n2026-01-01 [info] forged\r\x1b[31m\u2028" in line
    assert r"ValueError: one\ntwo" in line


ONE_WRITE = r"""
import sys, structlog
from ottla.cli.logging import configure_logging
class Writes:
    isatty, flush, write = (lambda self: False), (lambda self: None), (lambda self, text: print(repr(text)))
sys.stderr = Writes()
configure_logging("info", json=sys.argv[1] == "json")
structlog.get_logger().info("whole")
"""


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_line_is_written_with_its_end(form: str) -> None:
    """A broker that was killed in between left half a line, which the next start's first one continued."""
    done = subprocess.run([sys.executable, "-c", ONE_WRITE, form], capture_output=True, text=True, timeout=60, check=True)
    [written] = done.stdout.splitlines()
    assert "whole" in written
    assert written.endswith(r"\n'")


UNWRITABLE = r"""
import os, pty, sys, structlog
from ottla.cli.logging import configure_logging
if sys.argv[1] == "full disk":
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
elif sys.argv[1] == "no reader":
    os.dup2((ends := os.pipe())[1], 2)
    os.close(ends[0])
elif sys.argv[1] == "closed terminal":
    os.dup2((ends := pty.openpty())[1], 2)
    os.close(ends[0])
elif sys.argv[1] == "closed":
    sys.stderr = None  # as Python has it where a shell has closed it
configure_logging("info")
if sys.argv[1] == "closed afterwards":
    sys.stderr.close()
for _ in range(2000):
    structlog.get_logger().info("more")
print("goes on", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("what", ["full disk", "no reader", "closed terminal", "closed", "closed afterwards"])
def test_a_broker_whose_lines_cannot_be_written_goes_on(what: str) -> None:
    """It ended without a word, or answered its clients no more."""
    done = subprocess.run([sys.executable, "-c", UNWRITABLE, what], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.slow
def test_every_line_of_a_broker_is_an_event(tmp_path: Path, form: str) -> None:
    """Starts, stops, unknown keys, a failed request and a killed process included."""
    file = tmp_path / "server.properties"
    file.write_text("nonsense=1\n")
    with BrokerProcess(tmp_path, options=["--log-format", form, "--log-level", "debug", str(file)]) as broker:
        with RawClient(broker.port) as client:
            client.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
            client.send_frame(encode_request_header(RequestHeader(0, 9, 1, "no\nbody"), is_flexible=True) + b"\xff" * 20)
            assert client.is_closed_by_broker(), "what cannot be read ends the connection"
        broker.kill()
        broker.start()
        broker.stop()
        lines = broker.log().splitlines()
    assert len(lines) > 5
    if form == "json":
        assert {"broker_started", "broker_stopped", "config_unknown"} < {json.loads(line)["event"] for line in lines}
    else:
        assert all(line[:4].isdigit() and " [" in line for line in lines), lines


def test_a_loggers_level_changes_while_the_broker_runs(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, options=["--log-format", "json", "--log-level", "error"]) as broker:

        def refused_count() -> int:
            with RawClient(broker.port) as client:
                client.send_frame(b"\xff" * 20)
                assert client.is_closed_by_broker()
            return broker.log().count("connection_refused_input")

        def set_level(level: str) -> None:
            change = AlterConfigsResource(RESOURCE_BROKER_LOGGER, "1", [AlterableConfig("ottla.broker.requests.connection", 0, level)])
            with RawClient(broker.port) as client:
                assert client.ask(IncrementalAlterConfigsRequest([change]), 1).responses[0].error_code == 0

        assert refused_count() == 0
        set_level("INFO")
        assert refused_count() == 1
        assert json.loads(broker.log().splitlines()[-1])["logger_name"] == "ottla.broker.requests.connection"
        set_level("ERROR")
        assert refused_count() == 1


def test_a_broker_says_what_it_was_started_with_and_no_secret_and_which_topics_come_and_go(tmp_path: Path) -> None:
    given: dict[str, Any] = {"num_partitions": "3", "delete_topic_enable": "true"}
    secret: dict[str, Any] = {"listener_name_guarded_plain_sasl_jaas_config": PLAIN % "cat-sat-on-mat"}
    with BrokerProcess(tmp_path, options=["--log-format", "json"], **given, **secret) as broker, Admin(broker.bootstrap) as admin:
        assert admin.create_topics([NewTopic("here", 2)]) == {"here": None}
        assert admin.delete_topics(["here"]) == {"here": None}
    text = broker.log_file.read_text()
    events = [json.loads(line) for line in text.splitlines()]
    starting = events[0]
    assert (starting["event"], starting["log_dirs"]) == ("broker_starting", [str(broker.data)])
    assert starting["configuration"]["num.partitions"] == "3"
    assert "delete.topic.enable" not in starting["configuration"], "what is as it would be anyway is left out"
    assert starting["configuration"]["listener.name.guarded.plain.sasl.jaas.config"] == "[hidden]"
    assert "cat-sat-on-mat" not in text
    told = [(event["event"], event["topic"]) for event in events if event["event"] in ("topic_created", "topic_deleted")]
    assert told == [("topic_created", "here"), ("topic_deleted", "here")]

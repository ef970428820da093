"""``ottla txn`` against a broker of ottla's own; tests/interop has it against transactions of Apache Kafka's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.broker.coordinators.runtime import CoordinatorRuntime
from ottla.cli.main import cli
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, NewTopic, Producer

SECONDS_MAX = 60


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data: Path = tmp_path_factory.mktemp("data")
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data)}) as thread:
        with Admin(thread.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 2)]) == {"t": None}
        yield thread.bootstrap


def txn(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "txn", *arguments]
    environment = os.environ | {"OTTLA_BOOTSTRAP": bootstrap}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS_MAX, check=False)


@pytest.mark.parametrize("arguments", [["list"], ["list", "--state", "Ongoing"], ["find-hanging"], ["find-hanging", "--topic", "t"]])
@pytest.mark.parametrize("form", [["--json"], ["--format", "json"], []])
def test_where_there_are_no_transactions_none_are_shown(bootstrap: str, arguments: list[str], form: list[str]) -> None:
    done = txn(bootstrap, *arguments, *form)
    assert (done.returncode, done.stderr) == (0, "")
    if form:
        assert json.loads(done.stdout) == {"_command": f"txn {arguments[0]}", "_version": 1, "items": []}
    else:
        assert len(done.stdout.splitlines()) == 1, "the heads of the columns"


@pytest.mark.parametrize("arguments", [["list"], ["describe", "x"]])
def test_a_coordinator_that_answers_nothing_is_not_waited_for_long(
    bootstrap: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a full log directory, or too few replicas in sync. Each broker took a minute, and nothing was said before."""

    async def refuses(*_: object) -> None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    monkeypatch.setattr(CoordinatorRuntime, "list_all", refuses)
    monkeypatch.setattr(CoordinatorRuntime, "look_up", refuses)
    monkeypatch.setattr("ottla.cli.txn.COORDINATOR_MS", 300)
    done = CliRunner().invoke(cli, ["txn", *arguments, "-B", bootstrap])
    assert "in default_api_timeout_ms=300" in done.output + str(done.exception)


def test_a_changing_command_needs_yes(bootstrap: str) -> None:
    used(bootstrap, "x", "y")
    done = txn(bootstrap, "fence", "x", "y")
    assert done.returncode == 1
    assert "would fence the producers of x, y; add --yes" in done.stderr


def used(bootstrap: str, *transactional_ids: str) -> None:
    """Has producers use these ids."""
    for transactional_id in transactional_ids:
        with Producer(bootstrap, transactional_id=transactional_id) as producer:
            producer.init_transactions()


def test_an_id_that_no_producer_has_used_is_not_made_by_fencing_it(bootstrap: str) -> None:
    used(bootstrap, "orders")
    done = txn(bootstrap, "fence", "oders", "--yes")
    assert (done.returncode, "TRANSACTIONAL_ID_NOT_FOUND: transactional id 'oders'" in done.stderr) == (1, True)
    planned = txn(bootstrap, "fence", "oders", "orders").stderr
    assert ("transactional id 'oders'" in planned, "would fence the producers of orders; " in planned) == (True, True)
    both = txn(bootstrap, "fence", "oders", "orders", "--yes", "--json")
    assert (both.returncode, "'oders'" in both.stderr) == (1, True)
    assert [row["transactional_id"] for row in json.loads(both.stdout)["items"]] == ["orders"]
    listed = json.loads(txn(bootstrap, "list", "--json").stdout)["items"]
    assert "oders" not in [row["transactional_id"] for row in listed]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["abort", "t", "0", "--yes"], 1, "no transaction hangs in t-0; `ottla txn list --state Ongoing` shows those that are open"),
        (["find-hanging", "--partition", "0"], 2, "--partition needs --topic"),
        (["find-hanging", "--topic", "none"], 1, "topic 'none'"),
        (["describe"], 2, "Missing argument"),
        (["list", "--longer-than", "-1"], 2, "not in the range"),
    ],
)
def test_a_call_that_cannot_be_done_says_why(bootstrap: str, arguments: list[str], code: int, text: str) -> None:
    done = txn(bootstrap, *arguments)
    assert done.returncode == code
    assert text in done.stderr

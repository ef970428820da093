"""``ottla pipeline reset``: it lists and deletes what exists, and says where it found nothing. Without Spark."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla import aio
from ottla.cli.main import cli
from ottla.cli.pipeline_runs import LOCK, note_directory
from ottla.runtime.serve import BrokerThread
from ottla.spark.checkpoint_topic import begin_again
from ottla.spark.exactly_once import StopError
from ottla.spark.marker import Marker
from ottla.spark.options import invalid
from ottla.types import TopicPartition

QUERY = "sales-totals"


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "broker")}) as broker:
        yield broker.bootstrap


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "ottla" / "pipelines"


def write_a_batch(bootstrap: str, directory: Path) -> None:
    """Leaves what a query of the application sales leaves."""

    async def commit() -> None:
        async with aio.Admin(bootstrap) as admin:
            await admin.create_topics([aio.NewTopic("orders", 1), aio.NewTopic(f"{QUERY}-checkpoint", 1)])
            await admin.set_offsets(QUERY, {TopicPartition("orders", 0): 0}, metadata=Marker("id", 0, "hash", 0).text())

    asyncio.run(commit())
    write_a_checkpoint(directory)


def write_a_checkpoint(directory: Path, query: str = "id") -> None:
    (directory / QUERY).mkdir(parents=True)
    (directory / QUERY / "metadata").write_text(f'{{"id":"{query}"}}')
    (directory / LOCK).touch()


def reset(bootstrap: str, app: str, *options: str) -> Result:
    return CliRunner().invoke(cli, ["pipeline", "reset", app, "-B", bootstrap, *options])


def lines_of(result: Result) -> list[str]:
    """Returns what the command has printed, without the log of the broker, which runs in this process."""
    return [line for line in result.output.splitlines() if "[ottla.broker." not in line]


@pytest.mark.parametrize("options", [(), ("--yes",)])
def test_an_application_that_never_existed_is_not_reset(bootstrap: str, home: Path, options: tuple[str, ...]) -> None:
    result = reset(bootstrap, "sales-nosuch", *options)
    assert result.exit_code == 1
    assert result.output.startswith("Error: no such application: sales-nosuch has no offsets and no topic in this cluster")
    assert not home.exists()
    empty = home / "empty"
    empty.mkdir(parents=True)
    assert reset(bootstrap, "sales-nosuch", "--data", str(empty), *options).exit_code == 1
    assert empty.exists()


def test_what_exists_is_listed_and_deleted(bootstrap: str, home: Path) -> None:
    write_a_batch(bootstrap, home / "sales")
    planned = reset(bootstrap, "sales")
    assert planned.exit_code == 1
    assert planned.output == (f"would delete the offsets of {QUERY}, topic {QUERY}-checkpoint, {home / 'sales'}; add --yes to apply it\n")
    assert lines_of(reset(bootstrap, "sales", "--yes")) == [
        f"{QUERY}: offsets deleted",
        f"topic {QUERY}-checkpoint: deleted",
        f"{home / 'sales'}: deleted",
    ]
    assert not (home / "sales").exists()
    assert reset(bootstrap, "sales", "--yes").exit_code == 1


def test_a_checkpoint_that_is_elsewhere_is_warned_of_and_not_said_to_be_deleted(bootstrap: str, home: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_a_batch(bootstrap, data)
    planned = reset(bootstrap, "sales")
    assert planned.output.startswith(f"ottla: warning: {home / 'sales'} has no checkpoint of {QUERY}")
    assert "--data" in planned.output
    assert planned.output.endswith(f"would delete the offsets of {QUERY}, topic {QUERY}-checkpoint; add --yes to apply it\n")
    done = reset(bootstrap, "sales", "--yes")
    assert done.exit_code == 0
    assert lines_of(done)[1:] == [f"{QUERY}: offsets deleted", f"topic {QUERY}-checkpoint: deleted"]
    assert (data / QUERY).exists()
    late = reset(bootstrap, "sales", "--data", str(data), "--yes")
    assert late.output == f"{data}: deleted\n"
    assert not data.exists()


def test_an_old_directory_at_the_default_place_is_not_taken_for_the_checkpoint(bootstrap: str, home: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_a_batch(bootstrap, data)
    write_a_checkpoint(home / "sales", query="old")
    planned = reset(bootstrap, "sales")
    said = f"ottla: warning: {home / 'sales'} has no checkpoint of {QUERY} that has written last; one that is elsewhere stays"
    assert planned.output.startswith(said)


def test_the_directory_of_the_last_run_is_remembered(bootstrap: str, home: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_a_batch(bootstrap, data)
    write_a_checkpoint(home / "sales", query="old")
    note_directory("sales", data)
    for command in ("reset", "restore"):
        refused = CliRunner().invoke(cli, ["pipeline", command, "sales", "-B", bootstrap, "--yes"])
        assert refused.exit_code == 1
        assert lines_of(refused) == [
            f"Error: sales ran last with --data {data}: give that, or --data {home / 'sales'} for the one that you mean"
        ]
    assert reset(bootstrap, "sales", "--data", str(data)).output.startswith("would delete")
    assert f"{data}: deleted" in lines_of(reset(bootstrap, "sales", "--data", str(data), "--yes"))
    assert f"{home / 'sales'}: deleted" in lines_of(reset(bootstrap, "sales", "--yes")), "what it remembered is gone"
    note_directory("sales", data)
    note_directory("sales", home / "sales")
    write_a_checkpoint(home / "sales")
    assert reset(bootstrap, "sales", "--yes").exit_code == 0


def test_the_status_of_an_application_without_offsets_names_its_checkpoints(bootstrap: str, home: Path) -> None:
    """As after its source was deleted: the group's offsets go with the topic."""
    write_a_batch(bootstrap, home / "sales")

    async def delete() -> None:
        async with aio.Admin(bootstrap) as admin:
            await admin.delete_topics(["orders"])

    asyncio.run(delete())
    found = CliRunner().invoke(cli, ["pipeline", "status", "sales", "-B", bootstrap])
    assert found.exit_code == 1
    assert f"{QUERY}: no offsets are committed, and {QUERY}-checkpoint is there" in found.output
    assert "ottla pipeline reset sales" in found.output


def test_a_checkpoint_that_cannot_be_restored_names_the_command_that_resets_its_application(
    bootstrap: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_a_batch(bootstrap, home / "sales")

    def refuse(*_: object, **__: object) -> None:
        raise StopError(f"application '{QUERY}': the group was deleted. {begin_again(f'{QUERY}-checkpoint')}")

    monkeypatch.setattr("ottla.spark.restoring.restore", refuse)
    found = CliRunner().invoke(cli, ["pipeline", "restore", "sales", "-B", bootstrap, "--yes"])
    assert found.exit_code == 1
    assert f"To write from the start again: ottla pipeline reset sales --yes -B {bootstrap}" in found.output
    assert "group delete" not in found.output


@pytest.mark.parametrize("kind", ["stopped", "refused"])
def test_a_checkpoint_that_cannot_be_restored_keeps_no_other_from_it(
    bootstrap: str, home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The first one of its name, of a source that was deleted, ended the command before the others of the application."""
    write_a_batch(bootstrap, home / "sales")
    asked: list[str] = []

    def restore(app: str, *_: object, **__: object) -> int:
        asked.append(app)
        if app == QUERY:
            text = f"application {app!r}: the group was deleted"
            raise StopError(text) if kind == "stopped" else invalid(text)
        return 7

    async def create() -> None:
        async with aio.Admin(bootstrap) as admin:
            await admin.create_topics([aio.NewTopic("sales-zones-checkpoint", 1)])

    asyncio.run(create())
    monkeypatch.setattr("ottla.spark.restoring.restore", restore)
    found = CliRunner().invoke(cli, ["pipeline", "restore", "sales", "-B", bootstrap, "--yes"])
    assert (found.exit_code, asked) == (1, [QUERY, "sales-zones"])
    text = "" if kind == "stopped" else "INVALID_CONFIG: "
    assert f"{home}/sales/{QUERY}: left as it is: {text}application '{QUERY}': the group was deleted" in found.output
    assert f"{home}/sales/sales-zones: 7 files written from topic sales-zones-checkpoint" in found.output


def test_a_sigterm_ends_a_restore_as_a_ctrl_c_does(bootstrap: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the process at once, and left half a checkpoint beside the one that is there."""
    write_a_batch(bootstrap, home / "sales")
    ended: list[str] = []

    def restore(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            ended.append("goes on")
        finally:
            ended.append("cleans up")

    monkeypatch.setattr("ottla.spark.restoring.restore", restore)
    earlier = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        found = CliRunner().invoke(cli, ["pipeline", "restore", "sales", "-B", bootstrap, "--yes"])
    finally:
        signal.signal(signal.SIGTERM, earlier)
    assert (found.exit_code != 0, ended) == (True, ["cleans up"])

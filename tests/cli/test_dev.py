"""``ottla dev --secure``: a user, a certificate and ACLs, which a later start finds again."""

from __future__ import annotations

import contextlib
import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_commands import SECONDS_MAX

from ottla.config.properties import read_properties
from ottla.errors import ErrorCode, KafkaError
from ottla.sync import Admin, NewTopic, UserChange
from ottla.types import Secret


@contextlib.contextmanager
def dev(*arguments: str, stops: Sequence[signal.Signals] = (signal.SIGINT,)) -> Iterator[dict[str, str]]:
    """What it has printed; it ends in order."""
    with started("--secure", *arguments, stops=stops) as (told, _):
        yield told


@contextlib.contextmanager
def started(*arguments: str, stops: Sequence[signal.Signals] = (signal.SIGINT,)) -> Iterator[tuple[dict[str, str], list[str]]]:
    """What it has printed, and, after its end, what it has complained of."""
    command = [sys.executable, "-m", "ottla", "dev", "--port", "0", "--json", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    complaints: list[str] = []
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline() or "{}"), complaints
    finally:
        for number in stops:
            process.send_signal(number)
        try:
            _, errors = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
    complaints += errors.splitlines()
    assert process.returncode == 0, errors


def settings(told: dict[str, str]) -> dict[str, Any]:
    return {key.replace(".", "_"): value for key, value in read_properties(told["command_config"]).items()}


def test_a_secured_broker_knows_its_user_and_no_other_and_remembers_both(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with dev("--data", str(data)) as told:
        first = settings(told)
        with Admin(told["bootstrap"], **first) as admin:
            assert admin.create_topics([NewTopic("orders", 1)]) == {"orders": None}
            admin.alter_users([UserChange("bob", "SCRAM-SHA-512", Secret("bob-secret"))])
        bob = first | {"sasl_plain_username": "bob", "sasl_plain_password": "bob-secret"}
        del bob["sasl_jaas_config"]
        with Admin(told["bootstrap"], **bob) as other:
            assert other.list_topics() == {}  # the listener asks who it is, and ACLs what he may do
        with Admin(told["bootstrap"], **bob | {"sasl_plain_password": "guessed"}) as stranger, pytest.raises(KafkaError) as caught:
            stranger.list_topics()
        assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path(told["command_config"]).parent.iterdir()}
        assert files == {"authority.pem": 0o644, "authority.key": 0o600, "broker.pem": 0o600, "client.properties": 0o600}
    with dev("--data", str(data)) as told, Admin(told["bootstrap"], **first) as admin:
        assert list(admin.list_topics()) == ["orders"]
        assert settings(told) == first


def test_a_temporary_one_leaves_neither_data_nor_password(tmp_path: Path) -> None:
    with dev() as told, Admin(told["bootstrap"], **settings(told)) as admin:
        admin.list_topics()
    assert not Path(told["data"]).exists()
    assert not Path(told["command_config"]).exists()


def test_a_terminal_that_closes_leaves_nothing_of_it() -> None:
    """The terminal sends SIGHUP, and so does its shell."""
    with dev(stops=(signal.SIGHUP, signal.SIGHUP)) as told, Admin(told["bootstrap"], **settings(told)) as admin:
        admin.list_topics()
    assert not Path(told["data"]).exists()


def test_secure_dev_refuses_the_data_of_an_open_broker_and_leaves_it_unchanged(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\n")
    command = [sys.executable, "-m", "ottla", "dev", "--secure", "--port", "0", "--data", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 2
    assert f"{tmp_path}/data-security/client.properties with the password of its user is not there" in done.stderr
    assert "the data was made without --secure, or the file was deleted" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_dev_says_that_it_serves_in_plain_text_what_was_secured(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started("--data", str(data)) as (_, complaints):
        pass
    assert complaints == [], "it was never secured"
    (tmp_path / "data-security").mkdir()
    (tmp_path / "data-security" / "client.properties").touch()
    with started("--data", str(data)) as (_, complaints):
        pass
    [warned] = complaints
    assert warned.startswith(f"warning: {data} was served with --secure before"), warned


def test_dev_names_its_own_option_where_the_directory_is_no_log_directory(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    command = [sys.executable, "-m", "ottla", "dev", "--port", "0", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 1
    assert f"{tmp_path} is not empty and has no meta.properties" in done.stderr
    assert "name an empty one (log.dirs of a node, --data of a command)" in done.stderr

"""Words that a command cannot mean are a wrong call, exit code 2, and no broker is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.cluster_command import ottla


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("consume a,b", "'a,b': topics are separated by spaces: a b"),
        ("consume a -f raw", "record format: 'raw' names no field and is not json"),
        ("consume a -X fetch.max.bytes=abc", "fetch.max.bytes='abc': expected an integer"),
        ("produce a -X linger.ms=abc", "linger.ms='abc': expected an integer"),
        (
            "topic list -X retention.ms=1",
            "retention.ms is no property of a client: topics have it, `ottla topic create NAME -c",
        ),
        ("topic list -X log.dirs=/a", "log.dirs is no property of a client: brokers have it, `ottla config set --brokers log.dirs=VALUE`"),
        ("topic list -X request.timeout=1", "unknown property of a client: request.timeout; did you mean request.timeout.ms?"),
        ("topic list -X bootsrap.servers=1:2", "unknown property of a client: bootsrap.servers; did you mean bootstrap.servers?"),
        ("topic list -X foo=bar", "unknown property of a client: foo; the names are those of Kafka's clients, as security.protocol"),
        ("topic list -X foo", "-X foo: expected KEY=VALUE"),
        ("topic list -X =bar", "-X =bar: expected KEY=VALUE"),
        ("consume --include=", "--include: the regular expression must not be empty"),
        ("consume a --timeout nan", "Invalid value for '--timeout': 'nan' is not a number."),
        ("cluster health --until-healthy --timeout nan", "Invalid value for '--timeout': 'nan' is not a number."),
        ("token renew a --hours inf", "Invalid value for '--hours': 'inf' is not a number."),
        ("txn find-hanging --longer-than nan", "Invalid value for '--longer-than': 'nan' is not a number."),
        ("console --data=", "Invalid value for '--data'"),
        ("consume a --group=", "-g: the group's name must not be empty"),
    ],
)
def test_a_wrong_word_is_a_wrong_call(words: str, text: str) -> None:
    result = ottla(*words.split(), "-B", "127.0.0.1:1")
    assert text in result.stderr
    assert result.returncode == 2


@pytest.mark.parametrize("words", ["dev", "demo", "cluster start", "cluster health", "pipeline reset a", "certs authority"])
def test_an_empty_directory_is_a_wrong_call(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script's empty variable was the working directory, or for `ottla dev` that of `ottla broker start`."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    result = ottla(*words.split(), *([""] if words.startswith("certs") else ["--data="]))
    assert "the name of the directory is empty" in result.stderr
    assert result.returncode == 2


def test_an_empty_log_dirs_is_no_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of `ottla broker start` was used. Kafka refuses it."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    result = ottla("broker", "start", "-X", "log.dirs=", "-X", "listeners=PLAINTEXT://127.0.0.1:0")
    assert "INVALID_CONFIG: no log directory: set log.dirs" in result.stderr
    assert result.returncode == 78

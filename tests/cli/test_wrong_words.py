"""Words that a command cannot mean are a wrong call, exit code 2, and no broker is asked."""

from __future__ import annotations

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
        ("consume a --group=", "-g: the group's name must not be empty"),
    ],
)
def test_a_wrong_word_is_a_wrong_call(words: str, text: str) -> None:
    result = ottla(*words.split(), "-B", "127.0.0.1:1")
    assert text in result.stderr
    assert result.returncode == 2

"""What is typed by habit of kafka-*.sh and rpk: the error says what is meant here; each word that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from tests.cli.test_daily import run

from ottla.cli.foreign_words import COMMANDS, OPTIONS, with_words_of_here
from ottla.cli.main import cli
from ottla.runtime.serve import BrokerThread


def said(*arguments: str) -> str:
    """The error of a call that is wrong."""
    with pytest.raises(click.UsageError) as caught:
        cli.main(arguments, standalone_mode=False)
    return with_words_of_here(caught.value)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (
            ("consume", "t", "--from-beginning"),
            "; reading begins at the start where -o does not say otherwise",
        ),
        (("consume", "--topic", "t"), "No such option '--topic'; the topic is an argument, without an option"),
        (("produce", "t", "--property", "parse.key=true"), "; -f says how records are read and printed: `ottla help format`"),
        (("topic", "--create", "--topic", "t"), "; it is a command: `"),
        (("topic", "consume", "t"), "No such command 'consume'; `ottla consume` does it"),
        (("group", "reset"), "; `ottla group seek` does it"),
        (("broker", "decommission"), "No such command 'decommission'; `ottla broker drain ID --replicas`, then a stop and `ottla broker"),
        (("broker", "remove"), "; `ottla broker drain ID --replicas`, then a stop and `ottla broker unregister ID` does it"),
        (("group", "reset-offsets"), "; `ottla group seek` does it"),
        (("group", "describe", "--group", "g"), "No such option '--group'; the group is an argument: `ottla group describe GROUP`"),
        (("group", "list", "--state", "Empty"), "No such option '--state'; each row has the state: `ottla group list --json`"),
        (("storage", "format", "-t", "x", "-c", "server.properties"), "No such option '-c'; the file is an argument"),
        (("storage", "format", "--standalone", "server.properties"), "; controller.quorum.voters of the file says who votes;"),
        (("certs", "make"), "No such command 'make'; the commands are authority, issue"),
        (
            ("produce", "orders", "hello"),
            "Got unexpected extra argument (hello); `echo hello | ottla produce orders`, since records come from",
        ),
        (("help", "fromat"), "there is no command 'fromat'; did you mean `ottla help format`?"),
        (
            ("dev", "-X", "auto.create.topic.enable=false"),
            "-X auto.create.topic.enable: is not a broker key; did you mean auto.create.topics",
        ),
        (("cluster", "start", "-X", "zzz=1"), "-X zzz: is not a broker key; `ottla config keys` lists the keys"),
        (("consume", "orders", "-g", "g", "--exit"), "leave out -p, --exit (--timeout SECONDS ends when no record comes), and -o but"),
        (("group", "seek", "g1", "start"), "Got unexpected extra argument (start); `ottla group seek g1 --to start` is meant"),
        (("topic", "alter", "orders", "partitions=3"), "; `ottla topic add-partitions orders -p 3` is meant"),
        (("topic", "alter", "orders", "a=1", "b=2"), "; `ottla topic alter orders -c a=1 -c b=2` is meant"),
        (
            ("topic", "add-partitions", "orders", "5"),
            "5 follows an option: `ottla topic add-partitions orders -n 5` adds so many",
        ),
        (("topic", "add-partitions", "orders"), "give --num or --partitions"),
        (("topic", "alter", "orders", "--set", "retention.ms=1"), "; -c KEY=VALUE sets a configuration"),
        (("quota", "set", "--entity-type", "users", "--entity-name", "x"), "; --user NAME, --client-id NAME or --ip NAME says whose"),
        (("config", "set", "--broker-defaults", "a=1"), "; --brokers is what is set for all brokers"),
        (("consume", "t", "--json"), "; -f json prints each record as a line of JSON"),
        (("consume", "t", "--format", "json"), "; -f json prints each record as a line of JSON"),
        (("consume", "t", "-c", "1"), "; -n COUNT ends after so many records"),
        (("consume", "t", "--print-key"), "; -f '%k %v\\n' prints the key: `ottla help format`"),
        (("consume", "t", "--isolation-level", "read_committed"), "; --read-committed leaves out"),
        (("produce", "t", "-K:"), "; -f '%k:%v\\n' has a key before the value: `ottla help format`"),
        (("produce", "-t", "t"), "; the topic is an argument, without an option"),
        (("topic", "list", "-b", "h:1"), "; -B HOST:PORT names the brokers"),
        (("dev", "-c", "a=1"), "; -X KEY=VALUE sets a key of the broker"),
        (("version",), "there is no command 'version'; `ottla --version` prints it"),
        (("topic", "descr"), "Did you mean 'describe'?"),
    ],
)
def test_a_word_of_another_tool_names_what_is_meant(typed: tuple[str, ...], text: str) -> None:
    assert text in said(*typed)


def test_each_command_that_a_hint_names_exists_and_none_that_exists_has_one() -> None:
    for hint in (*COMMANDS.values(), *OPTIONS.values()):
        for call in re.findall(r"`ottla ([a-z -]+)", hint):
            command: click.Command = cli
            for word in call.split():
                if not isinstance(command, click.Group):
                    break
                found = command.get_command(click.Context(command), word)
                assert found is not None, hint
                command = found
    for group, name in COMMANDS:
        parent = cli.get_command(click.Context(cli), group)
        assert isinstance(parent, click.Group)
        assert name not in parent.list_commands(click.Context(parent))


def test_a_property_of_the_client_is_before_the_default_of_an_option_and_after_the_option(tmp_path: Path) -> None:
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker:
        refused = run(broker.bootstrap, "produce", "t", "-X", "acks=7", stdin=b"v")
        assert "acks='7': it must be one of all, -1, 0, 1" in refused.output
        assert refused.exit_code == 2
        assert run(broker.bootstrap, "produce", "t", "-X", "acks=1", "--acks", "all", stdin=b"v").exit_code == 0
        assert run(broker.bootstrap, "produce", "t", "-X", "acks=1", stdin=b"w").exit_code == 0
        assert "nosuch" in run(broker.bootstrap, "produce", "t", "-X", "compression.type=nosuch", stdin=b"w").output


def test_lines_of_json_that_are_stored_as_they_are_are_warned_of(tmp_path: Path) -> None:
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker:
        line = b'{"key":"a","value":"b"}\n'
        done = run(broker.bootstrap, "produce", "t", "--format", "json", stdin=line * 2)
        assert done.exit_code == 0
        assert done.stderr.count("each line is stored as a value, as it is; -f json reads key, value and headers") == 1
        for arguments, given in ((("-f", "json", "--format", "json"), line), (("--format", "json"), b'{"id": 1}\n'), ((), line)):
            assert "as it is" not in run(broker.bootstrap, "produce", "t", *arguments, stdin=given).stderr


def test_an_empty_value_of_a_topics_key_names_the_option_that_removes_it(tmp_path: Path) -> None:
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker:
        assert run(broker.bootstrap, "topic", "create", "t").exit_code == 0
        refused = run(broker.bootstrap, "topic", "alter", "t", "-c", "retention.ms=")
        assert "`-d retention.ms` removes the topic's own value" in str(refused.exception)

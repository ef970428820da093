"""Commands that change what cannot be changed back say what they would do, and do it with ``--yes`` only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import click
import pytest
from tests.cli.test_commands import ottla

from ottla.cli.main import cli
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, Consumer, Producer, TopicPartition

KEY = TopicPartition("t", 0)
DESTRUCTIVE = {
    ("broker", "drain"): (("1",), 1, "add --yes to apply it"),
    ("broker", "unregister"): (("9",), 1, "would remove broker 9"),
    ("feature", "set"): (("transaction.version=2",), 1, "would set transaction.version=2"),
    ("partition", "cancel"): (("t:0",), 1, "would take back the moves of t:0"),
    ("partition", "elect"): ((), 0, "each is led by its first replica: there is nothing to elect"),
    ("partition", "reassign"): (("t:0=1",), 1, "add --yes to apply it"),
    ("partition", "unthrottle"): ((), 0, "no throttle is set"),
    ("quota", "set"): (("producer_byte_rate=1", "--user", "a"), 1, "would set producer_byte_rate=1 of user=a"),
    ("acl", "allow"): (["User:a", "-o", "read", "--topic", "t"], 1, "add --yes to apply it"),
    ("acl", "deny"): (["User:a", "-o", "read", "--topic", "t"], 1, "add --yes to apply it"),
    ("acl", "delete"): (["User:a"], 1, "SECURITY_DISABLED"),
    ("topic", "delete"): (("t",), 1, "would delete t with all data"),
    ("topic", "delete-records"): (("t", "-o", "2"), 1, "would delete the records before offset 2 of t"),
    ("group", "seek"): (("readers", "--to", "start"), 1, "nothing was changed"),
    ("group", "import"): (("readers", "-"), 2, "has no offsets"),
    ("group", "delete-offsets"): (("readers", "--topic", "t"), 1, "would delete these offsets"),
    ("group", "delete"): (("readers",), 1, "would delete readers with their offsets"),
    ("user", "delete"): (("zed", "-m", "SCRAM-SHA-256"), 1, "would delete the credentials of zed for SCRAM-SHA-256"),
    ("token", "expire"): (("x",), 1, "would end token x at once"),
    ("txn", "fence"): (("app",), 1, "would fence the producers of app"),
    ("txn", "abort"): (("t", "0"), 1, "no transaction hangs in t-0"),
    ("txn", "find-hanging"): ((), 0, ""),
    ("pipeline", "restore"): (("readers",), 1, "there is no topic with a checkpoint of application"),
    ("pipeline", "reset"): (("readers",), 1, "no such application"),
}
"""Their arguments, how they end without ``--yes``, and what they say then."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with four records a second apart, from 1,000 s on, of which a group has read three."""
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path_factory.mktemp("data"))}
    with BrokerThread(config | {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}) as broker:
        assert ottla(broker.bootstrap, "topic", "create", "t", "-c", "message.timestamp.before.max.ms=9223372036854775807").returncode == 0
        with Producer(broker.bootstrap) as producer:
            for number in range(4):
                producer.send("t", b"%d" % number, timestamp_ms=1_000_000 + 1000 * number).result(30)
        with Consumer(broker.bootstrap, group_id="readers") as consumer:
            consumer.commit({KEY: 3})
        with Producer(broker.bootstrap, transactional_id="app") as producer:
            producer.init_transactions()
        yield broker.bootstrap


@pytest.fixture(scope="module")
def what_is_there(bootstrap: str) -> Iterator[Callable[[], tuple[int, int, int]]]:
    """Where the partition begins and ends, and what the group has committed."""
    with Consumer(bootstrap) as consumer, Admin(bootstrap) as admin:
        yield lambda: (
            consumer.beginning_offsets([KEY])[KEY],
            consumer.end_offsets([KEY])[KEY],
            admin.committed_offsets("readers")[KEY].offset,
        )


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))
    else:
        yield path, command


def test_these_are_all_commands_that_ask_for_it() -> None:
    asking = {path for path, command in commands(cli) if any("--yes" in parameter.opts for parameter in command.params)}
    assert asking == DESTRUCTIVE.keys()


@pytest.mark.parametrize("command", DESTRUCTIVE, ids=" ".join)
def test_without_yes_nothing_is_changed(
    bootstrap: str, what_is_there: Callable[[], tuple[int, int, int]], command: tuple[str, str]
) -> None:
    arguments, code, text = DESTRUCTIVE[command]
    done = ottla(bootstrap, *command, *arguments)
    assert (done.returncode, text in done.stderr) == (code, True), done.stderr
    is_plan = code == 1 and text.startswith(("would", "nothing was changed", "add --yes"))
    assert not is_plan or done.stderr.endswith("; add --yes to apply it\n"), done.stderr
    assert what_is_there() == (0, 4, 3)


def test_the_plan_of_a_quota_that_there_is_not_is_refused(bootstrap: str) -> None:
    done = ottla(bootstrap, "quota", "set", "producer_byte=1", "--user", "a")
    assert (done.returncode, "'producer_byte' is no quota of user; producer_byte_rate" in done.stderr, "would" in done.stderr) == (
        1,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        ("start", 0), ("end", 4), ("2", 2), ("9", 4), ("+1", 1), ("-1", 3), ("-9", 0),
        ("@999", 0), ("@1000", 0), ("@1001.5", 2), ("@1003", 3), ("@1003.001", 4), ("@now", 4),
    ],
)  # fmt: skip
def test_a_group_is_sent_to_a_place_within_the_partition(bootstrap: str, target: str, offset: int) -> None:
    """To a time: the first record that is not older, and after the newest the end."""
    planned = ottla(bootstrap, "group", "seek", "readers", "--to", target, "--format", "json")
    assert planned.returncode == 1, "a plan was not applied"
    assert json.loads(planned.stdout)["items"] == [{"topic": "t", "partition": 0, "from": 3, "to": offset}]

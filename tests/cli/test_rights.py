"""What commands answer a user who has few rights: what is missing, and no trouble that there is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_daily import items, run

from ottla.cli.output import with_way_out
from ottla.errors import ErrorCode, KafkaError
from ottla.sync import Admin, NewTopic
from ottla.testing import SecureBroker, secure_broker


@pytest.fixture(scope="module")
def served() -> Iterator[SecureBroker]:
    with secure_broker() as made:
        yield made


@pytest.fixture(scope="module")
def alice(served: SecureBroker, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The options of a user who may read and write one topic, ``t``."""
    with Admin(**served.for_ottla()) as admin:
        admin.create_topics([NewTopic("t", 1)])
    served.user("alice")
    directory = tmp_path_factory.mktemp("alice")
    operations = ("-o", "read", "-o", "write", "--topic", "t", "--yes")
    of_admin = options_of(served, "admin", directory / "admin")
    assert run(served.bootstrap, "acl", "allow", "User:alice", *operations, *of_admin).exit_code == 0
    return options_of(served, "alice", directory / "alice")


def options_of(served: SecureBroker, user: str, file: Path) -> tuple[str, str]:
    """Writes the properties by which commands are this user's."""
    login = f'ScramLoginModule required username="{user}" password="{served.password_of(user)}";'
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f"org.apache.kafka.common.security.scram.{login}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(served.authority),
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return "--command-config", str(file)


def test_health_says_that_the_user_may_not_look_and_reports_no_trouble(served: SecureBroker, alice: tuple[str, str]) -> None:
    done = run(served.bootstrap, "cluster", "health", "-B", served.bootstrap, *alice)
    assert isinstance(done.exception, KafkaError)
    assert done.exception.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "takes DESCRIBE on the cluster" in str(done.exception)
    assert done.stdout == ""


def test_the_status_shows_brokers_and_does_not_take_the_controller_for_lost(served: SecureBroker, alice: tuple[str, str]) -> None:
    done = run(served.bootstrap, "cluster", "status", "-B", served.bootstrap, *alice)
    assert "may not see the quorum" in done.stderr
    assert "no controller is active" not in done.stderr
    assert "alive" in done.stdout


def test_a_topic_is_described_without_its_configuration(served: SecureBroker, alice: tuple[str, str]) -> None:
    [found] = items(run(served.bootstrap, "topic", "describe", "t", "--json", *alice))
    assert (found["configs"], len(found["partitions"])) == (None, 1)
    assert "configuration not shown, which takes DESCRIBE_CONFIGS" in run(served.bootstrap, "topic", "describe", "t", *alice).stdout


@pytest.mark.parametrize(
    ("command", "lacks", "options"),
    [
        (("consume", "t", "-g", "g1", "--timeout", "2"), "READ on group g1", "-o read --group g1"),
        (("group", "describe", "g1"), "DESCRIBE on group g1", "-o describe --group g1"),
        (("group", "delete", "g1", "--yes"), "DELETE on group g1", "-o delete --group g1"),
        (("consume", "secret"), "READ on topic secret", "-o read --topic secret"),
        (("produce", "secret"), "WRITE on topic secret", "-o write --topic secret"),
        (("topic", "create", "x"), "CREATE on topic x", "-o create --topic x"),
        (("topic", "alter", "t", "-c", "retention.ms=5"), "ALTER_CONFIGS on topic t", "-o alter-configs --topic t"),
        (("topic", "list", "secret"), "DESCRIBE on topic secret", "-o describe --topic secret"),
        (("topic", "delete", "secret", "--yes"), "DELETE on topic secret", "-o delete --topic secret"),
        (("partition", "reassign", "secret:0=1"), "DESCRIBE on topic secret", "-o describe --topic secret"),
        (("partition", "reassign", "--topics", "t,secret", "--brokers", "1"), "DESCRIBE on topic secret", "-o describe --topic secret"),
        (("topic", "delete-records", "t", "--yes"), "DELETE on topic t", "-o delete --topic t"),
        (("config", "get", "--brokers"), "DESCRIBE_CONFIGS on the cluster", "-o describe-configs --cluster"),
        (("quorum",), "DESCRIBE on the cluster", "-o describe --cluster"),
        (("acl", "allow", "User:x", "-o", "read", "--topic", "t", "--yes"), "ALTER on the cluster", "-o alter --cluster"),
        (("txn", "describe", "x"), "DESCRIBE on transactional id x", "-o describe --transactional-id x"),
    ],
)
def test_a_refusal_names_the_right_and_the_acl_that_gives_it(
    served: SecureBroker, alice: tuple[str, str], command: tuple[str, ...], lacks: str, options: str
) -> None:
    with Admin(**served.for_ottla()) as admin:
        admin.create_topics([NewTopic("secret", 1)])
    done = run(served.bootstrap, *command, *alice, stdin=b"a\n")
    said = done.output if done.exception is None or isinstance(done.exception, SystemExit) else with_way_out(done.exception)
    assert (
        f": User:alice lacks {lacks}; who may alter the cluster allows it by `ottla acl allow User:alice {options} --yes`, unless" in said
    )
    assert "no coordinator" not in said


def test_an_expression_is_tried_on_the_topics_that_the_user_may_describe(served: SecureBroker, alice: tuple[str, str]) -> None:
    for command in (("topic", "delete", "^sec"), ("consume", "^sec"), ("partition", "reassign", "--topics", "^sec", "--brokers", "1")):
        assert "no topic that User:alice may describe matches" in str(run(served.bootstrap, *command, *alice).exception), command


@pytest.mark.parametrize(
    "command",
    [
        ("config", "get", "--brokers"),
        ("config", "set", "--topic", "t", "retention.ms=86400001"),
        ("topic", "create", "of-bob"),
        ("topic", "offsets", "t"),
        ("topic", "add-partitions", "t", "-n", "1"),
        ("group", "seek", "of-bob", "--to", "start", "--topic", "t", "--yes"),
        ("consume", "t", "-g", "of-bob", "--timeout", "0.1"),
        ("quota", "list"),
        ("quota", "set", "producer_byte_rate=1000000", "--user", "x", "--yes"),
        ("user", "list"),
        ("acl", "list"),
        ("broker", "logdirs"),
        ("partition", "moves"),
        ("producer", "list", "t"),
        ("feature", "set", "transaction.version=2", "--yes"),
    ],
)
def test_the_acls_that_refusals_advise_are_enough(
    served: SecureBroker, alice: tuple[str, str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    user = "-".join(("bob", *filter(str.isalpha, command)))
    served.user(user)
    bob, admin = options_of(served, user, tmp_path / "bob"), options_of(served, "admin", tmp_path / "admin")
    said = ""
    for _ in range(3):  # a right on a topic, one on a group
        done = run(served.bootstrap, *command, *bob, stdin=b"")
        if done.exit_code == 0:
            return
        said = done.output if done.exception is None or isinstance(done.exception, SystemExit) else with_way_out(done.exception)
        advice = re.search("`ottla (acl allow [^`]*)`", said)
        assert advice is not None, said
        assert run(served.bootstrap, *advice[1].split(), *admin).exit_code == 0, advice[1]
    pytest.fail(f"{command} is still refused: {said}")


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_reader_that_writes_is_said_the_right_that_is_missing(served: SecureBroker, tmp_path: Path, acks: str) -> None:
    """Without a right to write to any topic, a producer of acks=all is given no id: the answer is about the cluster."""
    user = f"reader-{acks}"
    served.user(user)
    assert run(served.bootstrap, "topic", "create", user, *options_of(served, "admin", tmp_path / "admin")).exit_code == 0
    allow = ("acl", "allow", f"User:{user}", "-o", "read", "--topic", user, "--yes")
    assert run(served.bootstrap, *allow, *options_of(served, "admin", tmp_path / "admin")).exit_code == 0
    done = run(served.bootstrap, "produce", user, "--acks", acks, *options_of(served, user, tmp_path / "reader"), stdin=b"a\n")
    assert done.exit_code == 1
    assert f": User:{user} lacks WRITE on topic {user}; " in done.stderr
    assert f"`ottla acl allow User:{user} -o write --topic {user} --yes`" in done.stderr

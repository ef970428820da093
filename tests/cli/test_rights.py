"""What commands answer a user who has few rights: what is missing, and no trouble that there is not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_daily import items, run

from ottla.cli.output import with_way_out
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.marker import Marker
from ottla.sync import Admin, NewTopic
from ottla.testing import SecureBroker, secure_broker
from ottla.types import TopicPartition


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
    assert "User:alice lacks DESCRIBE on the cluster; who may alter the cluster allows it by `ottla acl allow User:alice" in done.stderr
    assert "no controller is active" not in done.stderr
    assert "alive" in done.stdout


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (("group", "list"), "--cluster"),
        (("group", "describe", "--all"), "--cluster"),
        (("txn", "list"), "--transactional-id '*'"),
    ],
)
def test_a_list_says_that_it_has_only_what_the_user_may_describe(
    served: SecureBroker, alice: tuple[str, str], tmp_path: Path, words: tuple[str, ...], right: str
) -> None:
    """Brokers leave out the rest without an error, and an empty list says that there is nothing."""
    done = run(served.bootstrap, *words, *alice)
    assert done.exit_code == 0
    assert "only what User:alice may describe is listed" in done.stderr
    assert f"`ottla acl allow User:alice -o describe {right} --yes`" in done.stderr
    of_admin = options_of(served, "admin", tmp_path / "admin")
    assert run(served.bootstrap, *words, *of_admin).stderr == ""


def test_an_empty_list_of_topics_says_what_may_be_seen(
    served: SecureBroker, alice: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty table of a user without rights says that there is nothing; one who sees some knows of rights."""
    assert "only what" not in run(served.bootstrap, "topic", "list", *alice).stderr
    monkeypatch.setattr("ottla.sync.Admin.list_topics", lambda _: {})
    assert "`ottla acl allow User:alice -o describe --topic '*' --yes`" in run(served.bootstrap, "topic", "list", *alice).stderr


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
        (("user", "add", "bob2", "--password-file", "-"), "ALTER on the cluster", "-o alter --cluster"),
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


def test_what_a_reset_may_not_delete_is_named(served: SecureBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is a name that the command was given, and DESCRIBE on the group is a right that the user has."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    with Admin(**served.for_ottla()) as of_admin:
        of_admin.create_topics([NewTopic("t", 1), NewTopic("sales-totals-checkpoint", 1)])
        of_admin.set_offsets("sales-totals", {TopicPartition("t", 0): 0}, metadata=Marker("id", 0, "hash", 0).text())
    served.user("dora")
    dora, admin = options_of(served, "dora", tmp_path / "dora"), options_of(served, "admin", tmp_path / "admin")
    for given in (("-o", "read", "--group", "sales-totals"), ("-o", "describe", "--topic", "sales-totals-checkpoint", "--topic", "t")):
        assert run(served.bootstrap, "acl", "allow", "User:dora", *given, "--yes", *admin).exit_code == 0
    lacking = ["DELETE on group sales-totals;", "DELETE on topic sales-totals-checkpoint;"]
    for lacks in lacking:
        done = run(served.bootstrap, "pipeline", "reset", "sales", "--yes", *dora)
        assert isinstance(done.exception, KafkaError), done.output
        said = with_way_out(done.exception)
        assert f"User:dora lacks {lacks}" in said
        advice = re.search("`ottla (acl allow [^`]*)`", said)
        assert advice is not None, said
        assert run(served.bootstrap, *advice[1].split(), *admin).exit_code == 0, advice[1]
    assert run(served.bootstrap, "pipeline", "reset", "sales", "--yes", *dora).exit_code == 0


@pytest.mark.parametrize(
    ("command", "lacks"),
    [
        (("txn", "find-hanging"), "READ on topic alone;"),
        (("cluster", "health"), "DESCRIBE_CONFIGS on topic alone;"),
        (("topic", "describe", "--under-min-isr"), "DESCRIBE_CONFIGS on topic alone;"),
    ],
)
def test_a_command_about_all_topics_names_the_one_that_was_refused(
    served: SecureBroker, tmp_path: Path, command: tuple[str, ...], lacks: str
) -> None:
    user = "-".join(("erin", *filter(str.isalpha, command)))
    served.user(user)
    erin, admin = options_of(served, user, tmp_path / "erin"), options_of(served, "admin", tmp_path / "admin")
    with Admin(**served.for_ottla()) as of_admin:
        of_admin.create_topics([NewTopic("alone", 1)])
    for given in ("--topic", "alone"), ("--cluster",):
        assert run(served.bootstrap, "acl", "allow", f"User:{user}", "-o", "describe", *given, "--yes", *admin).exit_code == 0
    done = run(served.bootstrap, *command, "-B", served.bootstrap, *erin)
    assert isinstance(done.exception, KafkaError), done.output
    assert f": User:{user} lacks {lacks}" in with_way_out(done.exception)


def test_the_configuration_of_topics_is_refused_with_the_topics_name(served: SecureBroker) -> None:
    served.user("fay")
    with Admin(**served.for_ottla()) as of_admin:
        of_admin.create_topics([NewTopic("quiet", 1)])
    with Admin(**served.for_ottla("fay")) as admin, pytest.raises(KafkaError, match=r"topic 'quiet': .* takes DESCRIBE_CONFIGS") as refused:
        admin.describe_config_of_topics(["quiet"], "retention.ms")
    assert refused.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_login_that_fails_says_whose_it_was_and_who_helps(served: SecureBroker, alice: tuple[str, str], tmp_path: Path) -> None:
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="wrong";'
    for command in (("topic", "list"), ("consume", "t", "--timeout", "5")):
        done = run(served.bootstrap, *command, *alice, "-X", f"sasl.jaas.config={login}")
        assert isinstance(done.exception, KafkaError), done.output
        said = with_way_out(done.exception)
        assert "; the login was that of User:alice, whose password is in the file of --command-config" in said
        assert "`ottla user list`, and sets a password by `ottla user add alice`" in said
        assert "no broker can be reached" not in done.stderr


def test_a_login_by_a_delegation_token_that_fails_names_the_token(served: SecureBroker, alice: tuple[str, str]) -> None:
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="t0k" password="x" tokenauth="true";'
    done = run(served.bootstrap, "topic", "list", *alice, "-X", f"sasl.jaas.config={login}")
    assert isinstance(done.exception, KafkaError), done.output
    said = with_way_out(done.exception)
    assert "; the login was by delegation token t0k of the file of --command-config" in said
    assert said.endswith("which may have ended; its owner sees it by `ottla token list`")


def test_a_token_of_another_owner_is_refused_with_the_right_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ACL is on the owner as a principal: one on the bare name allows nothing."""

    def refuse(*arguments: object, **options: object) -> None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)

    monkeypatch.setattr("ottla.sync.Admin.__init__", refuse)
    properties = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.plain.username=gus")
    done = run("127.0.0.1:1", "token", "create", "--owner", "User:bob", *(word for text in properties for word in ("-X", text)))
    assert isinstance(done.exception, KafkaError)
    [said] = done.exception.__notes__
    assert said.startswith(": User:gus lacks CREATE_TOKENS on user principal User:bob; ")
    assert "`ottla acl allow User:gus -o create-tokens --user-principal User:bob --yes`" in said


def test_a_quorum_that_zookeeper_mode_has_not_is_answered_with_the_command_that_shows_the_controller() -> None:
    error = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "DescribeQuorum: the broker does not have this API")
    assert with_way_out(error).endswith("no quorum; `ottla cluster status` shows which broker is the controller")


@pytest.mark.parametrize(
    ("properties", "user"),
    [
        ((), "User:ANONYMOUS"),
        (("security.protocol=SSL", "ssl.truststore.location=ca.pem"), "User:ANONYMOUS"),
        (("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.plain.username=gus"), "User:gus"),
        (
            ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER"),
            "the user of this command (User:NAME: brokers log its principal, at authorization_denied)",
        ),
    ],
)
def test_a_refusal_that_names_no_resource_advises_none(monkeypatch: pytest.MonkeyPatch, properties: tuple[str, ...], user: str) -> None:
    """Who shows no user is ANONYMOUS to the brokers."""

    def refuse(*arguments: object, **options: object) -> None:
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    monkeypatch.setattr("ottla.sync.Admin.__init__", refuse)
    done = run("127.0.0.1:1", "pipeline", "list", *(word for text in properties for word in ("-X", text)))
    assert isinstance(done.exception, KafkaError)
    assert done.exception.__notes__ == [
        f": {user} lacks DESCRIBE on a group; who may alter the cluster sees what is allowed by `ottla acl list`"
    ]


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


@pytest.fixture(scope="module")
def ops(served: SecureBroker, alice: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The options of a user who may describe and alter the cluster, as refusals advise, and sees no topic."""
    served.user("ops")
    directory = tmp_path_factory.mktemp("ops")
    allow = ("acl", "allow", "User:ops", "-o", "describe", "-o", "alter", "-o", "describe-configs", "--cluster", "--yes")
    assert run(served.bootstrap, *allow, *options_of(served, "admin", directory / "admin")).exit_code == 0
    return options_of(served, "ops", directory / "ops")


@pytest.mark.parametrize(
    ("command", "counted"),
    [
        (("cluster", "health", "-B", "*"), True),
        (("broker", "drain", "0"), True),
        (("broker", "drain", "0", "--replicas"), True),
        (("broker", "describe", "0"), False),
        (("broker", "unregister", "0"), False),
        (("partition", "elect"), False),
        (("topic", "describe", "--unavailable"), False),
    ],
)
def test_what_looks_at_all_topics_says_that_some_were_not_seen(
    served: SecureBroker, ops: tuple[str, str], tmp_path: Path, command: tuple[str, ...], counted: bool
) -> None:
    """Brokers leave out what the user may not describe: "all is well" would be about the rest."""
    with Admin(**served.for_ottla()) as admin:
        [node] = admin.describe_cluster().nodes
    words = [{"0": str(node.node_id), "*": served.bootstrap}.get(word, word) for word in command]
    done = run(served.bootstrap, *words, *ops)
    assert done.exit_code == 1, done.output
    assert "only the topics that User:ops may describe were looked at" in done.output
    assert ("other topic" in done.output) == counted, done.output
    assert "`ottla acl allow User:ops -o describe -o describe-configs --topic '*' --yes`" in done.output
    assert "leads nothing" not in done.output
    assert ": healthy" not in done.output
    of_admin = options_of(served, "admin", tmp_path / "admin")
    assert "were looked at" not in run(served.bootstrap, *words, *of_admin).output


def test_one_topic_that_is_denied_is_missed_where_a_broker_has_it(served: SecureBroker, tmp_path: Path) -> None:
    served.user("gil")
    gil, admin = options_of(served, "gil", tmp_path / "gil"), options_of(served, "admin", tmp_path / "admin")
    with Admin(**served.for_ottla()) as of_admin:
        of_admin.create_topics([NewTopic("denied", 1)])
    for given in (("--cluster",), ("--topic", "*")):
        operations = ("-o", "describe", "-o", "describe-configs")
        assert run(served.bootstrap, "acl", "allow", "User:gil", *operations, *given, "--yes", *admin).exit_code == 0
    assert run(served.bootstrap, "cluster", "health", "-B", served.bootstrap, *gil).exit_code == 0
    assert run(served.bootstrap, "acl", "deny", "User:gil", "-o", "describe", "--topic", "denied", "--yes", *admin).exit_code == 0
    done = run(served.bootstrap, "cluster", "health", "-B", served.bootstrap, *gil)
    assert done.exit_code == 1
    assert "User:gil may describe were looked at: 1 partition of 1 other topic is there" in done.stdout


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        (
            "monitor",
            [("cluster", "health", "-B", "*"), ("broker", "describe", "0"), ("quota", "list"), ("acl", "list")],
            ("topic", "delete"),
        ),
        ("topic-admin", [("topic", "create", "orders-of-admin"), ("topic", "delete", "orders-of-admin", "--yes")], ("partition", "elect")),
        ("on-call", [("cluster", "health", "-B", "*"), ("partition", "elect", "--yes"), ("txn", "find-hanging")], ("topic", "delete")),
    ],
)
def test_the_roles_of_the_page_have_the_rights_that_it_says(
    served: SecureBroker, tmp_path: Path, role: str, may: list[tuple[str, ...]], may_not: tuple[str, ...]
) -> None:
    served.user(role)
    user, admin = options_of(served, role, tmp_path / role), options_of(served, "admin", tmp_path / "admin")
    page = (Path(__file__).parents[2] / "docs" / "authorization.md").read_text()
    allowed = re.findall(rf"^ottla (acl allow User:{role} .*)$", page, re.MULTILINE)
    assert allowed
    for line in allowed:
        assert run(served.bootstrap, *shlex.split(line), *admin).exit_code == 0
    with Admin(**served.for_ottla()) as of_admin:
        [node] = of_admin.describe_cluster().nodes
        of_admin.create_topics([NewTopic("t", 1)])
    for command in may:
        words = [{"0": str(node.node_id), "*": served.bootstrap}.get(word, word) for word in command]
        done = run(served.bootstrap, *words, *user)
        assert (done.exit_code, done.exception) == (0, None), done.output
    done = run(served.bootstrap, *may_not, *(("t", "--yes") if may_not[0] == "topic" else ("--yes",)), *user)
    assert done.exit_code == 1


def test_health_says_that_it_could_not_look_for_late_transactions(served: SecureBroker, tmp_path: Path) -> None:
    served.user("hal")
    hal, admin = options_of(served, "hal", tmp_path / "hal"), options_of(served, "admin", tmp_path / "admin")
    with Admin(**served.for_ottla()) as of_admin:
        of_admin.create_topics([NewTopic("t", 1)])
    for given in (("--cluster",), ("--topic", "*")):
        operations = ("-o", "describe", "-o", "describe-configs")
        assert run(served.bootstrap, "acl", "allow", "User:hal", *operations, *given, "--yes", *admin).exit_code == 0
    done = run(served.bootstrap, "cluster", "health", "-B", served.bootstrap, *hal)
    assert (done.exit_code, "whether a transaction holds partitions was not looked at" in done.stdout) == (0, True), done.output

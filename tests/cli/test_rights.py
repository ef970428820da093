"""What commands answer a user who has few rights: what is missing, and no trouble that there is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.test_daily import items, run

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
    files = {}
    for user in ("admin", "alice"):
        file = tmp_path_factory.mktemp(user) / "client.properties"
        login = f'ScramLoginModule required username="{user}" password="{served.password_of(user)}";'
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f"org.apache.kafka.common.security.scram.{login}",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(served.authority),
        }
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        files[user] = str(file)
    operations = ("-o", "read", "-o", "write", "--topic", "t", "--yes")
    assert run(served.bootstrap, "acl", "allow", "User:alice", *operations, "--command-config", files["admin"]).exit_code == 0
    return "--command-config", files["alice"]


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

"""How a client makes itself known: which settings go together, and what it does with a broker that lets it in, or does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.broker.sasl import GUARDED, LISTENER, with_users
from tests.broker.test_node import properties
from tests.foreign_clients.wire import RawClient
from tests.waiting import eventually

from ottla.client.admin import UserChange
from ottla.client.options import ClusterSettings
from ottla.client.security import security_of
from ottla.client.settings import divided
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.security.client_exchange import INLINE_ITERATIONS_MAX, Credentials, OAuthCredentials
from ottla.security.mechanism import Refusal
from ottla.security.scram import ScramCredential, ScramMechanism, ScramServer
from ottla.sync import Admin, Consumer, Producer
from ottla.types import Secret

SCRAM_JAAS: Final = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="bob" password="builder";'
PLAIN_JAAS: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice-secret";'
BOB: Final = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "bob", "sasl_plain_password": "builder"}
OAUTH_JAAS: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
OAUTH: Final = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
ENDPOINT_URL: Final = "sasl_oauthbearer_token_endpoint_url"
ENDPOINT: Final = {
    ENDPOINT_URL: "https://issuer/token",
    "sasl_oauthbearer_client_credentials_client_id": "job",
    "sasl_oauthbearer_client_credentials_client_secret": "hush",
}
WAYS_IN: Final[dict[str, dict[str, Any]]] = {
    "PLAIN": {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN_JAAS},
    "SCRAM-SHA-256": {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": SCRAM_JAAS},
    "SCRAM-SHA-512": {**BOB, "sasl_mechanism": "SCRAM-SHA-512"},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(properties(tmp_path_factory.mktemp("guarded"), **GUARDED)) as thread:
        with RawClient(thread.addresses["PLAINTEXT"][1]) as client:
            with_users(client, {"bob": "builder"})
        yield thread


def address(broker: BrokerThread) -> str:
    return f"127.0.0.1:{broker.addresses[LISTENER][1]}"


@pytest.mark.parametrize("mechanism", WAYS_IN)
def test_each_client_gets_in(broker: BrokerThread, mechanism: str) -> None:
    with Producer(address(broker), **WAYS_IN[mechanism]) as producer:
        producer.send(mechanism, b"value").result(30)
    with Consumer(address(broker), auto_offset_reset="earliest", group_id=mechanism, **WAYS_IN[mechanism]) as consumer:
        consumer.subscribe([mechanism])
        assert next(iter(consumer)).value == b"value"
    with Admin(address(broker), **WAYS_IN[mechanism]) as admin:
        assert mechanism in admin.list_topics()


def test_a_wrong_password_is_not_tried_again(broker: BrokerThread) -> None:
    assert broker._broker is not None
    threshold = broker._broker.gate.threshold
    failed = threshold.tally.failed
    wrong: dict[str, Any] = {**BOB, "sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_password": "wrong"}
    with Admin(address(broker), **wrong) as admin:
        with pytest.raises(KafkaError) as caught:
            admin.list_topics()
        assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert threshold.tally.failed == failed + 1
    with Producer(address(broker), **wrong) as producer:
        with pytest.raises(KafkaError) as caught:
            producer.send("t", b"x").result(30)
        assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert threshold.tally.failed <= failed + 3


def test_what_the_broker_offers_is_said(broker: BrokerThread) -> None:
    assert broker._broker is not None
    with Admin(broker.bootstrap, **WAYS_IN["PLAIN"]) as admin, pytest.raises(KafkaError, match="does not speak SASL"):
        admin.list_topics()


def test_a_connection_is_replaced_before_its_session_ends(tmp_path_factory: pytest.TempPathFactory) -> None:
    more = {**GUARDED, "connections.max.reauth.ms": "400"}
    with BrokerThread(properties(tmp_path_factory.mktemp("short"), **more)) as broker:
        assert broker._broker is not None
        threshold = broker._broker.gate.threshold
        with Producer(address(broker), **WAYS_IN["PLAIN"]) as producer:
            sent = 0

            def send() -> int:
                nonlocal sent
                assert producer.send("t", b"x").result(30).offset == sent, "nothing is lost or doubled"
                sent += 1
                return threshold.tally.succeeded

            eventually(send, lambda count: count >= 6)
        assert threshold.tally.expired == 0


def test_users_are_administered(broker: BrokerThread) -> None:
    with Admin(broker.bootstrap) as admin:
        changes = [UserChange("carol", "SCRAM-SHA-256", "c", 8192), UserChange("carol", "SCRAM-SHA-512", Secret("c"))]
        assert admin.alter_users([*changes, UserChange("", "SCRAM-SHA-256", Secret("c"))])["carol"] is None
        assert admin.describe_users(["carol"]) == {"carol": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096}}
        assert set(admin.describe_users()) == {"bob", "carol"}
        assert admin.alter_users([UserChange("carol", "SCRAM-SHA-256"), UserChange("carol", "SCRAM-SHA-512")]) == {"carol": None}
        [missing] = admin.describe_users(["carol"]).values()
        assert isinstance(missing, KafkaError)
        assert missing.code == ErrorCode.RESOURCE_NOT_FOUND


def test_the_password_of_a_user_is_text_and_is_never_shown() -> None:
    """It is kept as a Secret however it was given; something else is refused where it is given, and not after a derivation."""
    given = UserChange("carol", "SCRAM-SHA-256", "marked-secret")
    assert given == UserChange("carol", "SCRAM-SHA-256", Secret("marked-secret"))
    assert "marked-secret" not in repr(given)
    with pytest.raises(TypeError, match="password is bytes, and a str is expected"):
        UserChange("carol", "SCRAM-SHA-256", b"marked-secret")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"security_protocol": "TLS"}, "security_protocol"),
        ({"sasl_mechanism": "PLAIN"}, "sasl.mechanism has no effect"),
        ({"sasl_plain_password": "hush"}, "sasl.plain.password has no effect"),
        ({"sasl_jaas_config": "hush"}, "sasl.jaas.config has no effect"),
        ({"security_protocol": "sasl_plaintext"}, "sasl.mechanism is not set"),
        ({"security_protocol": "sasl_plaintext", "sasl_mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI is not supported"),
        ({"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN"}, "needs a name and a password"),
        ({"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN", "sasl_plain_username": "hush"}, "needs a name and a password"),
        ({"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN", "sasl_jaas_config": SCRAM_JAAS}, "the module of PLAIN is"),
        ({**WAYS_IN["PLAIN"], "sasl_plain_username": "alice"}, "say the same"),
        ({**WAYS_IN["PLAIN"], "sasl_oauth_token": str}, "sasl.oauth.token has no effect with sasl.mechanism=PLAIN"),
        (OAUTH, "needs sasl_oauth_token, a function that gives a token, or all of sasl.oauthbearer.token.endpoint.url"),
        ({**OAUTH, "sasl_jaas_config": OAUTH_JAAS}, "needs sasl_oauth_token, a function that gives a token, or all of"),
        ({**OAUTH, "sasl_jaas_config": PLAIN_JAAS}, "the module of OAUTHBEARER is"),
        ({**OAUTH, "sasl_jaas_config": OAUTH_JAAS.replace(";", ' extension_a="hush";')}, "sasl.jaas.config: extension_a is not supported"),
        ({**OAUTH, **ENDPOINT, ENDPOINT_URL: "file:/t"}, "is a file, which has the token itself: leave out"),
        ({**OAUTH, ENDPOINT_URL: "file:/t", "sasl_oauthbearer_scope": "a"}, "is a file, which has the token itself: leave out"),
        ({**OAUTH, "sasl_plain_username": "alice"}, "sasl.plain.username has no effect with sasl.mechanism=OAUTHBEARER"),
        ({**OAUTH, "sasl_oauth_token": "hush"}, "expected a function"),
        ({**OAUTH, **ENDPOINT, "sasl_oauth_token": str}, "exclude each other"),
        ({**OAUTH, **ENDPOINT, ENDPOINT_URL: "http://issuer"}, "a secret is sent there"),
        ({**OAUTH, **ENDPOINT, ENDPOINT_URL: "https://hush@issuer"}, "have no place in it"),
        ({**OAUTH, **ENDPOINT}, "nothing can be fetched here"),
        ({**WAYS_IN["PLAIN"], "sasl_jaas_config": "hush"}, "no control flag"),
        ({"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN", "sasl_plain_password": 7}, "expected a string"),
        ({**WAYS_IN["PLAIN"], "sasl_jaas_config": PLAIN_JAAS.replace(";", " tokenauth=true;")}, "tokenauth needs SCRAM"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(KafkaError) as caught:
        security_of(divided((ClusterSettings,), given)[0])
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert says in caught.value.message
    assert "hush" not in caught.value.message


def test_a_token_of_a_file_is_what_the_file_has_at_each_connection() -> None:
    files = {"/a token": b"one\n"}
    [settings] = divided((ClusterSettings,), {**OAUTH, ENDPOINT_URL: "file:/a%20token"})
    credentials = security_of(settings, files.__getitem__).credentials
    assert isinstance(credentials, OAuthCredentials)
    assert credentials.asks() == "one"
    files["/a token"] = b"two\n"
    assert credentials.asks() == "two"


def test_much_work_is_done_elsewhere_and_once() -> None:
    mechanism, salt, count = ScramMechanism.SHA_256, b"salt", INLINE_ITERATIONS_MAX + 1
    password, done = Secret("builder"), 0
    kept = ScramCredential.of_salted(mechanism, mechanism.salted(password, salt, count), salt, count)
    credentials = Credentials("SCRAM-SHA-256", "bob", password)
    for _ in range(3):
        server = ScramServer(mechanism, {"bob": kept}.get, nonce="S", decoy_key=b"")
        exchange = credentials.begin(lambda: "C")
        challenge = server.step(exchange.first()).token
        work = exchange.work(challenge)
        if work is not None:
            work()
            done += 1
        proof = exchange.step(challenge)
        assert proof is not None
        assert exchange.step(server.step(proof).token) is None
    assert done == 1


def test_a_server_that_answers_plain_with_something_is_refused() -> None:
    exchange = Credentials("PLAIN", "bob", Secret("builder")).begin(lambda: "")
    assert exchange.first() == b"\0bob\0builder"
    with pytest.raises(Refusal):
        exchange.step(b"hello")


def test_settings_do_not_show_what_is_secret() -> None:
    [settings] = divided((ClusterSettings,), WAYS_IN["PLAIN"])
    assert "alice-secret" not in repr(settings) + repr(security_of(settings))

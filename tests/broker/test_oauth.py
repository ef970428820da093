"""OAUTHBEARER: who is let in by a token that the issuer has signed, and where the keys are."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.server
import itertools
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

import pytest
import trustme
from tests.broker.sasl import JAAS, LISTENER, handshake, token
from tests.broker.test_node import properties
from tests.foreign_clients.wire import RawClient
from tests.security.issuer import AUDIENCE, ISSUER, claims, ec_key, key_set, rsa_jwk, rsa_key, signed
from tests.waiting import eventually

from ottla.broker.requests.candidate import Candidate
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.list_groups import ListGroupsRequest
from ottla.ports import Download
from ottla.runtime import https
from ottla.runtime.serve import BrokerThread
from ottla.security.oauthbearer import oauth_token
from ottla.sync import Admin, Producer
from ottla.types import Secret

PREFIX: Final = "listener.name.guarded.oauthbearer"
LOGIN: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
OAUTH: Final = {
    "listeners": f"PLAINTEXT://127.0.0.1:0,{LISTENER}://127.0.0.1:0",
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
    "listener.name.guarded.plain.sasl.jaas.config": JAAS,
    f"{PREFIX}.sasl.jaas.config": LOGIN,
    f"{PREFIX}.sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "sasl.oauthbearer.expected.audience": AUDIENCE,
    f"{PREFIX}.sasl.oauthbearer.expected.issuer": ISSUER,
    "connection.failed.authentication.delay.ms": "0",
}
SLOW: Final = b"byte by byte"
"""An answer each of whose bytes is a record of TLS."""
URL: Final = "sasl.oauthbearer.jwks.endpoint.url"


def given(directory: Path, more: Mapping[str, str] = MappingProxyType({}), *, data: bytes = b"") -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    keys = directory / "keys.json"
    keys.write_bytes(data or key_set())
    return properties(directory / "data", **(OAUTH | {URL: f"file:{keys}"} | dict(more)))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(given(tmp_path_factory.mktemp("oauth"))) as thread:
        yield thread


def settings(asks: Callable[[], object]) -> dict[str, Any]:
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token": asks}


def address(broker: BrokerThread) -> str:
    return f"127.0.0.1:{broker.addresses[LISTENER][1]}"


def shown(broker: BrokerThread, text: str) -> tuple[RawClient, Any]:
    client = RawClient(broker.addresses[LISTENER][1])
    assert handshake(client, "OAUTHBEARER").error_code == 0
    return client, token(client, oauth_token(Secret(text)))


def principals(broker: BrokerThread) -> set[str]:
    assert broker._broker is not None
    return {str(one.principal) for one in list(broker._broker.router.connections) if one.listener == LISTENER}


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_client_is_its_tokens_subject(broker: BrokerThread, is_awaited: bool) -> None:
    async def awaited() -> str:
        return signed(claims(sub="bob"), {"alg": "ES256", "kid": "ec"}, ec_key())

    with Admin(address(broker), **settings(awaited if is_awaited else lambda: signed(claims()))) as admin:
        admin.list_topics()
        wanted = {"User:bob" if is_awaited else "User:alice"}
        eventually(lambda: principals(broker), lambda found: found == wanted)  # connections of the test before may not be closed yet


@pytest.mark.parametrize(
    ("asks", "says"),
    [
        (lambda: signed(claims(aud="other")), "authentication failed"),
        (lambda: signed(claims(), {"alg": "none"}), "authentication failed"),
        (lambda: 7, "has not given a token"),
        (lambda: "two words", "has not given a token"),
        (lambda: 1 // 0, "sasl_oauth_token has failed: ZeroDivisionError"),
    ],
)
def test_a_client_without_a_good_token_gets_an_error_and_tries_once(broker: BrokerThread, asks: Callable[[], object], says: str) -> None:
    with Admin(address(broker), **settings(asks)) as admin, pytest.raises(KafkaError, match=says) as caught:
        admin.list_topics()
    assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not caught.value.is_transient


def test_every_failed_authentication_gets_the_same_text_and_logs_no_token(broker: BrokerThread, capfd: pytest.CaptureFixture[str]) -> None:
    texts = set()
    for text in (signed(claims(sub="mallory", iss="x")), signed(claims(sub="mallory"), {"alg": "RS256", "kid": "mallory"}), "mallory"):
        client, answer = shown(broker, text)
        with client:
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed_by_broker()
        texts.add(answer.error_message)
    assert len(texts) == 1
    captured = capfd.readouterr()
    assert "authentication_failed" in captured.out
    assert "mallory" not in captured.out + captured.err


def test_a_session_ends_with_its_token(broker: BrokerThread) -> None:
    """One that has just ended is good within the skew of clocks, and the session ends at once."""
    client, answer = shown(broker, signed(claims(exp=time.time() - 1)))
    with client:
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 1)
        assert broker._broker is not None
        threshold, connections = broker._broker.gate.threshold, broker._broker.router.connections
        own = [one for one in connections if one.transport.peer[1] == client.socket.getsockname()[1]]
        eventually(lambda: [type(one.pipeline) for one in own], lambda kinds: kinds == [Candidate])
        assert threshold._standings[own[0]].session.principal.name == "alice"
        client.send(ListGroupsRequest(), 4)
        assert client.is_closed_by_broker()


def test_a_key_that_is_new_is_looked_for_once(tmp_path: Path) -> None:
    with BrokerThread(given(tmp_path)) as broker:
        keys = tmp_path / "keys.json"
        new = signed(claims(), {"alg": "RS256", "kid": "new"})
        keys.write_bytes(key_set(rsa_jwk(rsa_key(), kid="new")))

        def outcome(text: str) -> int:
            client, answer = shown(broker, text)
            with client:
                return int(answer.error_code)

        assert outcome(new) == ErrorCode.SASL_AUTHENTICATION_FAILED, "it is read again for the next one"
        eventually(lambda: outcome(new), lambda code: code == 0)
        keys.write_bytes(key_set(rsa_jwk(rsa_key(), kid="newer")))
        newer = signed(claims(), {"alg": "RS256", "kid": "newer"})
        eventually(lambda: outcome(newer), lambda code: code == 0)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({URL: ""}, "without keys anybody could make tokens"),
        ({URL: "http://127.0.0.1/keys"}, "https://HOST/PATH or file:/PATH is expected"),
        ({URL: "https:///keys"}, "https://HOST/PATH or file:/PATH is expected"),
        ({URL: "https://user:hush@host/keys"}, "have no place in it"),
        ({URL: "file:keys.json"}, "file:/PATH is expected"),
        ({URL: "file://host/keys.json"}, "file:/PATH is expected"),
        ({URL: "file:/nowhere/keys.json"}, "cannot be read"),
        ({URL: "file:/dev/zero"}, "not a regular file"),
        ({f"{PREFIX}.sasl.server.callback.handler.class": "com.example.Handler"}, "sasl.server.callback.handler.class"),
        (
            {f"{PREFIX}.sasl.jaas.config": JAAS},
            "OAuthBearerLoginModule is the module of OAUTHBEARER",
        ),
        (
            {f"{PREFIX}.sasl.jaas.config": OAUTH[f"{PREFIX}.sasl.jaas.config"].replace(";", ' unsecuredValidatorPrincipalClaimName="x";')},
            "tokens that are not signed",
        ),
    ],
)
def test_settings_that_would_let_anybody_in_are_refused_at_the_start(tmp_path: Path, more: dict[str, str], says: str) -> None:
    with pytest.raises(KafkaError) as caught:
        BrokerThread(given(tmp_path, more)).start()
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert says in caught.value.message
    assert "hush" not in caught.value.message
    assert not (tmp_path / "data").exists()


def test_a_file_that_is_no_key_set_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="it is no key set"):
        BrokerThread(given(tmp_path, data=b"not JSON")).start()


class Issuer(http.server.BaseHTTPRequestHandler):
    answers: list[bytes | int]
    """One for each request, the last one for all that follow; a number is a status."""

    def do_GET(self) -> None:
        answers = type(self).answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer == SLOW:
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}":
                self.request.sendall(bytes([byte]))
            return
        if isinstance(answer, int):
            self.send_response(answer)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    posted: ClassVar[list[tuple[str, str]]] = []
    token: bytes

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        credentials = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        type(self).posted.append((credentials, form))
        self.send_response(200 if credentials.endswith(":top%20secret") else 401)
        self.end_headers()
        self.wfile.write(type(self).token)

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def issuing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an issuer that is served meanwhile, and trusted."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(directory / "authority.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    serving.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        serving.join(30)


def test_keys_are_fetched_over_https_and_a_failure_leaves_the_door_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Issuer.answers = [302, b"{}", b"x" * (2 << 20), key_set()]
    with issuing(tmp_path, monkeypatch) as url:
        more = {"sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "1", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "5"}
        with BrokerThread(given(tmp_path, {URL: f"{url}/keys?a=b", **more})) as broker:

            def outcome() -> int:
                client, answer = shown(broker, signed(claims()))
                with client:
                    return int(answer.error_code)

            assert eventually(outcome, lambda code: code == 0) == 0
            assert len(Issuer.answers) == 1, "each failure was one"


def test_a_document_that_comes_byte_by_byte_is_given_up_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header without an end held a thread for good, which the broker waited for when it stopped."""
    seconds = itertools.count()
    monkeypatch.setattr(https, "monotonic", lambda: float(next(seconds)))
    Issuer.answers = [SLOW]
    with issuing(tmp_path, monkeypatch) as url, pytest.raises(TimeoutError, match="it takes longer than 10 seconds"):
        asyncio.run(https.fetch(Download(url, 1000)))


def test_an_issuer_of_an_unknown_authority_is_refused_with_the_way_to_trust_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with issuing(tmp_path, monkeypatch) as url:
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(OSError, match=r"certificate is not trusted \(.*\); SSL_CERT_FILE may name other authorities"):
            asyncio.run(https.fetch(Download(url, 1000)))


def test_a_client_has_its_token_from_a_file(broker: BrokerThread, tmp_path: Path) -> None:
    """As Kafka's clients have them, whose files name the login module, too. A command has no other way to a token that it is given."""
    place = tmp_path / "a token.jwt"
    made: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": LOGIN}
    made |= {"sasl_oauthbearer_token_endpoint_url": place.as_uri()}
    with pytest.raises(KafkaError, match=r"a token\.jwt cannot be read: No such file"):
        Admin(address(broker), **made)
    for subject in ("job-1", "job-2"):
        place.write_text(signed(claims(sub=subject)) + "\n")
        with Producer(address(broker), **made) as producer:
            producer.send("by-file", b"value").result(30)
            assert f"User:{subject}" in principals(broker)


def test_the_login_module_may_have_the_clients_id_and_secret_as_up_to_kafka_4_0(
    broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with issuing(tmp_path, monkeypatch) as url:
        Issuer.posted.clear()
        Issuer.token = json.dumps({"access_token": signed(claims(sub="job")), "expires_in": 3600, "token_type": "bearer"}).encode()
        made: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        made |= {"sasl_oauthbearer_token_endpoint_url": f"{url}/token"}
        login = LOGIN.replace(";", ' clientId="job:1" clientSecret="top secret" scope="a b";')
        with Producer(address(broker), sasl_jaas_config=login, **made) as producer:
            producer.send("by-module", b"value").result(30)
        assert Issuer.posted[0] == ("job%3A1:top%20secret", "grant_type=client_credentials&scope=a+b")


def test_a_client_has_its_tokens_from_the_issuer(broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the grant of client credentials: one token for all connections, and none for a wrong secret."""
    keys = [f"sasl_oauthbearer_client_credentials_client_{name}" for name in ("id", "secret")]
    with issuing(tmp_path, monkeypatch) as url:
        Issuer.posted.clear()
        own = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_scope": "a b"}
        own |= {"sasl_oauthbearer_token_endpoint_url": f"{url}/token", keys[0]: "job:1"}
        made: dict[str, Any] = own | {keys[1]: "top secret"}
        for life, asked in ((3600, 1), (0, 2)):
            Issuer.token = json.dumps({"access_token": signed(claims(sub="job")), "expires_in": life, "token_type": "bearer"}).encode()
            Issuer.posted.clear()
            with Producer(address(broker), **made) as producer:
                producer.send(f"by-{life}", b"value").result(30)
                assert "User:job" in principals(broker)
            assert Issuer.posted[0] == ("job%3A1:top%20secret", "grant_type=client_credentials&scope=a+b")
            assert min(len(Issuer.posted), 2) == asked, "the second connection has the same one, while it is good"
        wrong: dict[str, Any] = own | {keys[1]: "guess"}
        for token_of, secret_is, says in ((b"{}", made, "has no access_token"), (b"{}", wrong, "the issuer gives this client no token")):
            Issuer.token = token_of
            with Admin(address(broker), **secret_is) as admin, pytest.raises(KafkaError, match=says) as caught:
                admin.list_topics()
            assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED

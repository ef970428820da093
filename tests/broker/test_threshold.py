"""A listener that asks who somebody is: what is answered, what ends the connection, and within which bounds."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.sasl import (
    ALICE,
    GUARDED,
    LISTENER,
    MECHANISMS,
    authenticate,
    authenticate_by_scram,
    handshake,
    sent_together,
    token,
    with_users,
)
from tests.broker.test_node import properties
from tests.foreign_clients.wire import RawClient, batch_of, produce_request
from tests.waiting import eventually

from ottla.broker.requests import refusals
from ottla.broker.requests.candidate import Candidate
from ottla.broker.requests.doorstep import Doorstep
from ottla.broker.requests.threshold import HELD_BYTES_MAX
from ottla.errors import ErrorCode
from ottla.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.describe_groups import DescribeGroupsRequest
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.messages.list_groups import ListGroupsRequest
from ottla.messages.metadata import MetadataRequest
from ottla.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.messages.sasl_handshake import SaslHandshakeRequest
from ottla.runtime.serve import BrokerThread
from ottla.security.plain import plain_token
from ottla.security.scram import ScramMechanism
from ottla.types import Secret

WRONG = plain_token("alice", Secret("wrong"))
DELAY_MS = 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    more = {"connection.failed.authentication.delay.ms": str(DELAY_MS)}
    with BrokerThread(properties(tmp_path_factory.mktemp("guarded"), **GUARDED, **more)) as thread:
        with RawClient(port_of(thread, "PLAINTEXT")) as client:
            with_users(client, {"bob": "builder"})
        yield thread


def port_of(broker: BrokerThread, listener: str = LISTENER) -> int:
    return broker.addresses[listener][1]


def is_served(client: RawClient) -> bool:
    return client.ask(ListGroupsRequest(), 4).error_code == 0


def started(path: Path, **more: str) -> BrokerThread:
    return BrokerThread(properties(path, **GUARDED, **{name.replace("_", "."): value for name, value in more.items()}))


def principals(broker: BrokerThread) -> set[str]:
    assert broker._broker is not None
    return {str(connection.principal) for connection in list(broker._broker.router.connections) if connection.listener == LISTENER}


def begin_again(client: RawClient, mechanism: str = "PLAIN") -> Any:
    """The answer to the first handshake that is taken for one: Kafka's second has passed."""
    return eventually(lambda: handshake(client, mechanism), lambda answer: answer.error_code != ErrorCode.ILLEGAL_SASL_STATE)


@pytest.mark.parametrize("versions_first", [False, True])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_with_the_right_password_is_served(broker: BrokerThread, versions_first: bool, version: int) -> None:
    with RawClient(port_of(broker)) as client:
        if versions_first:
            assert {17, 36} <= {key.api_key for key in client.ask(ApiVersionsRequest("raw", "1"), 4).api_keys}
        assert handshake(client).mechanisms == list(MECHANISMS)
        answer = token(client, ALICE, version)
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
        assert is_served(client)
        assert "User:alice" in principals(broker)


def test_bare_tokens_follow_a_handshake_of_version_0(broker: BrokerThread) -> None:
    with RawClient(port_of(broker)) as client:
        assert handshake(client, version=0).error_code == 0
        client.send_frame(ALICE)
        assert client.receive_frame() == b""
        assert is_served(client)
    with RawClient(port_of(broker)) as client:
        handshake(client, version=0)
        client.send_frame(WRONG)
        assert client.is_closed_by_broker()


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_scram_users_are_those_of_the_metadata(broker: BrokerThread, mechanism: ScramMechanism) -> None:
    with RawClient(port_of(broker)) as client:
        assert authenticate_by_scram(client, "bob", "builder", mechanism).error_code == 0
        assert is_served(client)
        assert "User:bob" in principals(broker)
    for name, password in (("bob", "wrong"), ("mallory", "builder"), ("alice", "alice-secret")):
        with RawClient(port_of(broker)) as client:
            answer = authenticate_by_scram(client, name, password, mechanism)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed_by_broker()


def test_every_failed_authentication_gets_the_same_text_after_the_delay(broker: BrokerThread) -> None:
    texts = set()
    for data in (WRONG, plain_token("mallory", Secret("x")), b"", b"\0" * 9, b"bob\0alice\0alice-secret"):
        with RawClient(port_of(broker)) as client:
            handshake(client)
            began = time.monotonic()
            answer = token(client, data)
            assert time.monotonic() - began >= DELAY_MS / 1000
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed_by_broker()
            texts.add(answer.error_message)
    assert len(texts) == 1


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(broker: BrokerThread) -> None:
    for name in ("GSSAPI", "plain", "", "OAUTHBEARER"):
        with RawClient(port_of(broker)) as client:
            answer = handshake(client, name)
            assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, list(MECHANISMS))
            assert client.is_closed_by_broker()


def test_nothing_else_is_served_before(broker: BrokerThread) -> None:
    for request, version in ((MetadataRequest(None), 9), (SaslAuthenticateRequest(ALICE), 2), (ListGroupsRequest(), 4)):
        with RawClient(port_of(broker)) as client:
            client.send(request, version)
            assert client.is_closed_by_broker()


def test_an_unauthenticated_connection_is_not_believed_to_be_a_node(broker: BrokerThread) -> None:
    assert broker._broker is not None
    callers = broker._broker.parts.home.callers
    with RawClient(port_of(broker)) as client:
        assert client.ask(ApiVersionsRequest("ottla", "1", node_id=77), 3).error_code == 0
        assert not callers.hears(77)
        authenticate(client)
        assert client.ask(ApiVersionsRequest("ottla", "1", node_id=77), 3).error_code == 0
        assert callers.hears(77)


def test_versions_are_asked_once(broker: BrokerThread) -> None:
    with RawClient(port_of(broker)) as client:
        client.ask(ApiVersionsRequest("raw", "1"), 3)
        client.send(ApiVersionsRequest("raw", "1"), 3)
        assert client.is_closed_by_broker()


@pytest.mark.parametrize("refused", [ApiVersionsRequest("", "1")])
def test_versions_may_be_asked_again_after_a_refusal(broker: BrokerThread, refused: ApiVersionsRequest) -> None:
    with RawClient(port_of(broker)) as client:
        assert client.ask(refused, 3).error_code == ErrorCode.INVALID_REQUEST
        assert client.ask(ApiVersionsRequest("raw", "1"), 3).error_code == 0
        client.send(ApiVersionsRequest("raw", "1"), 3)
        assert client.is_closed_by_broker()


def test_another_request_where_a_token_is_due_is_answered_and_ends_the_connection(broker: BrokerThread) -> None:
    for request, version in ((ListGroupsRequest(), 4), (SaslHandshakeRequest("PLAIN"), 1), (ApiVersionsRequest("raw", "1"), 3)):
        with RawClient(port_of(broker)) as client:
            handshake(client)
            assert client.ask(request, version).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert client.is_closed_by_broker()
    with RawClient(port_of(broker)) as client:  # whose answer has no place for a code
        handshake(client)
        client.send(DescribeGroupsRequest(["g"]), 5)
        assert client.is_closed_by_broker()


def test_requests_sent_with_a_wrong_token_are_not_handled(broker: BrokerThread) -> None:
    with RawClient(port_of(broker)) as client:
        handshake(client)
        with sent_together(client):
            client.send(SaslAuthenticateRequest(WRONG), 2)
            client.send(ListGroupsRequest(), 4)
        assert client.receive().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed_by_broker()


def test_what_was_sent_with_the_right_token_is_answered_after_it(broker: BrokerThread) -> None:
    with RawClient(port_of(broker)) as client:
        with sent_together(client):
            client.send(SaslHandshakeRequest("PLAIN"), 1)
            client.send(SaslAuthenticateRequest(ALICE), 2)
            client.send(ListGroupsRequest(), 4)
        assert [client.receive().error_code for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("listener", ["PLAINTEXT", LISTENER])
def test_a_needless_handshake_is_answered_with_an_error(broker: BrokerThread, listener: str) -> None:
    with RawClient(port_of(broker, listener)) as client:
        if listener == LISTENER:
            authenticate(client)
        for _ in range(2):
            assert handshake(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert token(client, ALICE).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(client)


def test_frames_are_small_before_and_large_after(tmp_path: Path) -> None:
    with started(tmp_path, sasl_server_max_receive_size="2000") as broker:
        with RawClient(port_of(broker)) as client:
            client.send(SaslHandshakeRequest("x" * 2000), 1)
            assert client.is_closed_by_broker(), "and it is not answered which mechanisms there are"
        with RawClient(port_of(broker)) as client:
            authenticate(client)
            many = [f"group-{number}" for number in range(1000)]
            assert len(client.ask(DescribeGroupsRequest(many), 5).groups) == 1000


@pytest.mark.parametrize("trickle", [b"", b"\0\0\0\x30"])
def test_there_is_a_time_for_it_whatever_is_sent_meanwhile(tmp_path: Path, trickle: bytes) -> None:
    with (
        started(tmp_path, ottla_authentication_timeout_ms="300") as broker,
        RawClient(port_of(broker)) as served,
        RawClient(port_of(broker)) as client,
    ):
        authenticate(served)
        client.send_bytes(trickle)
        client.socket.settimeout(0.05)

        def has_ended() -> bool:
            try:
                return client.socket.recv(1) == b""
            except TimeoutError:
                client.send_bytes(trickle[:1])
                return False
            except ConnectionError:
                return True

        eventually(has_ended, bool)
        assert broker._broker is not None
        assert broker._broker.gate.threshold.tally.overdue == 1
        assert is_served(served), "who has authenticated stays"


def test_above_the_limit_the_longest_waiting_unauthenticated_connection_is_closed(tmp_path: Path) -> None:
    with started(tmp_path, ottla_unauthenticated_connections_max="3") as broker, RawClient(port_of(broker)) as served:
        authenticate(served)
        waiting = [RawClient(port_of(broker)) for _ in range(5)]
        assert [client.is_closed_by_broker() for client in waiting[:2]] == [True, True]
        assert [authenticate(client).error_code for client in waiting[2:]] == [0, 0, 0]
        assert is_served(served)
        for client in waiting:
            client.socket.close()


def test_what_they_hold_together_is_bounded(broker: BrokerThread) -> None:
    """Each sends all but the end of a frame of half a mebibyte."""
    assert broker._broker is not None
    threshold, size = broker._broker.gate.threshold, 524_288
    crowded_out, overdue = threshold.tally.crowded_out, threshold.tally.overdue
    clients = [RawClient(port_of(broker)) for _ in range(HELD_BYTES_MAX // size + 8)]
    try:
        for client in clients:
            try:
                client.send_bytes(size.to_bytes(4, "big") + bytes(size - 1))
            except ConnectionError:
                pass  # closed to make room for others
        eventually(lambda: threshold.tally.crowded_out - crowded_out, lambda count: count >= 7)
        eventually(lambda: threshold.held_bytes, lambda count: 0 < count <= HELD_BYTES_MAX)
        with RawClient(port_of(broker)) as client:
            assert authenticate(client).error_code == 0
    finally:
        for client in clients:
            client.socket.close()
    eventually(lambda: (threshold.waiting_count, threshold.held_bytes), lambda left: left == (0, 0))
    assert threshold.tally.overdue == overdue, "they are counted out as they end, and not when their time is over"


def test_a_session_authenticates_again_before_its_end(tmp_path: Path) -> None:
    with started(tmp_path, connections_max_reauth_ms="60000") as broker, RawClient(port_of(broker)) as client:
        answer = authenticate(client)
        assert 59_000 <= answer.session_lifetime_ms <= 60_000
        assert handshake(client).error_code == 0, "at any time, as of a token that is about to expire"
        for begins in (lambda: None, lambda: begin_again(client)):
            begins()
            client.send(SaslAuthenticateRequest(ALICE), 2)
            client.send(ListGroupsRequest(), 4)
            assert [client.receive().error_code for _ in range(2)] == [0, 0]
            assert handshake(client).error_code == ErrorCode.ILLEGAL_SASL_STATE, "not twice within a second"
        assert broker._broker is not None
        assert broker._broker.gate.threshold.tally.succeeded_again == 2


@pytest.mark.parametrize(
    ("mechanism", "data", "code"),
    [
        ("SCRAM-SHA-256", b"", ErrorCode.SASL_AUTHENTICATION_FAILED),
        ("PLAIN", plain_token("admin", Secret("admin-secret")), ErrorCode.SASL_AUTHENTICATION_FAILED),
        ("PLAIN", WRONG, ErrorCode.SASL_AUTHENTICATION_FAILED),
    ],
    ids=["another mechanism", "another principal", "wrong password"],
)
def test_a_session_stays_what_it_was(tmp_path: Path, mechanism: str, data: bytes, code: ErrorCode) -> None:
    with started(tmp_path, connections_max_reauth_ms="60000") as broker, RawClient(port_of(broker)) as client:
        authenticate(client)
        answer = begin_again(client, mechanism)
        if not answer.error_code:
            answer = token(client, data)
        assert answer.error_code == code
        assert client.is_closed_by_broker()


def test_a_session_that_authenticates_again_begins_nothing_else_meanwhile(tmp_path: Path) -> None:
    with started(tmp_path, connections_max_reauth_ms="60000") as broker, RawClient(port_of(broker)) as client:
        authenticate(client)
        begin_again(client)
        client.send(ListGroupsRequest(), 4)
        assert client.is_closed_by_broker()


@pytest.mark.parametrize("comes_in_time", [False, True])
def test_an_expired_session_may_only_authenticate_again(tmp_path: Path, comes_in_time: bool) -> None:
    with started(tmp_path, connections_max_reauth_ms="1200") as broker, RawClient(port_of(broker)) as client:
        assert authenticate(client).session_lifetime_ms <= 1200
        assert broker._broker is not None
        threshold, connections = broker._broker.gate.threshold, broker._broker.router.connections
        eventually(lambda: [type(one.pipeline) for one in list(connections)], lambda kinds: kinds == [Candidate])
        if comes_in_time:
            assert authenticate(client).error_code == 0
            assert is_served(client)
        else:
            client.send(ListGroupsRequest(), 4)
            assert client.is_closed_by_broker()
        assert threshold.tally.expired == (not comes_in_time)


def test_an_expired_session_has_the_time_of_a_new_connection(tmp_path: Path) -> None:
    limits = {"connections_max_reauth_ms": "1000", "ottla_authentication_timeout_ms": "1000"}
    with started(tmp_path, **limits) as broker, RawClient(port_of(broker)) as client:
        authenticate(client)
        assert broker._broker is not None
        threshold, connections = broker._broker.gate.threshold, broker._broker.router.connections
        eventually(lambda: [type(one.pipeline) for one in list(connections)], lambda kinds: kinds == [Candidate])
        assert handshake(client).error_code == 0
        assert client.is_closed_by_broker(), "it has begun, and does not go on"
        assert threshold.tally.overdue == 1


@pytest.mark.parametrize("by", ["a fetch that waits", "a pause of its quota"])
def test_the_time_to_authenticate_again_does_not_count_while_the_broker_keeps_a_client_waiting(tmp_path: Path, by: str) -> None:
    """A client that did nothing wrong lost its connection: the answer to its handshake had to wait for longer than it had time."""
    limits = {"connections_max_reauth_ms": "60000", "ottla_authentication_timeout_ms": "2000"}
    with started(tmp_path, **limits) as broker, RawClient(port_of(broker)) as client:
        with RawClient(port_of(broker, "PLAINTEXT")) as admin:
            ops = [OpData("producer_byte_rate", 1000.0, remove=False)]
            quotas = admin.ask(AlterClientQuotasRequest([EntryData([EntityData("user", "alice")], ops)], validate_only=False), 1)
            created = admin.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1)], timeout_ms=30_000), 2)
            assert [quotas.entries[0].error_code, created.topics[0].error_code] == [0, 0]
        authenticate(client)
        wanted = FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)])
        fetch = FetchRequest(max_wait_ms=3000, min_bytes=1, topics=[wanted])
        with sent_together(client):
            client.send(fetch, 4) if by == "a fetch that waits" else client.send(produce_request("t", batch_of(bytes(14_000))), 7)
            client.send(SaslHandshakeRequest("PLAIN"), 1)
        before = client.receive()
        assert by == "a fetch that waits" or before.throttle_time_ms > 2000, "for longer than it has time"
        assert client.receive().error_code == 0
        assert token(client, ALICE).error_code == 0
        assert is_served(client)


def test_a_session_that_expires_on_the_doorstep_is_not_let_in(tmp_path: Path) -> None:
    """Its node joined its cluster after the session's end."""
    with started(tmp_path, connections_max_reauth_ms="1000") as broker, RawClient(port_of(broker)) as client:
        assert broker._broker is not None
        assert broker._loop is not None
        gate, connections = broker._broker.gate, broker._broker.router.connections
        gate._doorstep = doorstep = Doorstep(gate.router, bytes(16))
        authenticate(client)
        assert len(doorstep._connections) == 1
        eventually(lambda: [type(one.pipeline) for one in list(connections)], lambda kinds: kinds == [Candidate])
        gate._doorstep = None
        broker._loop.call_soon_threadsafe(doorstep.open)
        client.send(ListGroupsRequest(), 4)
        assert client.is_closed_by_broker()


def test_unauthenticated_connections_displace_no_client_of_another_listener(tmp_path: Path) -> None:
    limits = {"max_connections": "2", "inter_broker_listener_name": LISTENER}
    with started(tmp_path, **limits) as broker, RawClient(port_of(broker, "PLAINTEXT")) as served:
        assert is_served(served)
        with RawClient(port_of(broker)) as one, RawClient(port_of(broker)) as other:
            for stranger in (one, other):
                assert stranger.ask(ApiVersionsRequest("raw", "1"), 3).error_code == 0
            assert is_served(served)
            authenticate(one)
            assert served.is_closed_by_broker(), "who may, does"


def test_nothing_of_a_password_is_logged(broker: BrokerThread, capfd: pytest.CaptureFixture[str]) -> None:
    for data in (plain_token("alice", Secret("hush-hush")), b"hush-hush", b"n,,n=hush-hush,r=x"):
        for mechanism in MECHANISMS:
            with RawClient(port_of(broker)) as client:
                handshake(client, mechanism)
                token(client, data)
    with socket.create_connection(("127.0.0.1", port_of(broker))) as raw:
        raw.sendall(b"GET /hush-hush HTTP/1.1\r\n\r\n")
        assert raw.recv(1) == b""
    captured = capfd.readouterr()
    assert "authentication_failed" in captured.out
    assert "hush" not in captured.out + captured.err


def test_the_log_names_the_user_whose_password_was_wrong_and_the_mechanism_that_is_not_enabled(
    broker: BrokerThread, capfd: pytest.CaptureFixture[str]
) -> None:
    """It had what the client got, and an empty mechanism. A name that no user has may be a password, and is not logged."""
    for name in ("alice", "hush-hush"):
        with RawClient(port_of(broker)) as client:
            handshake(client, "PLAIN")
            token(client, plain_token(name, Secret("guessed")))
    for mechanism in ("GSSAPI", "hush-hush"):
        with RawClient(port_of(broker)) as client:
            handshake(client, mechanism)
    out = capfd.readouterr().out
    assert "a wrong password of user 'alice'" in out
    assert "an unknown user, whose name is not logged: it may be a password" in out
    assert "GSSAPI is not enabled: the listener has " in out
    assert "a mechanism of another name is not enabled" in out
    assert "hush" not in out


def test_who_fails_again_and_again_does_not_fill_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger could write 60 GB a day into it. Events have lines of their own: one kind of failure does not hide another."""
    monkeypatch.setattr(refusals, "LINES_MAX", 3)
    with started(tmp_path, connection_failed_authentication_delay_ms="0") as broker:
        for _ in range(5):
            with RawClient(port_of(broker)) as client:
                handshake(client, "PLAIN")
                assert token(client, WRONG).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        for _ in range(5):
            with RawClient(port_of(broker)) as client:
                client.send_frame(b"\xff" * 20)
                assert client.is_closed_by_broker()
        assert broker._broker is not None
        assert broker._broker.gate.threshold.tally.failed == 5
    logged = capfd.readouterr().out
    assert (logged.count(" authentication_failed "), logged.count(" connection_refused_input ")) == (3, 3)


def test_the_log_says_what_a_client_without_sasl_lacks(broker: BrokerThread, capfd: pytest.CaptureFixture[str]) -> None:
    """It had the key of an API and the state of the connection. The client itself learns nothing but that it was closed."""
    with RawClient(port_of(broker)) as client:
        assert client.ask(ApiVersionsRequest("raw", "1"), 3).error_code == 0
        client.send(MetadataRequest(None), 9)
        assert client.is_closed_by_broker()
    out = capfd.readouterr().out
    assert "Metadata of a connection in the state ASKED, which has not authenticated: the listener has SASL (PLAIN, " in out
    assert "and the client's security.protocol may have none" in out

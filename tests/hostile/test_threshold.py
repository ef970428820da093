"""Bad input at listeners that ask who connects, in the clear and inside TLS: an end or an answer, and an honest client is served.

``ottla.authentication.timeout.ms`` is short here, so that what may wait for more ends soon.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

import pytest
from tests.broker.certificates import Authority
from tests.broker.sasl import ALICE, JAAS, authenticate
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.foreign_clients.wire import RawClient
from tests.hostile.case import FRAME_BYTES_MAX, Case
from tests.hostile.cases import all_cases
from tests.hostile.judge import ANSWER_SECONDS_MAX, Judge
from tests.hostile.threshold import no_tls, threshold_cases

from ottla.security.plain import plain_token
from ottla.types import Secret

THRESHOLD = list(threshold_cases())
NO_TLS = list(no_tls())
AFTER = [case for case in all_cases() if isinstance(case.data, bytes)][::8]
"""Of those for everybody, sent by who has authenticated."""


class Guarded:
    """A judge, the ports of the listeners that are guarded, and how TLS is spoken to one of them."""

    def __init__(self, judge: Judge, plain: int, tls: int, authority: Authority) -> None:
        self.judge = judge
        self.plain = plain
        self.tls = tls
        self.context = ssl.create_default_context(cadata=authority.pem)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("threshold")
    authority = Authority(directory / "certificates")
    port, plain, tls = lasting_ports(3)
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},GUARDED://127.0.0.1:{plain},BOTH://127.0.0.1:{tls}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT,BOTH:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.guarded.plain.sasl.jaas.config": JAAS,
        "listener.name.both.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.location": str(authority.issue("broker").store),
        "ottla.authentication.timeout.ms": "1000",
        "connection.failed.authentication.delay.ms": "5",
        "socket.request.max.bytes": str(FRAME_BYTES_MAX),
        "auto.create.topics.enable": "false",
    }
    with BrokerProcess(directory, port=port, **properties) as broker:
        judge = Judge(broker)
        yield Guarded(judge, plain, tls, authority)
        judge.canary.socket.close()


def read_to_the_end(raw: socket.socket) -> None:
    """TimeoutError when there is none."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while raw.recv(1 << 16):
            pass


def check_after(guarded: Guarded, port: int, *, tls: bool) -> None:
    """The canary is served, and who has the password is let in."""
    guarded.judge.assert_canary_is_served()
    guarded.judge.assert_memory_is_bounded()
    with RawClient(port) as client:
        if tls:
            client.socket = guarded.context.wrap_socket(client.socket, server_hostname="localhost")
        assert authenticate(client).error_code == 0


@pytest.mark.parametrize("case", THRESHOLD, ids=[case.name for case in THRESHOLD])
def test_hostile_bytes_before_authentication_harm_nobody(guarded: Guarded, case: Case) -> None:
    with contextlib.closing(socket.create_connection(("127.0.0.1", guarded.plain), ANSWER_SECONDS_MAX)) as raw:
        with contextlib.suppress(ConnectionError):
            raw.sendall(case.bytes_to_send())
        read_to_the_end(raw)
    check_after(guarded, guarded.plain, tls=False)


@pytest.mark.parametrize("case", THRESHOLD[::2], ids=[case.name for case in THRESHOLD[::2]])
def test_hostile_bytes_inside_tls_before_authentication_harm_nobody(guarded: Guarded, case: Case) -> None:
    raw = socket.create_connection(("127.0.0.1", guarded.tls), ANSWER_SECONDS_MAX)
    with guarded.context.wrap_socket(raw, server_hostname="localhost") as inside:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            inside.sendall(case.bytes_to_send())
        read_to_the_end(inside)
    check_after(guarded, guarded.tls, tls=True)


@pytest.mark.parametrize("case", NO_TLS, ids=[case.name for case in NO_TLS])
def test_plain_bytes_sent_to_a_tls_listener_harm_nobody(guarded: Guarded, case: Case) -> None:
    with contextlib.closing(socket.create_connection(("127.0.0.1", guarded.tls), ANSWER_SECONDS_MAX)) as raw:
        with contextlib.suppress(ConnectionError):
            raw.sendall(case.bytes_to_send())
        read_to_the_end(raw)
    check_after(guarded, guarded.tls, tls=True)


@pytest.mark.parametrize("case", AFTER, ids=[case.name for case in AFTER])
def test_hostile_bytes_inside_tls_after_authentication_harm_nobody(guarded: Guarded, case: Case) -> None:
    with RawClient(guarded.tls) as client:
        client.socket = inside = guarded.context.wrap_socket(client.socket, server_hostname="localhost")
        assert authenticate(client).error_code == 0
        inside.settimeout(ANSWER_SECONDS_MAX)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            inside.sendall(case.bytes_to_send())
            if case.is_answered:
                inside.recv(1)
    check_after(guarded, guarded.tls, tls=True)


def test_a_crowd_of_guesses_lets_an_honest_client_in(guarded: Guarded) -> None:
    clients = [RawClient(guarded.plain) for _ in range(100)]
    wrong = plain_token("alice", Secret("guess"))
    for client in clients:
        with contextlib.suppress(ConnectionError, AssertionError):
            authenticate(client, wrong)
    with RawClient(guarded.plain) as honest:
        assert authenticate(honest, ALICE).error_code == 0
    for client in clients:
        client.socket.close()


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    cases = [*THRESHOLD, *NO_TLS]
    assert len({case.name for case in cases}) == len(cases) > 100

"""The answer to a handshake in an open session over TLS comes alone: a Java client that has it with an earlier answer waits for ever."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from tests.broker.certificates import Authority
from tests.broker.sasl import GUARDED, authenticate, sent_together
from tests.broker.test_node import properties
from tests.broker.test_threshold import port_of
from tests.foreign_clients.wire import RawClient

from ottla.broker.requests.threshold import APART_MS, Threshold
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.sasl_handshake import SaslHandshakeRequest
from ottla.runtime.serve import BrokerThread

RECORD_BYTES_MAX: Final = 1 << 16


def test_the_answer_to_a_handshake_in_an_open_session_is_a_record_of_its_own(tmp_path: Path) -> None:
    """Together with the answer before it, it was a record that Java's client read half of: it stood still for ten seconds."""
    authority = Authority(tmp_path / "certificates")
    given = GUARDED | {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,GUARDED:SASL_SSL",
        "ssl.keystore.location": str(authority.issue("broker").store),
        "connections.max.reauth.ms": "60000",
    }
    with BrokerThread(properties(tmp_path / "data", **given)) as broker, RawClient(port_of(broker)) as client:
        context = ssl.create_default_context(cadata=authority.pem)
        client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
        authenticate(client)
        with sent_together(client):
            client.send(ApiVersionsRequest(), 0)  # it is answered at once
            client.send(SaslHandshakeRequest("PLAIN"), 1)
        records = [client.socket.recv(RECORD_BYTES_MAX) for _ in range(2)]
        assert [int.from_bytes(record[:4], "big") + 4 for record in records] == list(map(len, records))


@pytest.mark.parametrize(("sent", "looks"), [([True, True], 2), ([False, False, True, True], 4), ([False, True, False, True, True], 5)])
def test_it_waits_until_all_before_it_has_left_for_a_while(sent: list[bool], looks: int) -> None:
    later: list[tuple[int, Callable[[], None]]] = []
    begun: list[str] = []
    left = iter(sent)
    connection = SimpleNamespace(
        transport=SimpleNamespace(is_closed=False),
        has_sent_all_before=lambda place: next(left),
        release=lambda: begun.append("released"),
    )
    candidate = SimpleNamespace(connection=connection, on_handshake=lambda *given: begun.append(given[0]))
    timed: list[object] = []
    timers = SimpleNamespace(call_later_ms=lambda ms, call: later.append((ms, call)))
    threshold = SimpleNamespace(_world=SimpleNamespace(timers=timers), begun_again=lambda *given: timed.append(given))
    context = SimpleNamespace(place="place", version=1, reply=None)

    def begin() -> None:
        Threshold._begin_apart(*cast("tuple[Any, ...]", (threshold, candidate, context, SaslHandshakeRequest("PLAIN"))))

    begin()
    assert timed == [(candidate, "place")], "its time begins now, whenever the answers before it leave"
    for _ in range(looks - 1):
        assert not begun
        [(ms, look)] = later
        assert ms == APART_MS
        later.clear()
        look()
    assert (begun, later) == (["PLAIN", "released"], [])
    connection.transport.is_closed = True
    begin()
    assert not later, "a connection that has ended is not looked at"

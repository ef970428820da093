"""A connection above the quota of its address: nothing is done for it, and it takes no place of those who may still show who they are."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from tests.broker.certificates import Authority
from tests.broker.sasl import JAAS
from tests.broker.test_node import properties
from tests.waiting import eventually

from ottla.broker.requests.gatekeeper import admission_limits
from ottla.broker.requests.named_hosts import NamedHosts
from ottla.config import BrokerConfig
from ottla.net.admission import SHUT_OUT_MS, UNLIMITED, Admission, AdmissionLimits
from ottla.runtime.connection import RealConnection
from ottla.runtime.serve import BrokerThread
from ottla.runtime.world import real_world

SHUT_OUT: Final = "127.0.0.2"
LISTENERS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WAIT_SECONDS_MAX: Final = 30.0
VERSIONS: Final = bytes.fromhex("0000000a00120000000000070000")
"""A frame of ApiVersions 0: correlation id 7, an empty client id."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    directory = tmp_path_factory.mktemp("turned-away")
    authority = Authority(directory / "certificates")
    given = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.location": str(authority.issue("broker").store),
    } | {f"listener.name.{name.lower()}.plain.sasl.jaas.config": JAAS for name in LISTENERS if name.startswith("SASL")}
    with BrokerThread(properties(directory / "data", **given)) as thread:
        assert thread._broker is not None
        thread._broker.gate._admission.set_ip_rates({SHUT_OUT: 0.0})  # as a znode may have it: no request can set it
        yield thread


def first_words(listener: str) -> bytes:
    """What a client says first there."""
    if not listener.endswith("SSL"):
        return VERSIONS
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


def is_answered(client: socket.socket) -> bool:
    """False when the connection ends first: by a reset, for the broker has not read what was sent."""
    try:
        return bool(client.recv(1))
    except ConnectionResetError:
        return False


@pytest.mark.parametrize("listener", LISTENERS)
def test_who_may_not_connect_hears_nothing_and_takes_no_place(broker: BrokerThread, listener: str) -> None:
    """Each had its TLS handshake, and a flood of them crowded out those who were about to authenticate."""
    assert broker._broker is not None
    gate = broker._broker.gate
    for host, is_served in ((SHUT_OUT, False), ("127.0.0.1", True), (SHUT_OUT, False)):
        refused = gate.refused_count
        with socket.create_connection(broker.addresses[listener], WAIT_SECONDS_MAX, source_address=(host, 0)) as client:
            client.sendall(first_words(listener))
            if not is_served:
                eventually(lambda: gate.refused_count, lambda count: count == refused + 1)  # noqa: B023
                assert gate.threshold.waiting_count == 0
            assert is_answered(client) is is_served
        eventually(lambda: gate.threshold.waiting_count, lambda count: count == 0)


def test_a_rate_of_none_at_all_lets_none_in() -> None:
    """The second connection of such an address was an error of division, and stayed open without an answer."""
    admission = Admission(AdmissionLimits(), ["PLAINTEXT"])
    admission.set_ip_rates({SHUT_OUT: 0.0})
    assert [admission.ip_pause_ms(SHUT_OUT, now_ms) for now_ms in (0, 0, 10_000)] == [SHUT_OUT_MS] * 3
    assert admission.ip_pause_ms("127.0.0.1", 0) == 0
    admission.set_ip_rates({SHUT_OUT: 1.0})
    assert admission.ip_pause_ms(SHUT_OUT, 10_000) == 0


def test_a_rate_is_of_the_address_however_it_is_written() -> None:
    admission = Admission(AdmissionLimits(), ["PLAINTEXT"])
    for written, of_peer in (("0:0:0:0:0:0:0:1", "::1"), ("2001:DB8::0:7", "2001:db8::7"), ("::ffff:192.0.2.1", "192.0.2.1")):
        admission.set_ip_rates({written: 0.0})
        assert admission.ip_pause_ms(of_peer, 0) == SHUT_OUT_MS
    config = BrokerConfig({"max.connections.per.ip.overrides": "[0:0:0:0:0:0:0:1]:7,192.0.2.1:8,host:9"})
    limits = admission_limits(config, [], NamedHosts(real_world().network, config))
    assert limits.per_ip_overrides == {"::1": 7, "192.0.2.1": 8, "host": 9}


def test_a_limit_of_none_for_all_addresses_is_passed_over() -> None:
    """Earlier versions recorded it when the overrides were removed, and no restart let a client in again."""
    config = BrokerConfig()
    hosts = NamedHosts(real_world().network, config)
    config.set_dynamic(own={}, default={"max.connections.per.ip": "0"})
    assert admission_limits(config, [], hosts).per_ip == UNLIMITED
    config.set_dynamic(own={}, default={"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "192.0.2.1:8"})
    assert admission_limits(config, [], hosts).per_ip == 0


@pytest.mark.parametrize(
    ("found", "peer"),
    [
        (("::ffff:192.0.2.1", 5, 0, 0), ("192.0.2.1", 5)),
        (("::ffff:1", 5, 0, 0), ("::ffff:1", 5)),
        (("::1", 5, 0, 0), ("::1", 5)),
        (("192.0.2.1", 5), ("192.0.2.1", 5)),
    ],
)
def test_an_ipv4_client_of_a_listener_of_both_kinds_has_its_ipv4_address(found: tuple[object, ...], peer: tuple[str, int]) -> None:
    """At a listener on [::] it was ``::ffff:192.0.2.1``, which no quota named."""
    sock = SimpleNamespace(getpeername=lambda: found, getsockname=lambda: ("::", 9092, 0, 0))

    async def made() -> RealConnection:
        return RealConnection(*cast("tuple[Any, ...]", (None, sock)))

    assert asyncio.run(made()).peer == peer

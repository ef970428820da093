"""What metrics say of those who connect: counted by listener, and when certificates end."""

from __future__ import annotations

import contextlib
import http.client
import re
import ssl
from pathlib import Path

from tests.broker.certificates import Authority
from tests.broker.sasl import JAAS, authenticate
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.foreign_clients.wire import RawClient
from tests.waiting import eventually

from ottla.security.plain import plain_token
from ottla.types import Secret


def test_who_connects_is_counted_by_listener(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    port, both, admin = lasting_ports(3)
    properties = {
        "listeners": f"GUARDED://127.0.0.1:{port},BOTH://127.0.0.1:{both}",
        "listener.security.protocol.map": "GUARDED:SASL_PLAINTEXT,BOTH:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": JAAS,
        "listener.name.both.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.location": str(authority.issue("broker").store),
        "ottla.admin.listener": str(admin),
    }

    def metric(name: str, listener: str = "") -> float:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", admin, timeout=30)) as connection:
            connection.request("GET", "/metrics")
            page = connection.getresponse().read().decode()
        labels = rf"\{{listener=\"{listener}\".*\}}" if listener else ""
        found = re.search(rf"^{name}{labels} (\S+)$", page, re.MULTILINE)
        assert found is not None, page
        return float(found[1])

    with (
        BrokerProcess(tmp_path, port=port, **properties),
        RawClient(port) as served,
        RawClient(port) as refused,
        RawClient(both) as plain,
        RawClient(both) as waiting,
    ):
        assert authenticate(served).error_code == 0
        authenticate(refused, plain_token("alice", Secret("guess")))
        plain.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        eventually(lambda: metric("ottla_unauthenticated_connections"), lambda count: count == 1)
        context = ssl.create_default_context(cadata=authority.pem)
        waiting.socket = context.wrap_socket(waiting.socket, server_hostname="localhost")
        assert authenticate(waiting).error_code == 0
        prefix = "kafka_server_socket_server_metrics_"
        assert metric(f"{prefix}successful_authentication_total", "GUARDED") == 1
        assert metric(f"{prefix}failed_authentication_total", "GUARDED") == 1
        assert metric(f"{prefix}successful_authentication_total", "BOTH") == 1
        assert metric(f"{prefix}failed_authentication_total", "BOTH") == 1
        assert metric(f"{prefix}successful_authentication_no_reauth_total", "BOTH") == 1
        assert metric(f"{prefix}connection_count", "BOTH") == 1
        assert metric("ottla_unauthenticated_connections") == 0
        assert metric("ottla_certificate_expiry_seconds", "BOTH") > 86_400

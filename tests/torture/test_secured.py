"""Nodes over SASL_SSL whose sessions last ten seconds, killed again and again; and a flood of those who never say who they are.

``OTTLA_KILLS`` and ``OTTLA_SECONDS`` lengthen or shorten a run.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.beside import beside
from tests.broker.certificates import Authority
from tests.broker.sasl import JAAS
from tests.cluster.access import Access
from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicated_killing import judged, run
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.waiting import eventually

from ottla.sync import Admin, NewTopic, Producer

KILL_COUNT: Final = int(os.environ.get("OTTLA_KILLS", "60"))
SECONDS: Final = int(os.environ.get("OTTLA_SECONDS", "60"))
SESSION_MS: Final = 10_000
USER, PASSWORD = "alice", "alice-secret"
HALF_OPEN: Final = 2_000
NEW_PER_SECOND: Final = 500
RSS_MORE_MAX: Final = 128 << 20
HALF_A_HELLO: Final = bytes.fromhex("16030100c8010000c40303")
VERSIONS: Final = bytes.fromhex("0000000e0012000000000001000474657374")


class SecuredReplicas(ClusterProcesses):
    """Clients and nodes come over SASL_SSL, and their sessions end. Who only looks comes in plain text."""

    def __init__(self, directory: Path, count: int = 3, **properties: str) -> None:
        authority = Authority(directory / "certificates")
        self._stores = {node: str(authority.issue(f"node-{node}").store) for node in range(1, count + 1)}
        self._trust = authority.trust
        ports = lasting_ports(4 * count + 1)
        self._internal, self._guarded = ports[2 * count + 1 : 3 * count + 1], ports[3 * count + 1 :]
        login = JAAS.replace("admin", "node")
        secured = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL,GUARDED:SASL_SSL,CONTROLLER:SASL_SSL",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.internal.plain.sasl.jaas.config": login,
            "listener.name.controller.plain.sasl.jaas.config": login,
            "listener.name.guarded.plain.sasl.jaas.config": JAAS,
            "connections.max.reauth.ms": str(SESSION_MS),
            "ssl.truststore.location": str(authority.trust),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:node;User:ANONYMOUS;User:{USER}",
        }
        super().__init__(directory, count, **secured | properties)

    def _node(self, node: int, port: int, **properties: str) -> BrokerProcess:
        properties["listeners"] += f",INTERNAL://127.0.0.1:{self._internal[node - 1]},GUARDED://127.0.0.1:{self._guarded[node - 1]}"
        return super()._node(node, port, **properties | {"ssl.keystore.location": self._stores[node]})

    @property
    def access(self) -> Access:
        return Access(",".join(f"127.0.0.1:{port}" for port in self._guarded), USER, PASSWORD, self._trust)


def test_kills_of_secured_nodes_whose_sessions_end_lose_and_double_nothing(tmp_path: Path, java_client: list[str]) -> None:
    outcome = run(tmp_path, kill_count=KILL_COUNT, make=SecuredReplicas, java=java_client)
    print(outcome)
    assert outcome.sent["java"] > KILL_COUNT
    verdict = judged(tmp_path)
    assert (verdict.anomalies, verdict.is_unknown) == ([], False)
    logs = "".join(path.read_text(errors="replace") for path in tmp_path.glob("node-*/broker.log"))
    assert not [sign for sign in ("authentication_failed", "Authentication failed") if sign in logs], "no node was taken for a stranger"


@contextlib.contextmanager
def honest(bootstrap: str, settings: dict[str, Any]) -> Iterator[list[float]]:
    """A client that sends one record after the other; the milliseconds that each has taken."""
    times: list[float] = []
    with Producer(bootstrap, linger_ms=0, **settings) as producer:
        producer.send("t", b"first").result(60)

        def send(is_over: threading.Event) -> None:
            while not is_over.is_set():
                began = time.perf_counter()
                producer.send("t", b"v").result(60)
                times.append((time.perf_counter() - began) * 1000)

        with beside(send):
            yield times


def p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def test_a_flood_of_unauthenticated_connections_keeps_nobody_out_and_takes_little_memory(tmp_path: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(3 * HALF_OPEN + 1_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    authority = Authority(tmp_path / "certificates")
    tls, plain = lasting_ports(2)
    properties = {
        "listeners": f"GUARDED://127.0.0.1:{tls},CLEAR://127.0.0.1:{plain}",
        "listener.security.protocol.map": "GUARDED:SASL_SSL,CLEAR:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": JAAS,
        "listener.name.clear.plain.sasl.jaas.config": JAAS,
        "connections.max.reauth.ms": str(SESSION_MS),
        "ssl.keystore.location": str(authority.issue("broker").store),
    }
    settings: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": str(authority.trust),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }
    with BrokerProcess(tmp_path, port=tls, **properties) as broker:
        address = f"127.0.0.1:{tls}"
        with Admin(address, **settings) as admin:
            admin.create_topics([NewTopic("t", 1)])
        with honest(address, settings) as quiet:
            eventually(lambda: len(quiet), lambda count: count >= 500)
        base = _rss(broker.pid)
        with contextlib.ExitStack() as stack, honest(address, settings) as busy:
            for _ in range(HALF_OPEN):
                for port, said in ((tls, HALF_A_HELLO), (plain, VERSIONS)):
                    sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
                    with contextlib.suppress(OSError):
                        sock.sendall(said)
            began, most = time.monotonic(), 0
            for number in itertools.count(1):
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", (tls, plain)[number % 2]), 60).close()
                if number % 100 == 0:
                    most = max(most, _rss(broker.pid))
                late = began + number / NEW_PER_SECOND - time.monotonic()
                if late > 0:
                    time.sleep(late)  # the rate of the flood
                if time.monotonic() - began > SECONDS:
                    break
            print(f"{number} new connections in {SECONDS} s beside {2 * HALF_OPEN} half open: ", end="")
        print(f"p99 {p99(busy):.1f} ms, quiet {p99(quiet):.1f} ms; RSS {base >> 20} MiB, at most {most >> 20} MiB")
        assert len(busy) > 100, "the honest client was served all the while"
        assert most <= base + RSS_MORE_MAX
        with ssl.create_default_context(cafile=str(authority.trust)).wrap_socket(
            socket.create_connection(("127.0.0.1", tls), 60), server_hostname="127.0.0.1"
        ) as client:
            assert client.version() == "TLSv1.3"


def _rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

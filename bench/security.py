"""``python -m bench.security``: what TLS, SCRAM and ACLs cost, beside Apache Kafka 4.3 with the same protocol, and beside plain text.

Each kind has two brokers: one without an authorizer, which speaks PLAINTEXT and SSL, and one with 1,000 ACLs, whose clients come over
SASL_SSL by SCRAM-SHA-256. One and the same generator asks all of them, over OpenSSL where they speak TLS; rounds are interleaved, the
first one only warms. Certificates are ECDSA P-256. Where Maven or Java is missing, ottla runs alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.broker.certificates import Authority
from tests.foreign_clients.broker_process import lasting_ports
from tests.waiting import eventually

from bench.generator import (
    Address,
    Throughput,
    connect,
    exchange,
    fetch_frame,
    frame,
    percentiles,
    pipelined,
    produce_frame,
)
from bench.goals import SECURITY_GOALS
from bench.measures import BATCH_BYTES, MEBI_BYTES, RECORD_BYTES, Figures, write
from bench.peers import Kafka, Ottla, Peer
from bench.report import Rounds, note, report
from ottla.errors import KafkaError
from ottla.messages.acl_codes import Operation, PatternType, ResourceType
from ottla.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.messages.sasl_handshake import SaslHandshakeRequest
from ottla.security.client_exchange import Credentials
from ottla.sync import Acl, Admin, NewTopic, UserChange
from ottla.types import Secret
from ottla.wire.compiler import decode

ROUNDS: Final = int(os.environ.get("BENCH_ROUNDS", "3"))
SECONDS: Final = 2.0
HANDSHAKES: Final = 1000
ACLS: Final = 1000
TOPIC: Final = "bench"
MECHANISM, USER, PASSWORD = "SCRAM-SHA-256", "alice", "alice-secret"
STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OLD_SUITE: Final = "ECDHE-ECDSA-AES128-GCM-SHA256"


class TlsSocket:
    """A socket of OpenSSL that says as a plain one does that there is nothing yet."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self.setblocking, self.sendall, self.fileno, self.close = sock.setblocking, sock.sendall, sock.fileno, sock.close

    def send(self, data: memoryview) -> int:
        with _blocking():
            return self._sock.send(data)

    def recv_into(self, buffer: Any) -> int:
        with _blocking():
            return self._sock.recv_into(buffer)

    def __enter__(self) -> TlsSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()


@contextlib.contextmanager
def _blocking() -> Iterator[None]:
    try:
        yield
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
        raise BlockingIOError from error


def context_of(trust: str, *, is_old: bool = False) -> ssl.SSLContext:
    """As negotiated; or TLS 1.2 with AES-128-GCM."""
    context = ssl.create_default_context(cafile=trust)
    if is_old:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(OLD_SUITE)
    return context


def over_tls(context: ssl.SSLContext, address: Address) -> Any:
    return TlsSocket(context.wrap_socket(connect(address), server_hostname=address[0]))


def over_sasl(context: ssl.SSLContext, address: Address) -> Any:
    sock = over_tls(context, address)
    exchange(sock, frame(SaslHandshakeRequest(MECHANISM), 1))
    proof = Credentials(MECHANISM, USER, Secret(PASSWORD)).begin(lambda: secrets.token_hex(18))
    token: bytes | None = proof.first()
    while token is not None:
        answer = decode(SaslAuthenticateResponse, 1, exchange(sock, frame(SaslAuthenticateRequest(token), 1))[4:])
        assert answer.error_code == 0, answer.error_message
        token = proof.step(bytes(answer.auth_bytes))
    return sock


def in_the_clear(_: ssl.SSLContext, address: Address) -> socket.socket:
    return connect(address)


class Place:
    """The two brokers of one kind, with topics, a user and ACLs."""

    def __init__(self, kind: type[Peer], authority: Authority) -> None:
        self.name = kind.name
        plain, tls, controller, guarded_plain, guarded, guarded_controller = lasting_ports(6)
        store = str(authority.issue("broker").store)
        stores = {"ssl.keystore.type": "PEM", "ssl.keystore.location": store}
        self.addresses = {"plain": ("127.0.0.1", plain), "tls": ("127.0.0.1", tls), "sasl": ("127.0.0.1", guarded)}
        self.addresses["beside sasl"] = ("127.0.0.1", guarded_plain)
        self.open = self._made(kind, {"PLAINTEXT": plain, "SSL": tls}, controller, stores)
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        more = stores | {
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": login,
            "authorizer.class.name": STANDARD,
            "super.users": "User:ANONYMOUS",
        }
        self.guarded = self._made(kind, {"PLAINTEXT": guarded_plain, "SASL_SSL": guarded}, guarded_controller, more)

    @staticmethod
    def _made(kind: type[Peer], ports: dict[str, int], controller: int, more: dict[str, str]) -> Peer:
        own = {"inter.broker.listener.name": "PLAINTEXT"} | more
        shown = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
        spoken = [f"{name}:{name}" for name in ports]
        if issubclass(kind, Kafka):
            own |= {
                "listeners": ",".join([*shown, f"CONTROLLER://127.0.0.1:{controller}"]),
                "listener.security.protocol.map": ",".join([*spoken, "CONTROLLER:PLAINTEXT"]),
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            }
            made: Peer = Kafka(own)
            made.address = ("127.0.0.1", ports["PLAINTEXT"])
            return made
        return Ottla(**own | {"listeners": ",".join(shown), "listener.security.protocol.map": ",".join(spoken)})

    @contextlib.contextmanager
    def running(self) -> Iterator[Place]:
        with self.open, self.guarded:
            self._fill(self.addresses["plain"])
            self._fill(self.addresses["beside sasl"])
            yield self

    def _fill(self, address: Address) -> None:
        with Admin(f"{address[0]}:{address[1]}") as admin:
            eventually(lambda: _served(admin), bool)
            admin.create_topics([NewTopic("fetched", 1)])
            if address == self.addresses["beside sasl"]:
                admin.alter_users([UserChange(USER, MECHANISM, Secret(PASSWORD))])
                rights = [(TOPIC, Operation.WRITE), ("fetched", Operation.READ)]
                own = [Acl(ResourceType.TOPIC, name, f"User:{USER}", right) for name, right in rights]
                others = [
                    Acl(ResourceType.TOPIC, f"t{number}-", f"User:u{number % 50}", Operation.READ, pattern_type=PatternType.PREFIXED)
                    for number in range(ACLS - len(own))
                ]
                assert set(admin.create_acls([*own, *others]).values()) == {None}
        self.renew(address)
        mebi = produce_frame("fetched", 0, batch_bytes=MEBI_BYTES, record_bytes=10_000)
        with connect(address) as sock:
            for _ in range(4):
                write(sock, "fetched", mebi)

    @staticmethod
    def renew(address: Address) -> None:
        """Makes the topic again, empty: a run does not pay for the page cache that earlier ones have filled."""
        with Admin(f"{address[0]}:{address[1]}") as admin:
            admin.delete_topics([TOPIC])
            new = NewTopic(TOPIC, 16, configs={"file.delete.delay.ms": "0"})
            eventually(lambda: admin.create_topics([new])[TOPIC], lambda problem: problem is None)
        small = [produce_frame(TOPIC, index, batch_bytes=0, record_bytes=RECORD_BYTES) for index in range(8)]
        with connect(address) as sock:
            for request in small:
                write(sock, TOPIC, request)


def _served(admin: Admin) -> bool:
    try:
        return bool(admin.describe_cluster().nodes)
    except KafkaError:
        return False


Mode = tuple[str, Callable[[Place], Peer], str, Callable[[ssl.SSLContext, Address], Any], bool]
MODES: Final[tuple[Mode, ...]] = (
    ("PLAINTEXT", lambda place: place.open, "plain", in_the_clear, False),
    ("SSL", lambda place: place.open, "tls", over_tls, False),
    ("SSL 1.2 AES-128", lambda place: place.open, "tls", over_tls, True),
    ("SASL_SSL, ACLs", lambda place: place.guarded, "sasl", over_sasl, False),
)


def measure(place: Place, mode: Mode, trust: str) -> Figures:
    """What the mode costs the broker, and what comes through."""
    name, peer_of, listener, make, is_old = mode
    peer, address, via = peer_of(place), place.addresses[listener], partial(make, context_of(trust, is_old=is_old))
    figures: Figures = {}

    def run(frames: list[bytes], window: int) -> tuple[Throughput, float]:
        cpu = peer.cpu_seconds()
        found = pipelined(address, frames, window=window, seconds=SECONDS, via=via)
        return found, peer.cpu_seconds() - cpu

    small = [produce_frame(TOPIC, index, batch_bytes=0, record_bytes=RECORD_BYTES) for index in range(4)]
    one, cpu = run(small[:1], 512)
    figures["CPU us per one-record request"] = cpu / one.responses * 1e6
    figures["one-record requests/s, 1 connection"] = one.per_second
    figures["one-record requests/s, 4 connections"] = run(small, 512)[0].per_second
    for title, size, record, window in (("16 KiB", BATCH_BYTES, 1024, 64), ("1 MiB", MEBI_BYTES, 10_000, 8)):
        batch = produce_frame(TOPIC, 5, batch_bytes=size, record_bytes=record)
        place.renew(place.addresses["beside sasl" if listener == "sasl" else "plain"])
        found, cpu = run([batch], window)
        figures[f"CPU s/GB, {title} batches"] = cpu / (found.responses * len(batch) / 1e9)
    wanted = fetch_frame("fetched", 0, offset=0, max_bytes=1 << 20)
    found, cpu = run([wanted], 8)
    figures["CPU s/GB, cached fetch of 1 MiB"] = cpu / (found.response_bytes / 1e9)
    figures["cached fetch of 1 MiB, MB/s, 1 connection"] = found.megabytes_per_second
    figures["cached fetch of 1 MiB, MB/s, 4 connections"] = run([wanted] * 4, 4)[0].megabytes_per_second
    return {f"{name}: {figure}": value for figure, value in figures.items()}


def shake_hands(address: Address, trust: str, count: int) -> None:
    context = context_of(trust)
    for _ in range(count):
        over_tls(context, address).close()


def handshakes(place: Place, trust: str) -> Figures:
    """A thousand, one after the other, from another process; meanwhile a quiet client of the same broker asks in plain text."""
    peer, asked = place.open, produce_frame(TOPIC, 7, batch_bytes=0, record_bytes=RECORD_BYTES)
    quiet: list[float] = []
    busy: list[float] = []
    is_over = threading.Event()

    def ask(times: list[float], ends: Callable[[], bool], sock: socket.socket) -> None:
        while not ends():
            start = time.perf_counter()
            exchange(sock, asked)
            times.append((time.perf_counter() - start) * 1000)
            is_over.wait(0.002)

    with connect(place.addresses["plain"]) as sock:
        ask(quiet, lambda: len(quiet) >= 300, sock)
        thread = threading.Thread(target=ask, args=(busy, is_over.is_set, sock))
        cpu = peer.cpu_seconds()
        process = multiprocessing.get_context("spawn").Process(target=shake_hands, args=(place.addresses["tls"], trust, HANDSHAKES))
        thread.start()
        process.start()
        process.join()
        is_over.set()
        thread.join()
    assert process.exitcode == 0, "all hands were shaken"
    return {
        "handshakes: CPU ms each": (peer.cpu_seconds() - cpu) / HANDSHAKES * 1000,
        "handshakes: p99 of a quiet client, x quiet": percentiles(busy)[1] / percentiles(quiet)[1],
    }


def main() -> None:
    kinds: list[type[Peer]] = [Ottla]
    why_not = Kafka.why_not()
    if why_not is None:
        kinds.append(Kafka)
    rounds: Rounds = {kind.name: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="security-bench-") as directory, contextlib.ExitStack() as stack:
        authority = Authority(Path(directory))
        trust = str(authority.trust)
        places = [stack.enter_context(Place(kind, authority).running()) for kind in kinds]
        for number in range(ROUNDS + 1):
            found: dict[str, Figures] = {place.name: {} for place in places}
            for mode in MODES:
                for place in places:
                    found[place.name] |= measure(place, mode, trust)
            for place in places:
                found[place.name] |= handshakes(place, trust) | _own(found[place.name])
                if number:  # the first round warms
                    rounds[place.name].append(found[place.name])
            note(f"round {number} of {ROUNDS}, load {os.getloadavg()[0]:.1f}")
    beside = "Apache Kafka 4.3.0, one node, 1 GiB heap, G1" if why_not is None else f"none: {why_not}"
    report("security", rounds, beside=f"{beside}; load {os.getloadavg()[0]:.1f}", goals=SECURITY_GOALS)


def _own(found: Figures) -> Figures:
    rate = "CPU us per one-record request"
    return {"SASL_SSL with ACLs: requests a CPU second, of those of SSL": found[f"SSL: {rate}"] / found[f"SASL_SSL, ACLs: {rate}"]}


if __name__ == "__main__":
    main()

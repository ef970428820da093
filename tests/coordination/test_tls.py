"""TLS to ZooKeeper: an Apache ZooKeeper that demands a certificate, and Kafka's keys."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import socket
import ssl
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.cluster.in_zookeeper import ZookeeperCluster
from tests.coordination.certificates import Certificates
from tests.foreign_clients.broker_process import lasting_ports
from tests.waiting import eventually_is

from ottla.broker.homes.zookeeper.settings import ZookeeperSettings
from ottla.broker.homes.zookeeper.tls import tls_of
from ottla.config import BrokerConfig
from ottla.coordination import Coordination, NotAuthorizedError, Session, Tls
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.zookeeper import ZooKeeper
from ottla.runtime.zookeeper_server import SecurePort, ZooKeeperServer
from ottla.runtime.zookeeper_tls import tls_context, tls_handler
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run
from ottla.sim.zookeeper import SimZooKeeper
from ottla.sync import Admin, NewTopic

PASSWORD = "of the key"
SESSION_MS = 6000


@dataclass(frozen=True)
class Secure:
    """``own`` is the store of a client, whose key has the password."""

    server: ZooKeeperServer
    port: int
    certificates: Certificates
    own: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def keys(self) -> dict[str, str]:
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": str(self.certificates.authority),
            "zookeeper.ssl.keystore.location": str(self.own),
            "zookeeper.ssl.keystore.password": PASSWORD,
        }

    def tls(self, **changed: str) -> Tls:
        given = {f"zookeeper.ssl.{name.replace('_', '.')}": value for name, value in changed.items()}
        found = tls_of(BrokerConfig(self.keys | given))
        assert found is not None
        return found


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("secure")
    certificates = Certificates(directory)
    plain, port = lasting_ports(2)
    store = certificates.store("zookeeper", "127.0.0.1")
    server = ZooKeeperServer(directory, plain, secure=SecurePort(port, store, certificates.authority))
    server.start()
    yield Secure(server, port, certificates, certificates.store("broker", password=PASSWORD))
    server.kill()


@pytest.mark.slow
def test_a_session_by_tls_is_one_like_any_other(secure: Secure) -> None:
    """Many answers come at once, in records of TLS that do not end where answers do."""

    async def body() -> None:
        for tls in (secure.tls(), secure.tls(enabled_protocols="TLSv1.2"), secure.tls(protocol="TLSv1.3")):
            session = await ZooKeeper().connect(secure.address, session_timeout_ms=60_000, tls=tls)
            await session.create("/large", bytes(700_000))
            await asyncio.gather(*(session.create(f"/n-{number}", b"x" * number, is_ephemeral=True) for number in range(300)))
            found = await asyncio.gather(*(session.get(f"/n-{number}") for number in range(300)))
            assert [len(data) for data, _ in found] == list(range(300))
            changed = asyncio.Event()
            await session.get("/large", changed.set)
            await session.delete("/large")
            await changed.wait()
            await session.close()

    asyncio.run(body())


def test_what_is_decrypted_already_is_ready_to_be_read(secure: Secure) -> None:
    """Two answers came in one record of TLS: after the first one was read, nothing is on the socket any more."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(secure.certificates.store("server", "127.0.0.1"))
    handler, (far, near), nothing = tls_handler(tls_context(secure.tls()), print), socket.socketpair(), socket.socketpair()
    with far, near, ThreadPoolExecutor() as pool:
        serving = pool.submit(context.wrap_socket, far, server_side=True)
        client = tls_context(secure.tls()).wrap_socket(near, server_hostname="127.0.0.1")
        serving.result().sendall(b"first,second")
        assert client.recv(6) == b"first,"
        assert handler.select([client, nothing[0]], [], [], 0)[0] == [client]
        nothing[1].sendall(b"x")
        assert handler.select([client, nothing[0]], [], [], 0)[0] == [client, nothing[0]]
        assert client.recv(6) == b"second"
        assert handler.select([client, nothing[0]], [], [], 0)[0] == [nothing[0]]
        serving.result().close()
        client.close()
    for end in nothing:
        end.close()


def test_a_server_with_the_wrong_certificate_is_refused_with_the_reason(secure: Secure, tmp_path: Path) -> None:
    foreign = Certificates(tmp_path, "foreign")

    async def problem(address: str, tls: Tls) -> str:
        zookeeper = ZooKeeper()
        connecting = asyncio.ensure_future(zookeeper.connect(address, session_timeout_ms=60_000, tls=tls))

        async def is_known() -> bool:
            assert not connecting.done(), "it is not connected"
            return zookeeper.last_problem is not None

        await eventually_is(is_known, True)
        connecting.cancel()
        await asyncio.wait([connecting])
        assert zookeeper.last_problem is not None
        return zookeeper.last_problem

    async def body() -> None:
        by_name = f"localhost:{secure.port}"
        unknown, misnamed, nameless, plain = await asyncio.gather(
            problem(secure.address, secure.tls(truststore_location=str(foreign.authority))),
            problem(by_name, secure.tls()),
            problem(secure.address, dataclasses.replace(secure.tls(protocol="TLSv1.2"), own=None)),
            problem(secure.server.address, secure.tls()),
        )
        assert unknown.startswith(f"TLS with {secure.address}: its certificate is refused:")
        assert f"TLS with {by_name}: its certificate is refused: Hostname mismatch" in misnamed
        assert nameless
        assert plain.startswith(f"TLS with {secure.server.address}: ")
        session = await ZooKeeper().connect(by_name, session_timeout_ms=60_000, tls=secure.tls(endpoint_identification_algorithm=""))
        await session.close()

    asyncio.run(body())


def test_brokers_reach_zookeeper_by_tls_and_what_they_make_is_theirs(secure: Secure, tmp_path: Path) -> None:
    """The certificate is who they are: no other credentials are needed for ACLs."""
    keys = {key.replace(".", "_"): value for key, value in secure.keys.items()}
    with ZookeeperCluster(tmp_path, secure.server, 2, servers=secure.address, zookeeper_set_acl="true", **keys) as cluster:
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 2, 2)]) == {"t": None}
        assert sorted(cluster.state("t")["isr"]) == [1, 2]
        with pytest.raises(NotAuthorizedError):
            cluster.ask(lambda session: session.set("/brokers/topics/t", b"", -1))
        other = tls_of(BrokerConfig(secure.keys | {"zookeeper.ssl.keystore.location": str(secure.certificates.store("other"))}))

        async def write(tls: Tls | None) -> int:
            session: Session = await ZooKeeper().connect(secure.address + cluster.chroot, session_timeout_ms=SESSION_MS, tls=tls)
            try:
                data, stat = await session.get("/brokers/topics/t")
                return await session.set("/brokers/topics/t", data, stat.version)
            finally:
                await session.close()

        with pytest.raises(NotAuthorizedError):
            asyncio.run(write(other))
        assert asyncio.run(write(secure.tls())) == 1


REFUSED: Mapping[str, tuple[dict[str, str], str]] = {
    "PKCS12": (
        {"keystore.location": "/a/k.p12"},
        "/a/k.p12 is a PKCS12 store, and PEM files are read: make one by openssl pkcs12 -in /a/k.p12 -out store.pem",
    ),
    "JKS": ({"truststore.location": "/a/t.jks"}, "keytool -importkeystore -srckeystore /a/t.jks"),
    "type": ({"truststore.location": "/a/t.pem", "truststore.type": "jks"}, "/a/t.pem is a JKS store"),
    "other type": ({"truststore.location": "/a/t", "truststore.type": "BCFKS"}, "/a/t is a BCFKS store, and PEM files are read"),
    "no type": ({"keystore.location": "/a/store"}, "set zookeeper.ssl.keystore.type=PEM"),
    "old version": ({"protocol": "TLSv1.1"}, "TLSv1.1 is not supported: TLSv1.2 and TLSv1.3 are"),
    "old versions": ({"enabled.protocols": "TLSv1,TLSv1.2"}, "TLSv1 is not supported"),
    "ciphers": ({"cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "cipher.suites is not supported"),
    "revoked": ({"crl.enable": "true"}, "zookeeper.ssl.crl.enable=true is not supported"),
    "asked whether revoked": ({"ocsp.enable": "true"}, "zookeeper.ssl.ocsp.enable=true is not supported"),
    "algorithm": ({"endpoint.identification.algorithm": "LDAPS"}, "LDAPS is not supported: HTTPS is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_with_the_way_out(name: str) -> None:
    keys, text = REFUSED[name]
    given = {f"zookeeper.ssl.{key}": value for key, value in keys.items()}
    with pytest.raises(KafkaError) as raised:
        tls_of(BrokerConfig(given | {"zookeeper.ssl.client.enable": "true"}))
    assert raised.value.code == ErrorCode.INVALID_CONFIG
    assert text in raised.value.message
    assert tls_of(BrokerConfig(given)) is None, "without zookeeper.ssl.client.enable it is nobody's business"


def test_files_that_cannot_be_used_are_refused_by_their_names(secure: Secure, tmp_path: Path) -> None:
    stranger = secure.certificates.pkcs12_store("stranger", PASSWORD)

    async def refused(tls: Tls) -> str:
        with pytest.raises(KafkaError) as raised:
            await ZooKeeper().connect(secure.address, session_timeout_ms=SESSION_MS, tls=tls)
        return raised.value.message

    async def body() -> None:
        absent = str(tmp_path / "absent.pem")
        assert f"zookeeper.ssl.truststore.location={absent} cannot be used" in await refused(secure.tls(truststore_location=absent))
        assert f"zookeeper.ssl.keystore.location={absent} cannot be used" in await refused(secure.tls(keystore_location=absent))
        assert "zookeeper.ssl.keystore.password" in await refused(secure.tls(keystore_password="another"))
        assert str(stranger) in await refused(secure.tls(keystore_location=str(stranger), keystore_type="PEM"))

    asyncio.run(body())


def test_files_that_are_being_replaced_do_not_end_a_broker(secure: Secure, tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes(secure.own.read_bytes())

    async def body() -> None:
        zookeeper, tls = ZooKeeper(), secure.tls(keystore_location=str(own))
        for text in (None, b"half a f"):
            if text is not None:
                own.write_bytes(text)
            await (await zookeeper.connect(secure.address, session_timeout_ms=SESSION_MS, tls=tls)).close()

    asyncio.run(body())


class _Unreachable:
    """A service that nobody reaches, for a reason that is known."""

    last_problem = "TLS with zookeeper:2181: its certificate is refused"

    def __init__(self, service: Coordination) -> None:
        self.connect = service.connect


def test_a_broker_that_does_not_reach_zookeeper_says_what_is_known_of_the_reason() -> None:
    async def body() -> None:
        service = SimZooKeeper(random.Random(1))
        service.cut("node")
        world = replace(Simulation(1).machine("node").boot(), coordination=_Unreachable(service.coordination("node")))
        keys = {"zookeeper.connect": "zookeeper:2181", "zookeeper.connection.timeout.ms": "500"}

        async def nothing(session: Session) -> None:
            pass

        with pytest.raises(KafkaError, match=r"within 500 ms .*: TLS with zookeeper:2181: its certificate is refused"):
            await ZookeeperSettings.of(BrokerConfig(keys)).begin(world, nothing)

    run(body())

"""Listeners that speak TLS, and ottla's own client: who gets in as whom, and what is refused before a port is bound."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import CertificateBuilder, Name, load_pem_x509_certificate
from tests.broker.certificates import Authority, Certificate
from tests.broker.sasl import JAAS
from tests.broker.test_node import properties
from tests.waiting import eventually

from ottla.broker.node import Broker
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.runtime.world import real_world
from ottla.sync import Admin, Consumer, Producer

LISTENERS: Final = ("SSL", "MUTUAL", "SASL_SSL")


class Secured:
    """A broker with listeners of each kind, and what its clients need."""

    def __init__(self, broker: BrokerThread, authority: Authority, client: Certificate) -> None:
        assert broker._broker is not None
        self.broker = broker._broker
        self.authority = authority
        self.client = client
        self.ports = {name: port for name, (_, port) in broker.addresses.items()}

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def settings(self, listener: str, *, shows: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {"security_protocol": "SASL_SSL" if listener == "SASL_SSL" else "SSL"}
        found["ssl_truststore_location"] = str(self.authority.trust)
        if shows:
            found["ssl_keystore_location"] = str(self.client.store)
        if listener == "SASL_SSL":
            found |= {"sasl_mechanism": "PLAIN", "sasl_plain_username": "alice", "sasl_plain_password": "alice-secret"}
        return found

    def principals(self, listener: str) -> set[str]:
        return {str(found.principal) for found in list(self.broker.router.connections) if found.listener == listener}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory / "certificates")
    server = authority.issue("broker")
    inline = server.chain.replace("\n", "\\n")
    given = {
        "listeners": ",".join(["PLAINTEXT://127.0.0.1:0", *(f"{name}://127.0.0.1:0" for name in LISTENERS)]),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": server.key,
        "ssl.keystore.certificate.chain": inline,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.location": str(authority.trust),
        "ssl.principal.mapping.rules": "RULE:^CN=(\\w+),OU=tests.*$/$1/U,DEFAULT",
    }
    with BrokerThread(properties(directory / "data", **given)) as broker:
        yield Secured(broker, authority, authority.issue("client"))


@pytest.mark.parametrize(
    ("listener", "shows", "principal"),
    [("SSL", False, "User:ANONYMOUS"), ("SSL", True, "User:ANONYMOUS"), ("MUTUAL", True, "User:CLIENT"), ("SASL_SSL", True, "User:alice")],
)
def test_each_client_is_served_under_the_principal_it_has_proved(secured: Secured, listener: str, shows: bool, principal: str) -> None:
    topic, settings = f"{listener}-{shows}", secured.settings(listener, shows=shows)
    values = [bytes([number]) * size for number, size in enumerate((1, 1000, 16_384, 65_536, 700_000))]
    with Producer(secured.address(listener), **settings) as producer:
        for value in values:
            producer.send(topic, value).result(30)
    with Consumer(secured.address(listener), auto_offset_reset="earliest", group_id=topic, **settings) as consumer:
        consumer.subscribe([topic])
        records = iter(consumer)
        assert [next(records).value for _ in values] == values
        eventually(lambda: secured.principals(listener), lambda found: found == {principal})  # nobody, until the handshake is done
    eventually(lambda: (secured.broker.gate.threshold.waiting_count, secured.principals(listener)), lambda left: left == (0, set()))


def test_a_client_without_its_certificate_is_refused(secured: Secured) -> None:
    before = secured.broker.gate.threshold.tally_of("MUTUAL")
    failed, succeeded = before.failed, before.succeeded
    with Admin(secured.address("MUTUAL"), **secured.settings("MUTUAL")) as admin, pytest.raises(KafkaError):
        admin.list_topics()
    eventually(lambda: secured.broker.gate.threshold.tally_of("MUTUAL").failed, lambda count: count > failed)  # the alert may come first
    eventually(lambda: secured.principals("MUTUAL"), lambda left: not left)  # the connection is closed after that
    assert secured.broker.gate.threshold.tally_of("MUTUAL").succeeded == succeeded


def test_a_client_whose_certificate_has_no_subject_is_refused_with_that_reason(
    secured: Secured, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As certificates are that have alternative names alone; rules and their length were said to be at fault."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    builder = CertificateBuilder().subject_name(Name([])).issuer_name(load_pem_x509_certificate(secured.authority.pem.encode()).subject)
    builder = builder.public_key(key.public_key()).serial_number(7).not_valid_before(now - timedelta(hours=1))
    made = builder.not_valid_after(now + timedelta(hours=1)).sign(secured.authority.key, SHA256())
    store = tmp_path / "nameless.pem"
    store.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + made.public_bytes(Encoding.PEM))
    settings = secured.settings("MUTUAL") | {"ssl_keystore_location": str(store)}
    secured.broker.gate.threshold._reported_ms.clear()  # of an address, one is logged a minute
    with Admin(secured.address("MUTUAL"), **settings) as admin, pytest.raises(KafkaError):
        admin.list_topics()
    eventually(lambda: capfd.readouterr().out, lambda said: "tls_handshake_failed" in said and "its certificate has no subject" in said)


def test_another_authority_is_not_trusted_and_not_tried_again(secured: Secured, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": str(other.trust)}
    with (
        Admin(secured.address("SSL"), **settings) as admin,
        pytest.raises(KafkaError, match=r"certificate is refused.*ssl\.truststore\.location names") as caught,
    ):
        admin.list_topics()
    assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not caught.value.is_transient


def test_the_name_is_checked_unless_it_is_not_to_be(secured: Secured) -> None:
    settings: dict[str, Any] = secured.settings("SSL")
    strange = f"[::ffff:127.0.0.1]:{secured.ports['SSL']}"  # the same listener, by an address that the certificate does not have
    with Admin(strange, **settings) as admin, pytest.raises(KafkaError, match="certificate is refused"):
        admin.list_topics()
    with Admin(strange, **settings, ssl_endpoint_identification_algorithm="") as admin:
        admin.list_topics()


def test_plain_text_to_a_port_that_speaks_tls_is_closed(secured: Secured) -> None:
    with socket.create_connection(("127.0.0.1", secured.ports["SSL"])) as raw:
        raw.sendall(b"\0\0\0\x0e\0\x12\0\0\0\0\0\1\0\4test")
        raw.settimeout(30)
        while raw.recv(1000):
            pass  # an alert
    with Admin(secured.address("SSL"), **secured.settings("SSL")) as admin:
        admin.list_topics()


def test_a_connection_that_does_not_finish_its_handshake_is_closed_in_time(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    given = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(authority.issue("broker").store)}
    given |= {"ottla.authentication.timeout.ms": "300"}
    with BrokerThread(properties(tmp_path / "data", **given)) as broker:
        assert broker._broker is not None
        with socket.create_connection(("127.0.0.1", broker.addresses["SSL"][1])) as raw:
            raw.settimeout(30)
            raw.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
            assert raw.recv(1) == b""
        assert broker._broker.gate.threshold.tally.overdue == 1
        settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": str(authority.trust)}
        with Admin(f"127.0.0.1:{broker.addresses['SSL'][1]}", **settings) as admin:
            admin.list_topics()


STORES: Final = {"listeners": "SSL://127.0.0.1:0"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "listener SSL: ssl.keystore.location is not set"),
        ({"ssl.keystore.location": "/nowhere.pem"}, "listener SSL: the store /nowhere.pem cannot be read"),
        ({"ssl.keystore.location": "{jks}"}, "is a JKS store: set ssl.keystore.password"),
        ({"ssl.keystore.location": "{p12}"}, "is a PKCS12 store: set ssl.keystore.password"),
        ({"ssl.keystore.location": "{jks}", "ssl.keystore.password": "hush"}, "it is a damaged JKS store, or its password is wrong"),
        ({"ssl.keystore.location": "{p12}", "ssl.keystore.password": "hush"}, "cannot be read as a PKCS12 store"),
        ({"ssl.keystore.location": "{p12}", "ssl.keystore.type": "PEM"}, "is a PKCS12 store: set it to PKCS12"),
        (
            {"ssl.keystore.location": "{store}", "ssl.truststore.location": "{p12}", "ssl.truststore.password": "hush"},
            "cannot be read as a",
        ),
        ({"ssl.keystore.location": "{store}", "ssl.keystore.type": "BCFKS"}, "ssl.keystore.type=BCFKS"),
        ({"ssl.keystore.location": "{trust}"}, "has 0 private keys and 1 certificates in PEM form"),
        ({"ssl.keystore.location": "{store}", "ssl.keystore.type": "PKCS12"}, "ssl.keystore.type=PKCS12"),
        ({"ssl.keystore.location": "{store}", "ssl.keystore.password": "hush"}, "ssl.keystore.password has no effect"),
        ({"ssl.keystore.location": "{store}", "ssl.keystore.key": "hush"}, "exclude each other"),
        ({"ssl.keystore.key": "hush"}, "belong together"),
        ({"ssl.keystore.key": "hush", "ssl.keystore.certificate.chain": "hush"}, "has 0 private keys"),
        ({"ssl.keystore.location": "{store}", "ssl.client.auth": "required"}, "ssl.client.auth=required needs the authorities"),
        ({"ssl.keystore.location": "{store}", "ssl.truststore.location": "{empty}"}, "has no certificate in PEM form"),
        ({"ssl.keystore.location": "{store}", "ssl.truststore.password": "hush"}, "ssl.truststore.password has no effect"),
        (
            {"ssl.keystore.location": "{store}", "ssl.truststore.location": "{trust}", "ssl.truststore.password": "hush"},
            "ssl.truststore.password has no effect",
        ),
        ({"ssl.keystore.location": "{store}", "ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.1 is not supported"),
        ({"ssl.keystore.location": "{store}", "ssl.protocol": "SSLv3"}, "ssl.protocol=SSLv3 is not supported"),
        (
            {"ssl.keystore.location": "{store}", "ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_MD5"},
            "RC4_128_MD5 is not supported",
        ),
        ({"ssl.keystore.location": "{store}", "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "cannot be chosen from"),
        ({"ssl.keystore.location": "{crossed}"}, "the private key is not that of the certificate"),
        ({"ssl.keystore.location": "{short}"}, "shorter than this system's OpenSSL accepts"),
        ({"ssl.keystore.location": "{encrypted}"}, "has an encrypted key: set ssl.key.password"),
        ({"ssl.keystore.location": "{encrypted}", "ssl.key.password": "hush"}, "or the key's password is wrong"),
        ({"ssl.keystore.location": "{store}", "ssl.principal.mapping.rules": "RULE:("}, "ssl.principal.mapping.rules"),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:0", "ssl.client.auth": "required"},
            "no listener of that name speaks TLS",
        ),
        ({"ssl.keystore.location": "{store}", "ssl.engine.factory.class": "com.example.Engines"}, "ssl.engine.factory.class"),
    ],
)
def test_what_a_listener_cannot_do_is_refused(tmp_path: Path, given: dict[str, str], says: str) -> None:
    authority = Authority(tmp_path / "certificates")
    server, other = authority.issue("broker"), authority.issue("other")
    places = {name: tmp_path / name for name in ("jks", "p12", "empty", "crossed", "encrypted", "short")}
    places["jks"].write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    places["p12"].write_bytes(b"\x30\x82\x04\x00")
    places["empty"].write_text("nothing")
    places["crossed"].write_text(other.key + server.chain)
    places["short"].write_text(short_key())
    places["encrypted"].write_text(encrypted(server.key, "right") + server.chain)
    named = {name: str(path) for name, path in places.items()} | {"trust": str(authority.trust), "store": str(server.store)}

    filled = {key: value.format(**named) for key, value in given.items()}

    async def start() -> None:
        with pytest.raises(KafkaError) as caught:
            await Broker(real_world(), BrokerConfig(properties(tmp_path / "data", **STORES) | filled)).start()
        assert caught.value.code == ErrorCode.INVALID_CONFIG
        assert says in caught.value.message
        assert "hush" not in caught.value.message
        assert "PRIVATE" not in caught.value.message

    asyncio.run(start())
    assert not (tmp_path / "data").exists()


def short_key() -> str:
    """A key of 1,024 bits, and its certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key, name, now = generate_private_key(65537, 1024), x509.Name([]), datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1)).sign(key, hashes.SHA256())
    return (key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + made.public_bytes(Encoding.PEM)).decode()


def encrypted(key: str, password: str) -> str:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    made = load_pem_private_key(key.encode(), None)
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())).decode()


def test_an_encrypted_key_is_opened_by_its_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    server = authority.issue("broker")
    store = tmp_path / "store.pem"
    store.write_text(encrypted(server.key, "right") + server.chain)
    given = {**STORES, "ssl.keystore.location": str(store), "ssl.key.password": "right", "ssl.protocol": "TLSv1.2"}
    given["ssl.cipher.suites"] = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    with BrokerThread(properties(tmp_path / "data", **given)) as broker:
        settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_certificates": authority.pem}
        address = f"127.0.0.1:{broker.addresses['SSL'][1]}"
        with Admin(address, **settings) as admin:
            admin.list_topics()
        with Admin(address, **settings, ssl_enabled_protocols="TLSv1.3") as admin, pytest.raises(KafkaError):
            admin.list_topics()


def test_a_listener_and_a_client_have_stores_of_java(tmp_path: Path) -> None:
    """A PKCS12 store under Kafka's default type, which is JKS, and a trust store of each kind."""
    authority = Authority(tmp_path / "certificates")
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": str(authority.trust)}
    for name in ("broker", "client"):
        issued = authority.issue(name)
        read, certificate = load_pem_private_key(issued.key.encode(), None), load_pem_x509_certificate(issued.chain.encode())
        form = BestAvailableEncryption(b"store-secret")
        (tmp_path / f"{name}.p12").write_bytes(pkcs12.serialize_key_and_certificates(b"own", read, certificate, None, form))  # type: ignore[arg-type]
    (tmp_path / "trust.p12").write_bytes(
        pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(load_pem_x509_certificate(authority.pem.encode()), b"ca")], BestAvailableEncryption(b"store-secret")
        )
    )
    given = {
        **STORES,
        "ssl.keystore.location": str(tmp_path / "broker.p12"),
        "ssl.keystore.password": "store-secret",
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(tmp_path / "trust.p12"),
        "ssl.truststore.password": "store-secret",
    }
    with BrokerThread(properties(tmp_path / "data", **given)) as broker:
        address = f"127.0.0.1:{broker.addresses['SSL'][1]}"
        own: dict[str, Any] = {"ssl_keystore_location": str(tmp_path / "client.p12"), "ssl_keystore_password": "store-secret"}
        with Admin(address, **settings, **own) as admin:
            admin.list_topics()
        with Admin(address, **settings) as admin, pytest.raises(KafkaError):
            admin.list_topics()
    jks = Path(__file__).parents[1] / "security" / "golden" / "trust.jks"
    with Admin(address, security_protocol="SSL", ssl_truststore_location=str(jks), ssl_truststore_password="store-secret"):
        pass

"""Java's stores: keytool's own (``golden``, of the password store-secret), and what is damaged, cut or wants too much."""

from __future__ import annotations

import contextlib
import hashlib
import random
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate, load_pem_x509_certificates
from tests.broker.certificates import Authority

from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.tls import server_context
from ottla.security.distinguished_name import subject_of
from ottla.security.key_stores import ITERATIONS_MAX, kind_of, open_store
from ottla.tls import TlsKeys, TlsServer
from ottla.types import Secret

GOLDEN = Path(__file__).parent / "golden"
PASSWORD, KEY_PASSWORD = Secret("store-secret"), Secret("key-secret")


def read(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def test_a_jks_store_of_keytool_has_its_key_and_chain() -> None:
    store = open_store(read("key.jks"), PASSWORD, KEY_PASSWORD)
    assert subject_of(ssl.PEM_cert_to_DER_cert(store.chain)) == "CN=node,OU=tests"
    key = load_pem_private_key((store.key or "").encode(), None)
    assert key.public_key() == load_pem_x509_certificate(store.chain.encode()).public_key()
    assert (store.key or "!") not in repr(store)


@pytest.mark.parametrize("name", ["trust.jks", "trust.p12"])
def test_a_trust_store_of_keytool_has_its_certificate(name: str) -> None:
    store = open_store(read(name), PASSWORD, None)
    assert (store.key, store.chain) == (None, "")
    assert store.trusted == open_store(read("key.jks"), PASSWORD, KEY_PASSWORD).chain
    if name == "trust.jks":
        assert open_store(read(name), None, None) == store, "a password only verifies it, as in Java"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A PKCS12 store with a key."""
    issued = Authority(tmp_path_factory.mktemp("made")).issue("node")
    key, certificate = load_pem_private_key(issued.key.encode(), None), load_pem_x509_certificate(issued.chain.encode())
    return pkcs12.serialize_key_and_certificates(b"node", key, certificate, None, BestAvailableEncryption(b"store-secret"))  # type: ignore[arg-type]


def test_a_pkcs12_store_has_its_key_and_chain(made: bytes) -> None:
    store = open_store(made, PASSWORD, None)
    assert subject_of(ssl.PEM_cert_to_DER_cert(store.chain)).startswith("CN=node")
    key = load_pem_private_key((store.key or "").encode(), None)
    assert key.public_key() == load_pem_x509_certificate(store.chain.encode()).public_key()


def subjects(pem: str) -> list[str]:
    return [subject_of(certificate.public_bytes(Encoding.DER)) for certificate in load_pem_x509_certificates(pem.encode())]


@pytest.mark.parametrize("name", ["chain.jks", "chain.p12"])
def test_the_authority_of_a_key_is_served_and_trusted_only_as_an_entry_of_its_own(name: str) -> None:
    """As Java's trust managers do: a store that is the key store as well would let in whoever has a certificate of the nodes' authority."""
    store = open_store(read(name), PASSWORD, None)
    assert subjects(store.chain) == ["CN=node", "CN=authority"]
    assert subjects(store.trusted) == ["CN=node", "CN=partner"]


@pytest.mark.parametrize("name", ["two_keys.jks", "two_keys.p12"])
def test_a_store_of_two_keys_is_refused_for_which_one_is_meant_is_not_said(name: str) -> None:
    with pytest.raises(KafkaError, match="it has 2 private keys; one is expected") as caught:
        open_store(read(name), PASSWORD, None)
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_a_key_that_openssl_no_longer_decrypts_is_refused_with_a_way_out() -> None:
    """PBEWithMD5AndDES, of ``openssl pkcs8`` before 1.1: Java decrypts it. OpenSSL says the same for it as for a wrong password."""
    keys = TlsKeys(read("old_cipher.pem").decode(), Secret(read("old_cipher.key").decode()), Secret("guessed"))
    with pytest.raises(ValueError, match=r"encrypted by DES, RC2 or RC4, .* -v2 aes-256-cbc") as caught:
        server_context(TlsServer(keys, None))
    assert "guessed" not in str(caught.value)


def test_clients_are_sent_the_keys_chain_in_order_and_nothing_else() -> None:
    """OpenSSL puts certificates into a store as they come, and others beside them."""
    opened = pkcs12.load_pkcs12(read("chain.p12"), b"store-secret")
    partner, authority = sorted((added.certificate for added in opened.additional_certs), key=lambda one: str(one.subject), reverse=True)
    assert opened.cert is not None
    data = pkcs12.serialize_key_and_certificates(
        b"node", opened.key, opened.cert.certificate, [partner, authority], BestAvailableEncryption(b"store-secret")  # type: ignore[arg-type]
    )  # fmt: skip
    store = open_store(data, PASSWORD, None)
    assert subjects(store.chain) == ["CN=node", "CN=authority"]
    assert subjects(store.trusted) == ["CN=node"]


@pytest.mark.parametrize("name", ["key.jks", "trust.jks", "trust.p12", "made"])
def test_a_wrong_password_is_refused_and_not_shown(made: bytes, name: str) -> None:
    data = made if name == "made" else read(name)
    with pytest.raises(KafkaError, match="password is wrong") as caught:
        open_store(data, Secret("guessed"), Secret("guessed"))
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert "guessed" not in caught.value.message
    if name == "key.jks":
        for guessed in (None, Secret("guessed")):
            with pytest.raises(KafkaError, match="the password of its key is wrong"):
                open_store(data, PASSWORD, guessed)


def sealed(body: bytes) -> bytes:
    """A JKS store whose digest is right."""
    return body + hashlib.sha1("store-secret".encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\3\0\0\0\0", "of version 3"),
        (b"\xfe\xed\xfe\xed\0\0\0\2\x7f\xff\xff\xff", "2147483647 entries"),
        (b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1\0\0\0\2\0\1a" + bytes(8) + b"\0\1X\x7f\xff\xff\xff", "cut"),
        (b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1\0\0\0\3\0\1a" + bytes(8), "neither a key nor a certificate"),
        (b"\xfe\xed\xfe\xed\0\0", "cut"),
    ],
)
def test_a_jks_store_that_promises_more_than_it_has_is_refused(body: bytes, says: str) -> None:
    with pytest.raises(KafkaError, match=says):
        open_store(sealed(body), PASSWORD, None)


def test_a_pkcs12_store_that_wants_to_keep_its_reader_busy_is_refused(made: bytes) -> None:
    count = next(number for number in (2048, 10_000, 20_000) if number.to_bytes(2, "big") in made)
    patched = made.replace(b"\x02\x02" + count.to_bytes(2, "big"), b"\x02\x02\x7f\xff", 1)
    with pytest.raises(KafkaError, match="password is wrong"):
        open_store(patched, PASSWORD, None)  # it is tried
    salt = bytes(8)
    greedy = b"\x30\x12\x04\x08" + salt + b"\x02\x04" + (ITERATIONS_MAX * 100).to_bytes(4, "big")
    with pytest.raises(KafkaError, match="100000000 iterations of hashing"):
        open_store(greedy[:1] + bytes([16]) + greedy[2:], PASSWORD, None)
    deep = b""
    for _ in range(40):
        deep = b"\x30" + bytes([len(deep)]) + deep
    with pytest.raises(KafkaError, match="nested too deeply"):
        open_store(deep, PASSWORD, None)


def test_no_damage_ends_in_another_error(made: bytes) -> None:
    rng = random.Random(7)
    for data in (read("key.jks"), read("trust.jks"), made, read("trust.p12")):
        for _ in range(150):
            changed = bytearray(data[: rng.randrange(1, len(data) + 1)] if rng.random() < 0.5 else data)
            for _ in range(rng.randrange(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            body = bytes(changed)
            if rng.random() < 0.5 and body.startswith(b"\xfe\xed\xfe\xed") and len(body) > 40:
                body = sealed(body[:-20])
            if kind_of(body) is not None:
                with contextlib.suppress(KafkaError):
                    open_store(body, PASSWORD, KEY_PASSWORD)

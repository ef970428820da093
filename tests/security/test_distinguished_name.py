"""Subjects as Java prints them. The texts are what ``X500Principal.getName()`` of Java 17 gives for these certificates."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import NameAttribute, ObjectIdentifier, RelativeDistinguishedName
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import DecodeError
from ottla.security.distinguished_name import subject_of

STATE, UNIT = NameOID.STATE_OR_PROVINCE_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def certificate(name: x509.Name) -> bytes:
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 1, NOW, NOW + datetime.timedelta(days=1))
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


def one(kind: ObjectIdentifier, value: str) -> NameAttribute:
    return NameAttribute(kind, value)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ([one(NameOID.COMMON_NAME, "alice")], "CN=alice"),
        (
            [one(NameOID.COUNTRY_NAME, "DE"), one(NameOID.ORGANIZATION_NAME, "Org"), one(NameOID.COMMON_NAME, "alice")],
            "CN=alice,O=Org,C=DE",
        ),
        ([one(NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h=i#j')], 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
        ([one(NameOID.COMMON_NAME, "  two  ")], "CN=\\ \\ two\\ \\ "),
        ([one(NameOID.COMMON_NAME, "Zoë 東京")], "CN=Zoë 東京"),
        (
            [one(NameOID.STATE_OR_PROVINCE_NAME, "B"), one(NameOID.STREET_ADDRESS, "S"), one(NameOID.LOCALITY_NAME, "L")],
            "L=L,STREET=S,ST=B",
        ),
        (
            [one(NameOID.DOMAIN_COMPONENT, "example"), one(NameOID.USER_ID, "u"), one(NameOID.ORGANIZATIONAL_UNIT_NAME, "o")],
            "OU=o,UID=u,DC=example",
        ),
        ([one(NameOID.EMAIL_ADDRESS, "a@b")], "1.2.840.113549.1.9.1=#1603614062"),
        ([one(NameOID.TITLE, "Dr")], "2.5.4.12=#0c024472"),
    ],
)
def test_the_subject_is_javas_text(attributes: list[NameAttribute], text: str) -> None:
    assert subject_of(certificate(x509.Name(attributes))) == text


def test_a_set_of_several_is_joined() -> None:
    several = RelativeDistinguishedName([one(NameOID.COMMON_NAME, "a"), one(NameOID.USER_ID, "b")])
    assert subject_of(certificate(x509.Name([several]))) in ("CN=a+UID=b", "UID=b+CN=a")


ALICE = certificate(x509.Name([one(NameOID.COMMON_NAME, "alice")]))


@given(st.binary(max_size=200))
def test_data_that_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        subject_of(data)


@given(st.data())
def test_a_certificate_that_was_changed_is_read_or_refused(data: st.DataObject) -> None:
    encoded = bytearray(ALICE)
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        text = subject_of(bytes(encoded))
    except DecodeError:
        return
    assert isinstance(text, str)

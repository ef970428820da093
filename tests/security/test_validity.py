"""From when and until when a certificate is valid."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from tests.security.test_distinguished_name import KEY, one

from ottla.errors import DecodeError
from ottla.security.validity import ends_ms, validity_ms

NAME = x509.Name([one(NameOID.COMMON_NAME, "alice")])


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 9999])
def test_the_end_is_read_in_both_forms(year: int) -> None:
    begin, end = datetime.datetime(1990, 1, 1, tzinfo=datetime.UTC), datetime.datetime(year, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    made = x509.CertificateBuilder(NAME, NAME, KEY.public_key(), 1, begin, end).sign(KEY, hashes.SHA256())
    assert validity_ms(made.public_bytes(Encoding.DER)) == (begin.timestamp() * 1000, end.timestamp() * 1000)
    assert ends_ms("text before\n" + made.public_bytes(Encoding.PEM).decode()) == end.timestamp() * 1000


@given(st.binary(max_size=200))
def test_data_that_is_no_certificate_has_no_end_of_validity(data: bytes) -> None:
    with pytest.raises(DecodeError):
        validity_ms(data)
    assert ends_ms(data.decode("latin-1")) is None

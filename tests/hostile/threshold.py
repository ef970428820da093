"""Bad input of who has not authenticated: to SASL, before it and in its middle; and bytes that are no TLS.

Each says whether it must be answered: a case that leaves the exchange where more may come is closed when its time is over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tests.hostile.case import INT_MAX, INT_MIN, Case
from tests.hostile.wire_bytes import frame, header, request

from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.list_groups import ListGroupsRequest
from ottla.messages.metadata import MetadataRequest
from ottla.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.messages.sasl_handshake import SaslHandshakeRequest

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LIMIT = 524_288
"""sasl.server.max.receive.size."""


def threshold_cases() -> Iterator[Case]:
    yield from before_a_mechanism()
    for mechanism in MECHANISMS:
        yield from tokens(mechanism)
    yield from plain()
    yield from scram()


def hello(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return request(SaslHandshakeRequest(mechanism), version)


def token(data: bytes, version: int = 2) -> bytes:
    return request(SaslAuthenticateRequest(data), version)


def before_a_mechanism() -> Iterator[Case]:
    for length in (-1, INT_MIN, LIMIT + 1, INT_MAX):
        yield Case(f"before: length {length}", struct.pack(">i", length) + b"x" * 100)
    for length in (0, 1, 7, 8, 9):
        yield Case(f"before: a frame of {length} bytes", frame(bytes(length)))
    yield Case("before: HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    yield Case("before: a Kerberos token", frame(b"\x60\x82\x01\x00" + bytes(256)))
    yield Case("before: metadata", request(MetadataRequest(None), 9))
    yield Case("before: groups", request(ListGroupsRequest(), 4))
    yield Case("before: a token", token(b"\0alice\0alice-secret"))
    yield Case("before: versions three times", request(ApiVersionsRequest("a", "1"), 3) * 3)
    yield Case("before: versions of a version that there is not", frame(header(18, 99)))
    yield Case("before: an API that there is not", frame(header(999, 0)))
    yield Case("before: an API of another listener", frame(header(52, 0)))
    for version in (-1, 2, 3, 32_767):
        yield Case(f"before: a handshake of version {version}", frame(header(17, version) + b"\0\5PLAIN"))
    for name in ("", "plain", "GSSAPI", "OAUTHBEARER", "SCRAM-SHA-1", "x" * 30_000, "PLAIN\0", "PLAIN "):
        yield Case(f"before: the mechanism {name[:20]!r}", hello(name))
    yield Case("before: a handshake that is cut", frame(header(17, 1) + b"\0\x20PLAIN"))
    yield Case("before: a mechanism of a negative length", frame(header(17, 1) + b"\xff\xfe"))
    yield Case("before: a mechanism that is no text", frame(header(17, 1) + b"\0\4\xff\xff\xff\xff"))
    yield Case("before: the largest frame, of zeros", frame(bytes(LIMIT)))
    yield Case("before: the largest frame, announced and not sent", struct.pack(">i", LIMIT) + b"x", is_answered=False)


def tokens(mechanism: str) -> Iterator[Case]:
    """What is no token of any mechanism."""
    for name, data in {
        "none": b"",
        "a zero": b"\0",
        "many zeros": bytes(100_000),
        "no text": b"\xff\xfe" * 100,
        "the largest": b"a" * (LIMIT - 100),
        "commas": b"," * 10_000,
        "equals": b"n,," + b"=" * 10_000,
    }.items():
        yield Case(f"{mechanism}: token, {name}", hello(mechanism) + token(data))
        yield Case(f"{mechanism}: bare token, {name}", hello(mechanism, 0) + frame(data))
    yield Case(f"{mechanism}: a second handshake", hello(mechanism) * 2)
    yield Case(f"{mechanism}: metadata in its middle", hello(mechanism) + request(MetadataRequest(None), 9))
    yield Case(f"{mechanism}: versions in its middle", hello(mechanism) + request(ApiVersionsRequest("a", "1"), 3))
    yield Case(f"{mechanism}: an API that there is not in its middle", hello(mechanism) + frame(header(999, 0)))
    yield Case(f"{mechanism}: a token of a version that there is not", hello(mechanism) + frame(header(36, 3) + bytes(8)))
    yield Case(f"{mechanism}: a token that is cut", hello(mechanism) + frame(header(36, 1) + struct.pack(">i", 1000) + b"x"))
    yield Case(f"{mechanism}: a token of a negative length", hello(mechanism) + frame(header(36, 1) + struct.pack(">i", -5)))
    yield Case(f"{mechanism}: a frame above the limit", hello(mechanism) + struct.pack(">i", LIMIT + 1) + b"x")


def plain() -> Iterator[Case]:
    for name, data in {
        "one part": b"alice",
        "two parts": b"alice\0alice-secret",
        "four parts": b"\0alice\0alice-secret\0",
        "no name": b"\0\0alice-secret",
        "no password": b"\0alice\0",
        "another's authorization id": b"admin\0alice\0alice-secret",
        "an unknown user": b"\0mallory\0alice-secret",
        "a wrong password": b"\0alice\0guess",
        "a long name": b"\0" + b"a" * 400_000 + b"\0x",
        "a surrogate": b"\0\xed\xa0\x80\0x",
    }.items():
        yield Case(f"PLAIN: {name}", hello() + token(data))
    yield Case("PLAIN: requests after a wrong password", hello() + token(b"\0alice\0guess") + request(MetadataRequest(None), 9) * 50)


def scram() -> Iterator[Case]:
    first = b"n,,n=alice,r=nonce"
    for name, data in {
        "a channel binding": b"p=tls-unique,,n=alice,r=nonce",
        "another's authorization id": b"n,a=admin,n=alice,r=nonce",
        "no nonce": b"n,,n=alice",
        "a mandatory extension": b"n,,m=1,n=alice,r=nonce",
        "a name that is not escaped": b"n,,n=a=b,r=nonce",
        "a delegation token": first + b",tokenauth=true",
        "an unknown extension": first + b",x=1",
        "the nonce twice": first + b",r=nonce",
    }.items():
        yield Case(f"SCRAM: {name}", hello("SCRAM-SHA-256") + token(data))
    for name, data in {
        "no proof": b"c=biws,r=nonce",
        "a nonce of its own": b"c=biws,r=nonce,p=AAAA",
        "a proof that is no base64": b"c=biws,r=nonce,p=!",
        "an error": b"e=other-error",
        "the first message again": first,
        "many attributes": b"c=biws," + b"r=x," * 5_000 + b"p=AAAA",
    }.items():
        yield Case(f"SCRAM: then {name}", hello("SCRAM-SHA-256") + token(first) + token(data))


def no_tls() -> Iterator[Case]:
    """In the clear, to a port that speaks TLS."""
    yield Case("TLS: a request in the clear", request(ApiVersionsRequest("a", "1"), 3))
    yield Case("TLS: HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    yield Case("TLS: zeros", bytes(64 * 1024))
    yield Case("TLS: SSL 2", b"\x80\x2e\x01\x00\x02" + bytes(43))
    yield Case("TLS: a record of a version that there is not", b"\x16\x09\x09\x00\x05hello")
    yield Case("TLS: an alert first", b"\x15\x03\x01\x00\x02\x02\x28")
    yield Case("TLS: data first", b"\x17\x03\x03\x00\x05hello")
    yield Case("TLS: a hello of the largest length", b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(200_000))
    yield Case("TLS: half a hello", bytes.fromhex("16030100c8010000c40303"), is_answered=False)
    yield Case("TLS: a thousand empty records", b"\x16\x03\x01\x00\x00" * 1000)
    yield Case("TLS: heartbeats", b"\x18\x03\x02\x00\x03\x01\x40\x00")

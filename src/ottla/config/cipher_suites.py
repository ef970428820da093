"""Java's names of cipher suites, and OpenSSL's: Kafka's ``ssl.cipher.suites`` has the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

TLS_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""Of TLS 1.3, where both have the same names. Python cannot choose among them."""


def _pairs() -> Iterator[tuple[str, str]]:
    for exchange in ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA"):
        ours = exchange.replace("_", "-")
        for bits, digest in (("256", "SHA384"), ("128", "SHA256")):
            yield f"TLS_{exchange}_WITH_AES_{bits}_GCM_{digest}", f"{ours}-AES{bits}-GCM-{digest}"
            yield f"TLS_{exchange}_WITH_AES_{bits}_CBC_{digest}", f"{ours}-AES{bits}-{digest}"
        yield f"TLS_{exchange}_WITH_CHACHA20_POLY1305_SHA256", f"{ours}-CHACHA20-POLY1305"
    yield "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"


OPENSSL_NAMES: Final = {name: ours for name, ours in _pairs() if name != "TLS_DHE_RSA_WITH_AES_256_CBC_SHA384"}


def openssl_names(suites: Sequence[str], *, has_tls_1_3: bool) -> list[str]:
    """Returns OpenSSL's names of the TLS 1.2 suites. ValueError for an unsupported suite, and for some but not all suites of TLS 1.3."""
    unknown = [suite for suite in suites if suite not in OPENSSL_NAMES and suite not in TLS_1_3]
    if unknown:
        raise ValueError(f"the cipher suite {unknown[0][:80]} is not supported; {', '.join((*TLS_1_3, *OPENSSL_NAMES))} are")
    if suites and has_tls_1_3 and not set(TLS_1_3) <= set(suites):
        way_out = "list all three, or set ssl.enabled.protocols=TLSv1.2"
        raise ValueError(f"the suites of TLS 1.3, {', '.join(TLS_1_3)}, cannot be chosen from: {way_out}")
    return [OPENSSL_NAMES[suite] for suite in suites if suite in OPENSSL_NAMES]

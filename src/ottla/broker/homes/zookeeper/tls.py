"""How ZooKeeper is reached by TLS, as Kafka's ``zookeeper.ssl.*`` keys say it. Stores are PEM files; others are refused, with the way out.

Source: Kafka 3.9 (ZkConfigs), ZooKeeper 3.9 (which form a store has when no type is given: by the ending of its name).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.config import BrokerConfig
from ottla.coordination import Tls
from ottla.errors import ErrorCode, KafkaError
from ottla.types import Secret

VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_ENDINGS: Final[Mapping[str, str]] = {".pem": "PEM", ".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12", ".bcfks": "BCFKS"}
_WAYS_OUT: Final[Mapping[str, str]] = {
    "PKCS12": "openssl pkcs12 -in {path} -out store.pem{options}",
    "JKS": "keytool -importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12, and then "
    "openssl pkcs12 -in store.p12 -out store.pem{options}",
}


def tls_of(config: BrokerConfig) -> Tls | None:
    """Returns the settings of TLS; None without TLS. INVALID_CONFIG for what is not supported."""
    if not config["zookeeper.ssl.client.enable"]:
        return None
    for key in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if config[key]:
            raise _refused(f"{key}=true is not supported: whether ZooKeeper's certificate is revoked is not asked")
    if config["zookeeper.ssl.cipher.suites"]:
        raise _refused("zookeeper.ssl.cipher.suites is not supported: those of this system's OpenSSL are offered; set them at the servers")
    return Tls(
        trusted=_pem(
            config["zookeeper.ssl.truststore.location"], config["zookeeper.ssl.truststore.type"], "zookeeper.ssl.truststore", " -nokeys"
        ),
        own=_pem(config["zookeeper.ssl.keystore.location"], config["zookeeper.ssl.keystore.type"], "zookeeper.ssl.keystore", ""),
        own_password=_revealed(config["zookeeper.ssl.keystore.password"]),
        versions=_versions(config["zookeeper.ssl.enabled.protocols"] or _default_versions(config)),
        checks_host=_checks_host(config["zookeeper.ssl.endpoint.identification.algorithm"]),
    )


def _revealed(secret: Secret | None) -> str:
    return "" if secret is None else secret.reveal()


def _pem(path: str | None, given_type: str | None, store: str, options: str) -> str | None:
    if not path:
        return None
    kind = (given_type or next((kind for ending, kind in _ENDINGS.items() if path.endswith(ending)), "")).upper()
    if kind == "PEM":
        return path
    if not kind:
        raise _refused(f"{store}.location={path} does not end in .pem: if it is a PEM file, set {store}.type=PEM")
    text = f"{store}.location={path} is a {kind} store, and PEM files are read"
    way_out = _WAYS_OUT.get(kind)
    if way_out is None:
        raise _refused(text)
    raise _refused(f"{text}: make one by {way_out.format(path=path, options=options)}")


def _default_versions(config: BrokerConfig) -> list[str]:
    """Returns the configured version, else both: Kafka offers the earlier one alone, and ZooKeeper 3.9 may accept only the later one."""
    return [config["zookeeper.ssl.protocol"]] if config.is_given("zookeeper.ssl.protocol") else list(VERSIONS)


def _versions(wanted: list[str]) -> tuple[str, str]:
    known = [version for version in VERSIONS if version in wanted or "TLS" in wanted]
    unknown = [version for version in wanted if version not in (*VERSIONS, "TLS")]
    if unknown:
        raise _refused(f"zookeeper.ssl.protocol or .enabled.protocols={','.join(unknown)} is not supported: {' and '.join(VERSIONS)} are")
    return known[0], known[-1]


def _checks_host(algorithm: str | None) -> bool:
    if algorithm and algorithm.upper() != "HTTPS":
        key = "zookeeper.ssl.endpoint.identification.algorithm"
        raise _refused(f"{key}={algorithm} is not supported: HTTPS is, or an empty one, which checks no name")
    return bool(algorithm)


def _refused(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)

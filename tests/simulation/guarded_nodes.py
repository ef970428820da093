"""What simulated nodes over SASL_SSL have in their files, and what their clients show."""

from __future__ import annotations

from typing import Final

from ottla.client.security import ClientSecurity
from ottla.security.client_exchange import Credentials
from ottla.sim.tls import certificate
from ottla.tls import TlsClient
from ottla.types import Secret

USERS: Final = ("node", "admin", "alice", "bob")
JAAS: Final = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="node-secret" '
    + " ".join(f'user_{user}="{user}-secret"' for user in USERS)
    + ";"
)
KEY: Final = "-----BEGIN PRIVATE KEY-----\nkey\n-----END PRIVATE KEY-----"


def properties(node: int) -> dict[str, str]:
    found = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "ssl.keystore.key": KEY,
        "ssl.keystore.certificate.chain": certificate(f"CN=node-{node}", "CN=authority"),
        "ssl.truststore.certificates": certificate("CN=authority"),
        "connections.max.reauth.ms": "5000",
    }
    return found | {f"listener.name.{name}.plain.sasl.jaas.config": JAAS for name in ("plaintext", "controller")}


def security(user: str = "alice", *, password: str | None = None, trusted: str = "CN=authority") -> ClientSecurity:
    return ClientSecurity(Credentials("PLAIN", user, Secret(password or f"{user}-secret")), TlsClient(certificate(trusted)))

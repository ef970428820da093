"""How clients reach a cluster: in plain text, or over SASL_SSL as a user. Each kind of client has its own names for that."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Access:
    """The addresses of a listener; without a user it is one in plain text. A user logs in by PLAIN, and trusts what ``trust`` names."""

    bootstrap: str
    user: str = ""
    password: str = ""
    trust: Path = Path()

    def librdkafka(self) -> dict[str, Any]:
        """Settings of librdkafka's clients."""
        if not self.user:
            return {}
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": str(self.trust),
        }

    def python(self) -> dict[str, Any]:
        """Options of aiokafka's clients and of ottla's, but for the authority."""
        if not self.user:
            return {}
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    def own(self) -> dict[str, Any]:
        """Options of ottla's clients."""
        return self.python() | ({"ssl_truststore_location": str(self.trust)} if self.user else {})

    def aiokafka(self) -> dict[str, Any]:
        """Options of aiokafka's clients."""
        return self.python() | ({"ssl_context": ssl.create_default_context(cafile=str(self.trust))} if self.user else {})

    def java(self) -> list[str]:
        """Options of the JVM that runs interop.Client."""
        if not self.user:
            return []
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{login} required username="{self.user}" password="{self.password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }
        return [f"-Dclient.{name}={value}" for name, value in settings.items()]

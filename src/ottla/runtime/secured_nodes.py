"""How the nodes of a secured cluster reach each other: as one user of PLAIN, over TLS, whom no other user's settings have.

Of ``ottla cluster start --secure`` and of ``ottla.testing``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

NODE: Final = "node"
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


def between_nodes(protocol: str, *, authority: Path, password: str, mechanism: str, super_users: str) -> dict[str, str]:
    """Returns the properties that all nodes share; clients of the listener ``protocol`` log in by ``mechanism``."""
    login = f'{PLAIN_MODULE} required username="{NODE}" password="{password}" user_{NODE}="{password}";'
    return {
        "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:{protocol}",
        "inter.broker.listener.name": protocol,
        "sasl.enabled.mechanisms": f"{mechanism},PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": login,
        "listener.name.controller.plain.sasl.jaas.config": login,
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "super.users": f"{super_users};User:{NODE}",
    }

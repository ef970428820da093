"""Why a key may be accepted without effect. COMPATIBILITY.md lists the keys under these sentences."""

from __future__ import annotations

from typing import Final

ONE_BROKER: Final = "has nothing to do while the cluster is one broker"
TRANSACTIONS: Final = "waits for transactions"
SECURITY: Final = "waits for TLS, SASL and ACLs"
NEW_GROUPS: Final = "waits for consumer, share and streams groups"
TIERED: Final = "there is no tiered storage"
JAVA: Final = "names, or is for, a Java class, and the broker loads none"
DESIGN: Final = "tunes a part of Kafka that is not built in this way here"
NOT_YET: Final = "is not built yet"

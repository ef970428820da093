"""Why a key may be accepted without effect. COMPATIBILITY.md lists the keys under these sentences."""

from __future__ import annotations

from typing import Final

TWO_PHASE_COMMIT: Final = "needs two-phase commit (KIP-939), which is not supported yet"
SECURITY: Final = "is of Kerberos, or of how Java clients log in and sign assertions, which is not supported"
NEW_GROUPS: Final = "needs share or streams groups, which are not supported yet"
TIERED: Final = "needs tiered storage, which is not supported"
JAVA: Final = "names or configures a Java class, and the broker loads none"
DESIGN: Final = "tunes a part of Kafka that ottla builds differently"
NOT_YET: Final = "is not implemented yet"

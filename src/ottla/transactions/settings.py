"""What the broker's configuration says about transactions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Defaults are Kafka's."""

    timeout_ms_max: int = 900_000
    timeout_check_interval_ms: int = 10_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    expiration_check_interval_ms: int = 3_600_000

"""The producer's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.outgoing import Serializer
from ottla.client.partitioner import Partitioner
from ottla.client.settings import Settings, boolean, choice, function, integer, text
from ottla.errors import ErrorCode, KafkaError
from ottla.records.compression import CODEC_NAMES

ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}


@dataclass(frozen=True)
class ProducerSettings(Settings):
    """Kafka's producer configuration, by its names."""

    acks: str = choice("all", ACKS)
    enable_idempotence: bool = boolean(True)
    linger_ms: int = integer(5)
    batch_size: int = integer(16_384)
    compression_type: str = choice("none", CODEC_NAMES)
    max_request_size: int = integer(1_048_576)
    buffer_memory: int = integer(33_554_432, high=2**63 - 1)
    delivery_timeout_ms: int = integer(120_000)
    max_block_ms: int = integer(60_000)
    metadata_max_idle_ms: int = integer(300_000, low=5000)
    key_serializer: Serializer | None = function(takes="key")
    value_serializer: Serializer | None = function(takes="value")
    partitioner: Partitioner | None = function()
    transactional_id: str | None = text(None)
    transaction_timeout_ms: int = integer(60_000, low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.transactional_id is not None and not (self.enable_idempotence and ACKS[self.acks] == -1):
            text = f"transactional.id={self.transactional_id!r}: transactions need acks=all and enable.idempotence=true"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        if self.transactional_id == "":
            raise KafkaError(ErrorCode.INVALID_CONFIG, "transactional.id='': it must not be empty; leave it out for none")

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Raises INVALID_CONFIG for idempotence that was asked for with an acks that rules it out; the default of it gives way to acks."""
        if given.get("enable_idempotence") is not None and self.enable_idempotence and ACKS[self.acks] != -1:
            text = f"enable.idempotence=true needs acks=all, and acks={self.acks} is set; leave one of them out"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)

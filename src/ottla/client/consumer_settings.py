"""The consumer's settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.client.buffer import Deserializer
from ottla.client.call_limit import DEFAULT_API_TIMEOUT_MS
from ottla.client.fetch_settings import FetchSettings
from ottla.client.membership_settings import MembershipSettings
from ottla.client.settings import Settings, boolean, function, integer, text
from ottla.errors import ErrorCode, KafkaError


@dataclass(frozen=True)
class ConsumerSettings(Settings):
    """Kafka's consumer configuration, by its names. Without ``group_id`` there is only ``assign``."""

    group_id: str | None = text(None)
    enable_auto_commit: bool = boolean(True)
    auto_commit_interval_ms: int = integer(5000)
    enable_auto_offset_store: bool = boolean(True)
    max_poll_records: int = integer(500, low=1)
    default_api_timeout_ms: int = integer(DEFAULT_API_TIMEOUT_MS)
    allow_auto_create_topics: bool = boolean(True)
    key_deserializer: Deserializer | None = function(takes="bytes")
    value_deserializer: Deserializer | None = function(takes="bytes")
    fetch: FetchSettings = field(default_factory=FetchSettings)
    membership: MembershipSettings = field(default_factory=MembershipSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_id == "":
            raise KafkaError(ErrorCode.INVALID_CONFIG, "group.id='': it must not be empty; leave it out for none")

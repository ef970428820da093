"""The settings as keyword arguments: what a type checker knows of them. The settings classes say the same at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from ottla.client.call_limit import DEFAULT_API_TIMEOUT_MS
from ottla.client.cluster import METADATA_MAX_AGE_MS
from ottla.client.outgoing import Serializer
from ottla.client.partitioner import Partitioner
from ottla.client.security import SecuritySettings
from ottla.client.settings import Settings, function, integer, text
from ottla.client.watch import OnConnectivity
from ottla.types import Secret


@dataclass(frozen=True)
class ClusterSettings(SecuritySettings):
    """The settings that all clients have."""

    client_id: str = text("ottla")
    request_timeout_ms: int = integer(30_000, low=1)
    metadata_max_age_ms: int = integer(METADATA_MAX_AGE_MS)
    on_connectivity: OnConnectivity | None = function()


@dataclass(frozen=True)
class AdminSettings(Settings):
    """The settings that only administration has."""

    default_api_timeout_ms: int = integer(DEFAULT_API_TIMEOUT_MS)


class ClusterOptions(TypedDict, total=False):
    """The settings that all clients have, as a dict: ``settings: ClusterOptions = {...}``, then ``Producer(**settings)``.

    ``on_connectivity`` is called, on the client's loop (in ``ottla.sync`` in its thread), with an error when no broker can be reached, and
    with None when one can again.
    """

    client_id: str
    request_timeout_ms: int
    metadata_max_age_ms: int
    on_connectivity: OnConnectivity | None
    security_protocol: str
    sasl_mechanism: str | None
    sasl_jaas_config: str | Secret | None
    sasl_plain_username: str | None
    sasl_plain_password: str | Secret | None
    sasl_oauth_token: Callable[[], object] | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | Secret | None
    sasl_oauthbearer_scope: str | None
    ssl_truststore_location: str | None
    ssl_truststore_type: str
    ssl_truststore_password: str | Secret | None
    ssl_truststore_certificates: str | Secret | None
    ssl_keystore_location: str | None
    ssl_keystore_type: str
    ssl_keystore_password: str | Secret | None
    ssl_keystore_key: str | Secret | None
    ssl_keystore_certificate_chain: str | Secret | None
    ssl_key_password: str | Secret | None
    ssl_endpoint_identification_algorithm: str
    ssl_enabled_protocols: str | Sequence[str]
    ssl_protocol: str
    ssl_cipher_suites: str | Sequence[str]


class AdminOptions(ClusterOptions, total=False):
    """The settings of an ``Admin``, as a dict."""

    default_api_timeout_ms: int


class ProducerOptions(ClusterOptions, total=False):
    """The settings of a ``Producer``, as a dict: ``settings: ProducerOptions = {...}``, then ``Producer(**settings)``."""

    acks: Literal["all", "0", "1", "-1", 0, 1, -1]
    enable_idempotence: bool
    linger_ms: int
    batch_size: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    max_request_size: int
    buffer_memory: int
    delivery_timeout_ms: int
    max_block_ms: int
    metadata_max_idle_ms: int
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    partitioner: Partitioner | None
    transactional_id: str | None
    transaction_timeout_ms: int


class ConsumerOptions(ClusterOptions, total=False):
    """The settings of a ``Consumer``, as a dict. Deserializers are given apart: they determine the types of records."""

    group_id: str | None
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    enable_auto_offset_store: bool
    max_poll_records: int
    default_api_timeout_ms: int
    allow_auto_create_topics: bool
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    auto_offset_reset: Literal["earliest", "latest", "none"]
    isolation_level: Literal["read_uncommitted", "read_committed"]
    check_crcs: bool
    client_rack: str
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    group_instance_id: str | None
    partition_assignment_strategy: Sequence[str]

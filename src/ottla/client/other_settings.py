"""Settings that other clients of Kafka have and this one has not, each with the reason, and what to set instead.

Names are as keyword arguments: ``max_in_flight`` is max.in.flight. The Java client comes first, then kafka-python, aiokafka and
librdkafka. A setting with no row is unknown: it is refused, too, with the nearest name. docs/client.md has this table.
"""

from __future__ import annotations

from typing import Final

_NOT_YET: Final = "not yet: "
_SYSTEM: Final = "sockets have the operating system's options and buffers"
_BACKOFF: Final = "the pause before another try is 50 ms, doubles to 1 s, and has a fifth of jitter"
_METRICS: Final = "metrics() returns the client's metrics"
_MECHANISMS: Final = "the mechanisms are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER"
_TOKENS: Final = "tokens come from sasl_oauth_token or sasl_oauthbearer_token_endpoint_url"
_PROVIDERS: Final = "TLS is that of Python's ssl module"
_LEVELS: Final = _NOT_YET + "a codec has its library's own level"
_COMMITS: Final = "commit raises what failed; after an automatic one that failed the next one commits, or the next owner reads again"
_NO_PROXY: Final = _NOT_YET + "a client connects to brokers directly"
_NEGOTIATED: Final = "the versions of each API are negotiated with each broker"

KAFKAS_OWN: Final[dict[str, tuple[str, ...]]] = {
    "sasl_login_callback_handler_class": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    ),
    "sasl_oauthbearer_jwt_retriever_class": (
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
        "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever",
    ),
}
"""Classes of Kafka's own that a file for Java's clients names, by setting: without them the client does the same."""
OTHER_SETTINGS: Final[dict[str, str]] = {
    # The Java client, every kind of client
    "retries": "a record is sent again until delivery_timeout_ms, a request of a consumer for as long as that may help",
    "retry_backoff_ms": _BACKOFF,
    "retry_backoff_max_ms": _BACKOFF,
    "reconnect_backoff_ms": _BACKOFF,
    "reconnect_backoff_max_ms": _BACKOFF,
    "send_buffer_bytes": _SYSTEM,
    "receive_buffer_bytes": _SYSTEM,
    "connections_max_idle_ms": _NOT_YET + "a connection stays open until the broker closes it or the client is closed",
    "client_dns_lookup": "a name is resolved at each connect, and all its addresses are tried",
    "socket_connection_setup_timeout_ms": "a connect may take 10 s",
    "socket_connection_setup_timeout_max_ms": "a connect may take 10 s",
    "metadata_recovery_strategy": "the bootstrap addresses are asked again when no known broker answers",
    "metadata_recovery_rebootstrap_trigger_ms": "the bootstrap addresses are asked again when no known broker answers",
    "metric_reporters": _METRICS,
    "metrics_num_samples": _METRICS,
    "metrics_recording_level": _METRICS,
    "metrics_sample_window_ms": _METRICS,
    "enable_metrics_push": _NOT_YET + _METRICS,
    "interceptor_classes": "call your function where you call send and poll",
    "config_providers": "read the value, and give it as the argument",
    "security_providers": _PROVIDERS,
    "ssl_provider": _PROVIDERS,
    "ssl_engine_factory_class": _PROVIDERS,
    "ssl_keymanager_algorithm": _PROVIDERS,
    "ssl_trustmanager_algorithm": _PROVIDERS,
    "ssl_secure_random_implementation": _PROVIDERS,
    "sasl_client_callback_handler_class": _MECHANISMS,
    "sasl_login_callback_handler_class": _TOKENS,
    "sasl_login_class": _MECHANISMS,
    "sasl_kerberos_service_name": _MECHANISMS,
    "sasl_kerberos_kinit_cmd": _MECHANISMS,
    "sasl_oauthbearer_jwks_endpoint_url": _MECHANISMS,
    "sasl_oauthbearer_jwt_retriever_class": _TOKENS,
    # The Java client's producer
    "max_in_flight_requests_per_connection": "five batches of a partition are under way at most; idempotence keeps their order",
    "partitioner_class": "give a function: partitioner(topic, key, partition_count)",
    "partitioner_ignore_keys": "a partitioner that returns None for every record does it",
    "partitioner_adaptive_partitioning_enable": _NOT_YET + "records without a key stay with a partition for the length of a batch",
    "partitioner_availability_timeout_ms": _NOT_YET + "records without a key stay with a partition for the length of a batch",
    "compression_gzip_level": _LEVELS,
    "compression_lz4_level": _LEVELS,
    "compression_zstd_level": _LEVELS,
    "transaction_two_phase_commit_enable": _NOT_YET + "a transaction ends with its producer's commit (no KIP-939)",
    # The Java client's consumer
    "exclude_internal_topics": "a pattern matches no internal topic; name it to read it",
    # kafka-python and aiokafka
    "api_version": _NEGOTIATED,
    "api_version_auto_timeout_ms": _NEGOTIATED,
    "consumer_timeout_ms": "give poll a timeout_ms",
    "rebalance_timeout_ms": "set max_poll_interval_ms",
    "default_offset_commit_callback": _COMMITS,
    "enable_incremental_fetch_sessions": "a fetch names its partitions each time",
    "bootstrap_timeout_ms": "a client connects at its first use: set default_api_timeout_ms, or max_block_ms of a producer",
    "kafka_client": "there is one client",
    "metrics_enabled": _METRICS,
    "metric_group_prefix": _METRICS,
    "receive_message_max_bytes": "set fetch_max_bytes",
    "proxy_url": _NO_PROXY,
    "socks5_proxy": _NO_PROXY,
    "fetch_max_poll_records": "set max_poll_records",
    "selector": "ottla.aio runs on asyncio's loop",
    "loop": "ottla.aio runs on the loop that it is made on",
    "max_batch_size": "set batch_size",
    "max_block": "set max_block_ms",
    "socket_options": _SYSTEM,
    "ssl_context": "set ssl_truststore_location and the other ssl_ settings",
    "ssl_cafile": "set ssl_truststore_location",
    "ssl_certfile": "set ssl_keystore_location to a PEM file of the certificate and the key",
    "ssl_keyfile": "set ssl_keystore_location to a PEM file of the certificate and the key",
    "ssl_password": "set ssl_key_password",
    "ssl_crlfile": _NOT_YET + "certificates that were revoked are not looked for",
    "ssl_ciphers": "set ssl_cipher_suites",
    "ssl_check_hostname": "set ssl_endpoint_identification_algorithm, to '' for no check",
    "sasl_kerberos_name": _MECHANISMS,
    "sasl_kerberos_domain_name": _MECHANISMS,
    "sasl_oauth_token_provider": "give a function: sasl_oauth_token()",
    "legacy_iterator": "there is one iterator",
    "bootstrap_server": "write bootstrap_servers",
    "brokers": "write bootstrap_servers",
    "hosts": "write bootstrap_servers",
    # librdkafka
    "metadata_broker_list": "write bootstrap_servers",
    "message_timeout_ms": "set delivery_timeout_ms",
    "message_max_bytes": "set max_request_size",
    "message_send_max_retries": "a record is sent again until delivery_timeout_ms",
    "request_required_acks": "set acks",
    "compression_codec": "set compression_type",
    "compression_level": _LEVELS,
    "queue_buffering_max_ms": "set linger_ms",
    "queue_buffering_max_messages": "set buffer_memory",
    "queue_buffering_max_kbytes": "set buffer_memory",
    "batch_num_messages": "set batch_size",
    "max_in_flight": "five batches of a partition are under way at most; idempotence keeps their order",
    "fetch_message_max_bytes": "set max_partition_fetch_bytes",
    "fetch_wait_max_ms": "set fetch_max_wait_ms",
    "queued_min_messages": "one fetch to each leader is under way, for partitions of which nothing is buffered",
    "queued_max_messages_kbytes": "set fetch_max_bytes",
    "enable_partition_eof": "compare position() with end_offsets()",
    "topic_metadata_refresh_interval_ms": "set metadata_max_age_ms",
    "socket_timeout_ms": "set request_timeout_ms",
    "socket_keepalive_enable": "a request that is not answered has request_timeout_ms",
    "broker_address_family": "a name is resolved at each connect, and all its addresses are tried",
    "broker_version_fallback": _NEGOTIATED,
    "api_version_request": _NEGOTIATED,
    "statistics_interval_ms": _METRICS,
    "stats_cb": _METRICS,
    "on_commit": _COMMITS,
    "throttle_cb": _METRICS,
    "oauth_cb": "give a function: sasl_oauth_token()",
    "logger": "the client logs with Python's logging, as ottla.client",
    "error_cb": "give on_connectivity, which is called when no broker can be reached",
    "debug": "the client logs with Python's logging, as ottla.client",
    "log_level": "the client logs with Python's logging, as ottla.client",
}
"""Why there is none, or what to set, by name."""

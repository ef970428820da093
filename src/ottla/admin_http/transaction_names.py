"""The metrics of transactions, under the names that Kafka's dashboards read (``kafka_names.py`` says how they are made)."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.admin_http.exposition import Family, counter, gauge
from ottla.broker.status import Status


def transaction_families(status: Status) -> Iterator[Family]:
    """Yields the figures of this broker's coordinators, and of the permits of its partitions."""
    parts = status.parts
    transactions, markers = parts.transactions, parts.transactions.markers
    prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    retried = "Ends of transactions (commit or abort markers) that wait for a leader, or to be sent again."
    yield gauge(prefix + "unknowndestinationqueuesize", retried, markers.unknown_destination_count)
    queued = "Ends of transactions (commit or abort markers) that wait to be sent to the partition's leader."
    yield gauge(prefix + "logappendretryqueuesize", queued, markers.log_append_retry_count)
    refused = "Ends of transactions that a partition refused, or answered with an unexpected error."
    yield counter("ottla_transactions_refused_markers_total", refused, transactions.refused_marker_count)
    for kind, shards in (("transaction", transactions), ("group", parts.groups)):
        loaded = "The longest time that loading a partition has taken, in milliseconds."
        yield gauge(f"kafka_server_{kind}_coordinator_metrics_partition_load_time_max", loaded, shards.load_ms_max)
    failed = "Transactional batches that were refused because the coordinator did not confirm their transaction."
    prefix = "kafka_server_addpartitionstotxnmanager_"
    yield counter(prefix + "verificationfailure_total", failed, parts.permits.verification_failure_count)
    asked = "Requests to transaction coordinators that ask whether a partition is part of a transaction."
    yield counter(prefix + "verificationtimems_count", asked, parts.permits.verification_count)
    took = "Milliseconds that the requests to transaction coordinators have taken, summed."
    yield counter(prefix + "verificationtimems_sum", took, parts.permits.verification_ms)

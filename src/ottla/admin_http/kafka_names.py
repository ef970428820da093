"""The broker's metrics under the names that Kafka's dashboards read.

An MBean ``kafka.<domain>:type=<Type>,name=<Name>`` is ``kafka_<domain>_<type>_<name>`` here, in lower case; a count
``...PerSec`` ends in ``_total``; a timer gives ``_count`` and a gauge for each quantile. This is how Strimzi's rules and the
JMX exporter's examples map them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ottla.admin_http.exposition import Family, Number, Sample, by_label, counter, gauge
from ottla.broker.requests.candidate import Tally
from ottla.broker.status import Status
from ottla.errors import error_of
from ottla.metrics import TopicMeters

QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
_SHARES: Final = tuple(map(float, QUANTILES))
_TOPIC_COUNTS: Final = {
    "bytes_in": ("bytesin", "Bytes of record batches that clients sent."),
    "bytes_out": ("bytesout", "Bytes of record batches sent to consumers."),
    "messages_in": ("messagesin", "Records that clients sent."),
    "produce_requests": ("totalproducerequests", "Produce requests, counted once for each partition in them."),
    "fetch_requests": ("totalfetchrequests", "Fetch requests, counted once for each partition in them."),
    "failed_produce_requests": ("failedproducerequests", "Produce requests refused, by partition."),
    "failed_fetch_requests": ("failedfetchrequests", "Fetch requests refused, by partition."),
    "bytes_rejected": ("bytesrejected", "Bytes of record batches that were refused."),
}

_AUTHENTICATION: Final[tuple[tuple[str, str, Callable[[Tally], int]], ...]] = (
    ("successful_authentication_total", "Connections that have authenticated.", lambda tally: tally.succeeded),
    ("failed_authentication_total", "Connections that have failed to, TLS handshakes among them.", lambda tally: tally.failed),
    ("successful_reauthentication_total", "Sessions that have authenticated again.", lambda tally: tally.succeeded_again),
    ("failed_reauthentication_total", "Sessions that have failed to.", lambda tally: tally.failed_again),
    (
        "successful_authentication_no_reauth_total",
        "Connections that have authenticated for as long as they last.",
        lambda tally: tally.without_session_end,
    ),
    ("expired_connections_killed_count", "Connections closed for a request after their session had ended.", lambda tally: tally.expired),
)


def broker_families(status: Status, *, idle_share: float) -> Iterator[Family]:
    """Yields everything but what is counted over the replicas (``replica_names.py``)."""
    yield from _controller(status)
    yield from _quorum(status)
    yield from _topics(status.partitions.meters)
    yield from _replicated(status)
    yield from _requests(status)
    yield from _network(status, idle_share)
    yield from _authorizer(status)
    yield _throttled(status)


def _controller(status: Status) -> Iterator[Family]:
    image = status.image
    index = image.index  # there may be very many partitions, and clients wait for this page
    partition_count = sum(len(topic.partitions) for topic in image.topics.values())
    prefix = "kafka_controller_kafkacontroller_"
    yield gauge(prefix + "activecontrollercount", "1 on the node that is the active controller.", int(status.is_active_controller))
    yield gauge(prefix + "globaltopiccount", "Topics of the cluster.", len(image.topics))
    yield gauge(prefix + "globalpartitioncount", "Partitions of the cluster.", partition_count)
    yield gauge(prefix + "offlinepartitionscount", "Partitions without a leader.", sum(map(len, index.leaderless.values())))
    preferred = sum(index.displaced.values())
    yield gauge(prefix + "preferredreplicaimbalancecount", "Partitions whose leader is not their first replica.", preferred)
    yield gauge(prefix + "activebrokercount", "Brokers that serve.", len(image.live_brokers))
    yield gauge(prefix + "fencedbrokercount", "Brokers that are registered and do not serve.", len(image.brokers) - len(image.live_brokers))
    fenced = "Brokers that this node, as the active controller, fenced because they gave no sign of life, by reason."
    yield by_label("ottla_controller_fenced_total", "counter", fenced, "reason", status.fenced_counts)
    alarms = "Brokers that were fenced because their process seemed to have ended, and lived."
    yield counter("ottla_controller_false_alarms_total", alarms, status.false_alarm_count)
    unclean = "Leaders elected here from outside the in-sync replicas."
    yield counter("kafka_controller_controllerstats_uncleanleaderelections_total", unclean, status.unclean_election_count)
    elected = "Leaders that this controller elected, except those of new partitions."
    yield counter("kafka_controller_controllerstats_leaderelectionrateandtimems_count", elected, status.election_count)


def _topics(meters: Mapping[str, TopicMeters]) -> Iterator[Family]:
    for attribute, (name, text) in _TOPIC_COUNTS.items():
        values: dict[str, Number] = {topic: getattr(of_topic, attribute) for topic, of_topic in sorted(meters.items())}
        family = by_label(f"kafka_server_brokertopicmetrics_{name}_total", "counter", text, "topic", values)
        family.samples.insert(0, Sample(sum(values.values())))
        yield family


def _replicated(status: Status) -> Iterator[Family]:
    meters, prefix = status.partitions.replication.meters, "kafka_server_brokertopicmetrics_replication"
    yield counter(prefix + "bytesin_total", "Bytes of record batches fetched from other brokers.", meters.bytes_in)
    yield counter(prefix + "bytesout_total", "Bytes of record batches that other brokers fetched.", meters.bytes_out)
    prefix = "kafka_server_brokertopicmetrics_reassignment"
    yield counter(
        prefix + "bytesin_total",
        "Bytes of record batches fetched from other brokers for replicas that a reassignment adds here.",
        meters.reassignment_bytes_in,
    )
    yield counter(
        prefix + "bytesout_total",
        "Bytes of record batches that other brokers fetched for replicas that a reassignment adds there.",
        meters.reassignment_bytes_out,
    )
    throttles = status.partitions.replication.throttles
    for name, text, rate in (
        ("leader", "Bytes a second of throttled replicas that other brokers fetched.", throttles.leader.rate),
        ("follower", "Bytes a second of throttled replicas that were fetched from other brokers.", throttles.follower.rate),
        ("alterlogdirs", "Bytes a second of replicas that move between log directories.", status.parts.mover.rate),
    ):
        yield gauge(f"kafka_server_{name}replication_byte_rate", text, rate)


def _throttled(status: Status) -> Family:
    found = status.parts.throttling.pauses_ms.items()
    samples = [Sample(ms, (("quota", kind.value), ("user", user), ("client_id", client))) for (kind, user, client), ms in found]
    text = "Milliseconds for which clients above a quota had to pause. Clients beyond a number are counted together, as (others)."
    return Family("ottla_client_throttle_time_ms_total", "counter", text, samples, ("quota", "user", "client_id"))


def _quorum(status: Status) -> Iterator[Family]:
    """Yields the metadata log's figures; -1 for a leader that is not known."""
    quorum, prefix = status.quorum, "kafka_server_raftmetrics_"
    if quorum is None:
        return
    yield gauge(prefix + "current_leader", "The active controller, as this node knows it.", quorum.leader_id)
    yield gauge(prefix + "current_epoch", "The epoch of the metadata quorum.", quorum.epoch)
    yield gauge(
        prefix + "high_watermark", "The offset up to which the metadata log is committed, as this node knows it.", quorum.high_watermark
    )
    yield gauge(prefix + "log_end_offset", "Where the metadata log of this node ends.", quorum.log.end_offset)


def _requests(status: Status) -> Iterator[Family]:
    counts, errors, quantiles, totals = [], [], [], []
    for name, meters in status.request_meters:
        request = ("request", name)
        counts += [Sample(count, (request, ("version", str(version)))) for version, count in enumerate(meters.requests) if count]
        errors += [Sample(count, (request, ("error", error_of(code).name))) for code, count in sorted(meters.errors.items())]
        if meters.timer.count:
            totals.append(Sample(meters.timer.count, (request,)))
            found = meters.timer.quantiles(_SHARES)
            quantiles += [Sample(us / 1000, (request, ("quantile", text))) for text, us in zip(QUANTILES, found, strict=True)]
    prefix = "kafka_network_requestmetrics_"
    yield Family(prefix + "requests_total", "counter", "Requests, by API and version.", counts, ("request", "version"))
    text = "Errors that requests were answered with: those of a whole request, and of each partition, topic and the like in it."
    yield Family(prefix + "errors_total", "counter", text, errors, ("request", "error"))
    text = "Milliseconds from receiving a request to sending its answer."
    yield Family(prefix + "totaltimems", "gauge", text, quantiles, ("request", "quantile"))
    yield Family(prefix + "totaltimems_count", "untyped", "Requests whose time was measured.", totals, ("request",))


def _network(status: Status, idle_share: float) -> Iterator[Family]:
    connections = [
        Sample(count, (("listener", name), ("networkProcessor", "0"))) for name, count in sorted(status.connection_counts.items())
    ]
    yield Family(
        "kafka_server_socket_server_metrics_connection_count", "gauge", "Open connections.", connections, ("listener", "networkProcessor")
    )
    for name, text, count in _AUTHENTICATION:
        samples = [
            Sample(count(tally), (("listener", listener), ("networkProcessor", "0"))) for listener, tally in sorted(status.tallies.items())
        ]
        yield Family(f"kafka_server_socket_server_metrics_{name}", "counter", text, samples, ("listener", "networkProcessor"))
    parked = [Sample(status.parked_count, (("delayedOperation", "Fetch"),))]
    yield Family(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "gauge",
        "Requests that wait to be answered, such as fetches that wait for records.",
        parked,
    )
    idle = "The share of the time in which the event loop was idle. Acceptors, processors and handlers share this loop."
    yield gauge("kafka_network_socketserver_networkprocessoravgidle_percent", idle, idle_share)
    yield gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", idle, idle_share)
    yield gauge("kafka_network_requestchannel_requestqueuesize", "Requests that wait for the disk.", status.working_count)


def _authorizer(status: Status) -> Iterator[Family]:
    """Yields counters whose rates a minute are Kafka's metrics."""
    prefix = "kafka_server_authorizer_metrics"
    yield gauge(f"{prefix}_acls_total_count", "Access control lists of the cluster.", len(status.image.acls))
    allowed, denied = status.authorization_counts
    yield counter(f"{prefix}_authorization_allowed_total", "Operations that principals were allowed.", allowed)
    yield counter(f"{prefix}_authorization_denied_total", "Operations that principals were denied.", denied)

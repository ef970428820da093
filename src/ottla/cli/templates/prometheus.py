"""Configuration for Prometheus: where to scrape, and when to alert."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

JOB: Final = "ottla"
LAG_MAX: Final = 1000
JOB_PLACE: Final = "@job@"
LAG_PLACE: Final = "@lag@"
NO_ACCESS: Final[Mapping[str, Any]] = MappingProxyType({})
DAY_S: Final = 86_400
LATELY_S: Final = 3_600
SOON_DAYS: Final = 21
VERY_SOON_DAYS: Final = 3


_FAILED: Final = 'kafka_network_requestmetrics_errors_total{error=~"UNKNOWN_SERVER_ERROR|KAFKA_STORAGE_ERROR"}'
_UNCLEAN: Final = "kafka_controller_controllerstats_uncleanleaderelections_total"


class Alert(NamedTuple):
    name: str
    query: str
    lasts: str
    severity: str
    summary: str
    next_step: str
    """What to do, as ``ottla cluster health`` has it for the same."""


ALERTS: Final = (
    Alert(
        "UnderReplicatedPartitions",
        "kafka_server_replicamanager_underreplicatedpartitions > 0",
        "3m",  # a restart, one node after the other, is over for each before that
        "warning",
        "{{ $value }} partitions led by {{ $labels.instance }} have replicas out of sync",
        "`ottla cluster health` names the broker that lags and what to do: start it, or look at its log and its disk",
    ),
    Alert(
        "NotOneActiveController",
        "sum by (job) (kafka_controller_kafkacontroller_activecontrollercount) != 1",
        "10s",
        "critical",
        "{{ $value }} brokers say that they are the active controller",
        "`ottla cluster health` names the controllers to start; where several stay active, compare the cluster ids and voters of the nodes",
    ),
    Alert(
        "OfflinePartitions",
        "max by (job) (kafka_controller_kafkacontroller_offlinepartitionscount) > 0",
        "10s",
        "critical",
        "{{ $value }} partitions have no leader",
        "start the brokers that `ottla cluster health` names; `ottla partition elect --unclean` is for lost brokers, and loses records",
    ),
    Alert(
        "UnderMinIsrPartitions",
        "kafka_server_replicamanager_underminisrpartitioncount > 0",
        "10s",
        "critical",
        "{{ $value }} partitions refuse acks=all: too few replicas are in sync",
        "start the brokers that `ottla cluster health` names; producers with acks=all wait or fail until then",
    ),
    Alert(
        "AtMinIsrPartitions",
        "kafka_server_replicamanager_atminisrpartitioncount > 0 and kafka_server_replicamanager_underreplicatedpartitions > 0",
        "5m",
        "warning",
        "of the partitions that {{ $labels.instance }} leads, {{ $value }} have no replica in sync to spare: one more loss stops acks=all",
        "stop no other broker; `ottla cluster health` names the replicas that are missing, and what they lack",
    ),
    Alert(
        "ReplicaDoesNotCatchUp",
        f"min_over_time(kafka_server_replicafetchermanager_maxlag[15m]) > {LAG_MAX}"
        " and delta(kafka_server_replicafetchermanager_maxlag[15m]) >= 0",
        "5m",
        "warning",
        "a replica of {{ $labels.instance }} lacks {{ $value }} records, and does not catch up",
        "`ottla cluster health` names throttles that are left set; else look at the disk and the network of the broker",
    ),
    Alert(
        "OfflineDataDirectories",
        "kafka_log_logmanager_offlinelogdirectorycount > 0",
        "10s",
        "critical",
        "{{ $value }} log directories of {{ $labels.instance }} have failed",
        "see log_dir_failed in the node's log; replace the disk and restart the node, which fetches its replicas again",
    ),
    Alert(
        "DiskFull",
        "ottla_log_dir_usable_bytes == 0",
        "10s",
        "critical",
        "{{ $labels.directory }} of {{ $labels.instance }} is full: nothing is written there",
        "lower `retention.ms`, delete topics, or add room; writing goes on by itself once there is room",
    ),
    Alert(
        "UncleanLeaderElection",
        f"({_UNCLEAN} > 0 and time() - process_start_time_seconds < {LATELY_S}) or increase({_UNCLEAN}[1h]) > 0",
        "0s",
        "critical",
        "{{ $value }} replicas that were not in sync were made leaders: records that were acknowledged may be lost",
        "see unclean_leader_elected in the controller's log for the partitions; compare them with a backup, or with what produced them",
    ),
    Alert(
        "LogCut",
        f"ottla_log_cut_bytes_total > 0 and time() - process_start_time_seconds < {LATELY_S}",
        "0s",
        "warning",
        "the start of {{ $labels.instance }} has cut {{ $value }} damaged bytes off from logs",
        "see log_cut in the node's log for the partitions: other replicas have the records, and those of a sole replica are lost",
    ),
    Alert(
        "MissingReplica",
        f"(ottla_missing_replicas_total > 0 and time() - process_start_time_seconds < {LATELY_S})"
        " or increase(ottla_missing_replicas_total[1h]) > 0",
        "0s",
        "critical",
        "{{ $labels.instance }} misses the directories of {{ $value }} replicas that had records",
        "see replica_missing and replica_removed in its log: those of topics with one replica are lost, others are fetched again",
    ),
    Alert(
        "DamagedSegment",
        f"(ottla_damaged_segments_total > 0 and time() - process_start_time_seconds < {LATELY_S})"
        " or increase(ottla_damaged_segments_total[1d]) > 0",
        "0s",
        "warning",
        "{{ $value }} segments of {{ $labels.instance }} are damaged",
        "see segment_damaged in the node's log (docs/operating.md, A damaged log); where it comes back, the disk or the memory is bad",
    ),
    Alert(
        "ConsumerLag",
        f"sum by (job, consumergroup, topic) (kafka_consumergroup_lag) > {LAG_PLACE}",
        "5m",
        "warning",
        "group {{ $labels.consumergroup }} is {{ $value }} records behind in {{ $labels.topic }}",
        "`ottla group describe GROUP` shows the lag of each member: add consumers, or see why they are slow",
    ),
    Alert(
        "GroupStalled",
        "sum by (job, consumergroup, topic) (kafka_consumergroup_lag) > 0"
        " and sum by (job, consumergroup, topic) (delta(kafka_consumergroup_current_offset[15m])) == 0",
        "15m",
        "warning",
        "group {{ $labels.consumergroup }} has {{ $value }} records to read in {{ $labels.topic }}, and commits none",
        "`ottla group describe GROUP --members` shows whether it has members; see their logs; `ottla txn list` shows open transactions",
    ),
    Alert(
        "EventLoopDelay",
        "ottla_event_loop_delay_seconds > 0.5",
        "1m",
        "warning",
        "the event loop of {{ $labels.instance }} is {{ $value }} s late: it has too much to do, or waits for the disk",
        "move partitions to other brokers (`ottla partition reassign`), run more of them (`--cores`), or look at the disk",
    ),
    Alert(
        "SlowRequests",
        'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} > 1000',
        "5m",
        "warning",
        "one in a hundred Produce requests at {{ $labels.instance }} takes {{ $value }} ms or more",
        "look for replicas that are slow (acks=all waits for them), at the disk, and at `ottla_event_loop_delay_seconds`",
    ),
    Alert(
        "FailedRequests",
        f"increase({_FAILED}[5m]) > 0 or ({_FAILED} unless {_FAILED} offset 5m)",  # a series is there from its first error on
        "0s",
        "warning",
        "{{ $labels.instance }} answered {{ $labels.request }} with {{ $labels.error }}",
        "the node's log has the reason; UNKNOWN_SERVER_ERROR is a defect of the broker: report it with `ottla debug bundle`",
    ),
    Alert(
        "FencedBroker",
        "max by (job) (kafka_controller_kafkacontroller_fencedbrokercount) > 0",
        "1m",
        "critical",
        "{{ $value }} brokers are registered and do not serve",
        "`ottla cluster health` names them, and what to do: start them, or see broker_fenced in the controller's log for the reason",
    ),
    Alert(
        "VoterLags",
        "max by (job) (kafka_server_raftmetrics_high_watermark offset 2m)"
        " - on (job) group_right () kafka_server_raftmetrics_log_end_offset > 0",
        "1m",
        "warning",
        "{{ $labels.instance }} lacks {{ $value }} records of the metadata log that were committed two minutes ago",
        "`ottla quorum` shows the lag of each voter, and `ottla cluster health` why; look at its log, its disk and its network",
    ),
    Alert(
        "FailedIsrUpdates",
        "increase(kafka_server_replicamanager_failedisrupdates_total[5m]) > 0",
        "10m",
        "warning",
        "the controller refuses changes of in-sync replicas by {{ $labels.instance }}, or does not answer",
        "`ottla cluster health` says whether a controller is active; see the broker's log for the reasons",
    ),
    Alert(
        "LateTransactions",
        "kafka_server_replicamanager_partitionswithlatetransactionscount > 0",
        "1m",
        "warning",
        "{{ $value }} partitions of {{ $labels.instance }} have a transaction that is open for longer than any may be",
        "readers of committed records wait for its end: `ottla txn find-hanging` says how it ended, and ends it there with --yes",
    ),
    Alert(
        "FailedLogins",
        "increase(kafka_server_socket_server_metrics_failed_authentication_total[5m]) > 10",
        "0s",
        "warning",
        "{{ $value }} connections to the listener {{ $labels.listener }} of {{ $labels.instance }} failed to authenticate in five minutes",
        "the node's log has the address and the reason of each; a client has a wrong password or certificate, or is guessing",
    ),
    Alert(
        "OpenDescriptors",
        "process_open_fds / process_max_fds > 0.8",
        "5m",
        "warning",
        "{{ $labels.instance }} has {{ $value | humanizePercentage }} of the descriptors open that it may have",
        "raise LimitNOFILE of its unit: each connection takes one, each segment up to three",
    ),
    Alert(
        "ClockSkew",
        "abs(ottla_clock_seconds - timestamp(ottla_clock_seconds)) > 30",
        "2m",
        "warning",
        "the clock of {{ $labels.instance }} is {{ $value }} s from that of Prometheus",
        "see that NTP runs on both: retention, timestamps, certificates and tokens go by the clock",
    ),
    Alert(
        "CertificateExpiresSoon",
        f"ottla_certificate_expiry_seconds < {SOON_DAYS * DAY_S}",
        "1h",
        "warning",
        "the certificate of the listener {{ $labels.listener }} of {{ $labels.instance }} is valid for {{ $value | humanizeDuration }}",
        "put a new certificate in the place of the old one: the broker reads it within a minute, the admin pages at a restart",
    ),
    Alert(
        "CertificateExpires",
        f"ottla_certificate_expiry_seconds < {VERY_SOON_DAYS * DAY_S}",
        "10s",
        "critical",
        "in {{ $value | humanizeDuration }} no client can connect to the listener {{ $labels.listener }} of {{ $labels.instance }}",
        "put a new certificate in the place of the old one: the broker reads it within a minute, the admin pages at a restart",
    ),
    Alert(
        "DiskFills",
        "ottla_log_dir_usable_bytes / ottla_log_dir_volume_bytes < 0.1 or predict_linear(ottla_log_dir_usable_bytes[6h], 2 * 86400) < 0",
        "10m",
        "warning",
        "{{ $labels.directory }} of {{ $labels.instance }} is almost full, or will be in two days: lower retention, or add room",
        "`ottla broker logdirs --replicas` lists what is where; `ottla topic alter NAME -c retention.ms=MS` deletes older records",
    ),
    Alert(
        "BrokerDown",
        f'up{{job="{JOB_PLACE}"}} == 0',
        "10s",
        "critical",
        "{{ $labels.instance }} cannot be scraped",
        "`ottla cluster health` says whether it serves; start it (`ottla broker start FILE`), and read the end of its log",
    ),
)


def alert_rules(*, job: str = JOB, lag: int = LAG_MAX) -> dict[str, Any]:
    """Returns the rules: for brokers that this job scrapes, and for groups that lag by more than so many records."""
    rules = [
        {
            "alert": alert.name,
            "expr": alert.query.replace(JOB_PLACE, job.replace("\\", "\\\\").replace('"', '\\"')).replace(LAG_PLACE, str(lag)),
            "for": alert.lasts,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": alert.next_step},
        }
        for alert in ALERTS
    ]
    return {"groups": [{"name": "ottla", "rules": rules}]}


def scrape_config(targets: list[str], *, job: str = JOB, access: Mapping[str, Any] = NO_ACCESS) -> dict[str, Any]:
    """Returns jobs for the brokers and, less often, for their partitions and for the lag of groups; ``access`` is how they are reached."""
    static = [{"targets": targets}]
    return {
        "scrape_configs": [
            {"job_name": job, "scrape_interval": "10s", **access, "static_configs": static},
            {"job_name": f"{job}-partitions", "metrics_path": "/metrics/partitions", "scrape_interval": "30s", **access}
            | {"static_configs": static},
            {"job_name": f"{job}-lag", "metrics_path": "/metrics/lag", "scrape_interval": "30s", **access, "static_configs": static},
        ]
    }

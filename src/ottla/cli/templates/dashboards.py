"""Grafana dashboards: one of the brokers, one of the groups' lag.

A dashboard is rows of panels; a panel is a title, a unit and Prometheus queries with their legends. Everything else that
Grafana wants is the same for all.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

SCHEMA_VERSION: Final = 39
COLUMNS: Final = 24
_PANEL_HEIGHT: Final = 8
_LINE_PANELS_MAX: Final = 4
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    title: str
    unit: str
    queries: dict[str, str]  # by legend
    kind: str = "timeseries"


def broker_dashboard() -> dict[str, Any]:
    """Returns a dashboard: health, traffic, requests and the processes of all brokers that Prometheus scrapes."""
    topics = "kafka_server_brokertopicmetrics_"
    server, requests = "kafka_server_replicamanager_", "kafka_network_requestmetrics_"
    rows = {
        "Health": [
            Panel("Active controllers", "none", {"": "sum(kafka_controller_kafkacontroller_activecontrollercount)"}, "stat"),
            Panel("Under-replicated partitions", "none", {"": f"sum({server}underreplicatedpartitions)"}, "stat"),
            Panel("Partitions under min ISR", "none", {"": f"sum({server}underminisrpartitioncount)"}, "stat"),
            Panel("Offline partitions", "none", {"": "max(kafka_controller_kafkacontroller_offlinepartitionscount)"}, "stat"),
            Panel("Brokers that do not serve", "none", {"": "max(kafka_controller_kafkacontroller_fencedbrokercount)"}, "stat"),
            Panel("Offline log directories", "none", {"": "sum(kafka_log_logmanager_offlinelogdirectorycount)"}, "stat"),
            Panel("Partitions with late transactions", "none", {"": f"sum({server}partitionswithlatetransactionscount)"}, "stat"),
        ],
        "Traffic": [
            Panel("Bytes in", "Bps", {"{{topic}}": f'sum by (topic) (rate({topics}bytesin_total{{topic!=""}}[1m]))'}),
            Panel("Bytes out", "Bps", {"{{topic}}": f'sum by (topic) (rate({topics}bytesout_total{{topic!=""}}[1m]))'}),
            Panel("Records in", "cps", {"{{topic}}": f'sum by (topic) (rate({topics}messagesin_total{{topic!=""}}[1m]))'}),
            Panel(
                "Refused requests",
                "reqps",
                {
                    "produce": f'sum(rate({topics}failedproducerequests_total{{topic!=""}}[1m]))',
                    "fetch": f'sum(rate({topics}failedfetchrequests_total{{topic!=""}}[1m]))',
                },
            ),
        ],
        "Requests": [
            Panel("Requests", "reqps", {"{{request}}": f"sum by (request) (rate({requests}requests_total[1m]))"}),
            Panel("Time at p99", "ms", {"{{request}}": f'max by (request) ({requests}totaltimems{{quantile="0.99"}})'}),
            Panel(
                "Errors",
                "reqps",
                {"{{request}} {{error}}": f"sum by (request, error) (rate({requests}errors_total[1m]))"},
            ),
            Panel(
                "Client throttle time",
                "ms",
                {"{{quota}} {{user}} {{client_id}}": "sum by (quota, user, client_id) (rate(ottla_client_throttle_time_ms_total[1m]))"},
            ),
            Panel(
                "Failed logins",
                "cps",
                {"{{instance}} {{listener}}": "rate(kafka_server_socket_server_metrics_failed_authentication_total[5m])"},
            ),
            Panel("Connections", "none", {"{{instance}} {{listener}}": "kafka_server_socket_server_metrics_connection_count"}),
        ],
        "Partitions and replication": [
            Panel("Leaders", "none", {"{{instance}}": f"{server}leadercount"}),
            Panel("Replicas", "none", {"{{instance}}": f"{server}partitioncount"}),
            Panel("Moves", "none", {"{{instance}}": f"{server}reassigningpartitions"}),
            Panel("Replica lag", "none", {"{{instance}}": "kafka_server_replicafetchermanager_maxlag"}),
            Panel(
                "Replication bytes",
                "Bps",
                {
                    "in {{instance}}": f"rate({topics}replicationbytesin_total[1m])",
                    "out {{instance}}": f"rate({topics}replicationbytesout_total[1m])",
                },
            ),
            Panel("Failed changes of replicas in sync", "cps", {"{{instance}}": f"rate({server}failedisrupdates_total[5m])"}),
            Panel(
                "Changes of replicas in sync",
                "cps",
                {f"{change} {{{{instance}}}}": f"rate({server}isr{change}_total[5m])" for change in ("shrinks", "expands")},
            ),
            Panel(
                "Leader elections",
                "cps",
                {
                    "elections {{instance}}": "rate(kafka_controller_controllerstats_leaderelectionrateandtimems_count[5m])",
                    "unclean {{instance}}": "rate(kafka_controller_controllerstats_uncleanleaderelections_total[5m])",
                },
            ),
        ],
        "Quorum": [
            Panel("Metadata log end", "none", {"{{instance}}": "kafka_server_raftmetrics_log_end_offset"}),
            Panel("Metadata committed", "none", {"{{instance}}": "kafka_server_raftmetrics_high_watermark"}),
            Panel("Active controller, by node", "none", {"{{instance}}": "kafka_server_raftmetrics_current_leader"}),
            Panel("Epoch", "none", {"{{instance}}": "kafka_server_raftmetrics_current_epoch"}),
        ],
        "Disks": [
            Panel("Usable bytes", "bytes", {"{{instance}} {{directory}}": "ottla_log_dir_usable_bytes"}),
            Panel("Size of the volumes", "bytes", {"{{instance}} {{directory}}": "ottla_log_dir_volume_bytes"}),
            Panel("Requests that wait for the disk", "none", {"{{instance}}": "kafka_network_requestchannel_requestqueuesize"}),
            Panel(
                "Damage since the start",
                "none",
                {
                    "damaged segments {{instance}}": "ottla_damaged_segments_total",
                    "missing replicas {{instance}}": "ottla_missing_replicas_total",
                    "cut files {{instance}}": "ottla_log_cuts_total",
                },
            ),
        ],
        "Groups": [
            Panel("Consumer lag", "none", {"{{consumergroup}}": "sum by (consumergroup) (kafka_consumergroup_lag)"}),
            Panel("Members", "none", {"{{consumergroup}}": "sum by (consumergroup) (kafka_consumergroup_members)"}),
        ],
        "Process": [
            Panel("Event loop idle", "percentunit", {"{{instance}}": "kafka_network_socketserver_networkprocessoravgidle_percent"}),
            Panel("Event loop delay", "s", {"{{instance}}": "ottla_event_loop_delay_seconds"}),
            Panel("Memory", "bytes", {"{{instance}}": "process_resident_memory_bytes"}),
            Panel("Open descriptors", "none", {"{{instance}}": "process_open_fds"}),
        ],
    }
    return _dashboard("ottla-brokers", "ottla: brokers", rows, jobs_of="process_start_time_seconds", lag_job="$job-lag")


def lag_dashboard() -> dict[str, Any]:
    """Returns a dashboard of groups' lag. Its page, /metrics/lag, is scraped as a job of its own."""
    lag, group = "kafka_consumergroup_lag", "{{consumergroup}} {{topic}}"
    offset = "kafka_topic_partition_current_offset"
    rows = {
        "Lag": [
            Panel("Lag by group and topic", "none", {group: f"sum by (consumergroup, topic) ({lag})"}),
            Panel("Records read", "cps", {group: "sum by (consumergroup, topic) (rate(kafka_consumergroup_current_offset[1m]))"}),
            Panel("Records written", "cps", {"{{topic}}": f"sum by (topic) (rate({offset}[1m]))"}),
            Panel("Members", "none", {"{{consumergroup}}": "kafka_consumergroup_members"}),
        ],
    }
    return _dashboard("ottla-lag", "ottla: consumer lag", rows, jobs_of="kafka_consumergroup_members", lag_job="$job")


def _dashboard(uid: str, title: str, rows: dict[str, list[Panel]], *, jobs_of: str, lag_job: str) -> dict[str, Any]:
    """Returns it; its jobs and instances are those that have the series ``jobs_of``, and ``lag_job`` scrapes the page /metrics/lag."""
    panels: list[dict[str, Any]] = []
    top = 0
    for name, members in rows.items():
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": name, "collapsed": False, "gridPos": _place(top, 0, COLUMNS, 1), "panels": []}
        )
        top += 1
        for line in _lines(members):
            width = COLUMNS // len(line)
            for index, panel in enumerate(line):
                panels.append(_panel(len(panels) + 1, panel, _place(top, index * width, width, _PANEL_HEIGHT), lag_job))
            top += _PANEL_HEIGHT
    return {
        "uid": uid,
        "title": title,
        "tags": ["ottla"],
        "schemaVersion": SCHEMA_VERSION,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}, "hide": 0},
                _variable("job", f"label_values({jobs_of}, job)"),
                _variable("instance", f'label_values({jobs_of}{{job=~"$job"}}, instance)'),
            ]
        },
        "panels": panels,
    }


def _place(top: int, left: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _lines(panels: list[Panel]) -> list[list[Panel]]:
    """Returns the lines of a row: small figures side by side, and of graphs as many in each line as nearly as can be."""
    if panels[0].kind == "stat":
        return [panels]
    lines = -(-len(panels) // _LINE_PANELS_MAX)
    return [panels[len(panels) * line // lines : len(panels) * (line + 1) // lines] for line in range(lines)]


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _of_variables(query: str, lag_job: str) -> str:
    """Returns the query of what the variables choose."""

    def chosen(found: re.Match[str]) -> str:
        job = lag_job if found[1].startswith(("kafka_consumergroup_", "kafka_topic_")) else "$job"
        return f'{found[1]}{{job=~"{job}",instance=~"$instance"' + ("," if found[2] else "}")

    return re.sub(r"\b((?:kafka|ottla|process|python)_\w+)(\{?)", chosen, query)


def _panel(number: int, panel: Panel, place: dict[str, int], lag_job: str) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "expr": _of_variables(query, lag_job),
            "legendFormat": legend or "__auto",
            "datasource": _DATASOURCE,
        }
        for index, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "gridPos": place,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }

"""The pages for operators, read as a scraper and a load balancer read them."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.wire import RawClient, batch_of

from ottla import sync
from ottla.admin_http.exposition import Family, Sample, render
from ottla.broker.tasks.slices import Slices
from ottla.config.forms import admin_address
from ottla.errors import KafkaError
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.runtime.clock import SystemClock

WAIT_SECONDS_MAX = 20
STRIMZI = {  # what the Kafka dashboard and the alerts of Strimzi read, apart from the JVM's and the containers'
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_server_replicamanager_atminisrpartitioncount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_leadercount",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_network_requestmetrics_requests_total",
    "kafka_server_socket_server_metrics_connection_count",
}
Metrics = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("admin")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with BrokerProcess(directory, ottla_admin_listener=str(port)) as broker:
        broker.properties["ottla.admin.listener"] = str(port)
        with sync.Admin(broker.bootstrap) as admin:
            admin.create_topics([sync.NewTopic('quoted"', 1), sync.NewTopic("events", 2)])
        with sync.Producer(broker.bootstrap) as producer:
            for number in range(10):
                producer.send("events", b"%d" % number, partition=0).result(WAIT_SECONDS_MAX)
        with sync.Consumer(broker.bootstrap, group_id="readers", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            consumer.assign([sync.TopicPartition("events", 0)])
            records = consumer.poll(WAIT_SECONDS_MAX * 1000)
            assert records
            consumer.commit({sync.TopicPartition("events", 0): 4})
        yield broker


def get(broker: BrokerProcess, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", int(broker.properties["ottla.admin.listener"]), timeout=WAIT_SECONDS_MAX)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.getheader("Content-Type") or "", response.read()
    finally:
        connection.close()


def metrics(broker: BrokerProcess, path: str) -> Metrics:
    status, kind, body = get(broker, path)
    assert status == 200
    assert kind.startswith("text/plain; version=0.0.4")
    found: Metrics = {}
    for family in text_string_to_metric_families(body.decode()):
        assert family.documentation, family.name
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, "each series is there once"
            found[key] = sample.value
    return found


def value(found: Metrics, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def total(found: Metrics, name: str, request: str) -> float:
    return sum(count for (found_name, labels), count in found.items() if found_name == name and ("request", request) in labels)


def test_the_names_that_dashboards_read_are_there(broker: BrokerProcess) -> None:
    found = metrics(broker, "/metrics")
    assert {name for name, _ in found} >= STRIMZI
    assert value(found, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(found, "kafka_server_replicamanager_underreplicatedpartitions") == 0


def test_records_bytes_and_requests_are_counted_in_total_and_by_topic(broker: BrokerProcess) -> None:
    found = metrics(broker, "/metrics")
    assert value(found, "kafka_server_brokertopicmetrics_messagesin_total", topic="events") == 10
    assert value(found, "kafka_server_brokertopicmetrics_messagesin_total") == 10
    bytes_in = value(found, "kafka_server_brokertopicmetrics_bytesin_total", topic="events")
    assert 10 * 61 < bytes_in == value(found, "kafka_server_brokertopicmetrics_bytesout_total", topic="events")
    assert total(found, "kafka_network_requestmetrics_requests_total", "Produce") == 10
    assert value(found, "kafka_network_requestmetrics_totaltimems_count", request="Produce") == 10
    median = value(found, "kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.50")
    assert 0 < median <= value(found, "kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.999")
    assert value(found, "ottla_request_seconds_count", request="Produce") == 10
    assert value(found, "ottla_request_seconds_bucket", request="Produce", le="+Inf") == 10


def test_errors_of_a_whole_request_are_counted(broker: BrokerProcess) -> None:
    before = total(metrics(broker, "/metrics"), "kafka_network_requestmetrics_errors_total", "FindCoordinator")
    with RawClient(broker.port) as client:
        assert client.ask(FindCoordinatorRequest("t", 2), 2).error_code != 0
    assert total(metrics(broker, "/metrics"), "kafka_network_requestmetrics_errors_total", "FindCoordinator") == before + 1


def test_errors_of_partitions_are_counted_as_kafka_counts_them(broker: BrokerProcess) -> None:
    """An outage of writes was to be seen nowhere: a Produce that is refused has its error in the partition, not at the top."""
    before = metrics(broker, "/metrics")
    batch = bytearray(batch_of(b"v"))
    batch[-1] ^= 1  # its checksum is wrong
    data = [PartitionProduceData(0, memoryview(batch)), PartitionProduceData(7, memoryview(batch_of(b"v")))]
    with RawClient(broker.port) as client:
        client.ask(ProduceRequest(acks=1, timeout_ms=5000, topic_data=[TopicProduceData(name="events", partition_data=data)]), 9)
        wanted = [FetchPartition(0, fetch_offset=999, partition_max_bytes=100), FetchPartition(7, partition_max_bytes=100)]
        client.ask(FetchRequest(max_wait_ms=0, max_bytes=1000, topics=[FetchTopic("events", partitions=wanted)]), 11)
        client.ask(MetadataRequest([MetadataRequestTopic(name="absent")], allow_auto_topic_creation=False), 9)
    after = metrics(broker, "/metrics")

    def risen(name: str, **labels: str) -> float:
        key = name, frozenset(labels.items())
        return after.get(key, 0) - before.get(key, 0)

    errors = "kafka_network_requestmetrics_errors_total"
    assert risen(errors, request="Produce", error="CORRUPT_MESSAGE") == 1
    assert risen(errors, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert risen(errors, request="Fetch", error="OFFSET_OUT_OF_RANGE") == 1
    assert risen(errors, request="Fetch", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert risen(errors, request="Metadata", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert risen("kafka_server_brokertopicmetrics_failedproducerequests_total", topic="events") == 2
    assert risen("kafka_server_brokertopicmetrics_failedfetchrequests_total", topic="events") == 2


def test_the_room_of_log_directories_is_that_of_their_volumes(broker: BrokerProcess) -> None:
    found = metrics(broker, "/metrics")
    directory = str(broker.data)
    size, usable = (value(found, f"ottla_log_dir_{name}_bytes", directory=directory) for name in ("volume", "usable"))
    assert size == shutil.disk_usage(directory).total
    assert 0 < usable <= size


def test_partitions_have_a_page_of_their_own(broker: BrokerProcess) -> None:
    found = metrics(broker, "/metrics/partitions")
    assert value(found, "kafka_log_log_logendoffset", topic="events", partition="0") == 10
    assert value(found, "kafka_log_log_logendoffset", topic="events", partition="1") == 0
    assert value(found, "kafka_log_log_size", topic="events", partition="0") > 10 * 61
    assert value(found, "kafka_cluster_partition_underminisr", topic="events", partition="0") == 0
    assert not [name for name, _ in metrics(broker, "/metrics") if name.startswith("kafka_log_log_")]


def test_lag_of_groups_is_reported_under_the_names_of_kafka_exporter(broker: BrokerProcess) -> None:
    found = metrics(broker, "/metrics/lag")
    group = {"consumergroup": "readers", "topic": "events"}
    assert value(found, "kafka_consumergroup_current_offset", **group, partition="0") == 4
    assert value(found, "kafka_consumergroup_lag", **group, partition="0") == 6
    assert value(found, "kafka_consumergroup_lag_sum", **group) == 6
    assert value(found, "kafka_topic_partition_current_offset", topic="events", partition="0") == 10
    assert value(found, "kafka_brokers") == 1


def test_health_readiness_and_version(broker: BrokerProcess) -> None:
    for path in ("/healthz", "/livez"):
        assert json.loads(get(broker, path)[2]) == {"status": "alive"}
    status, _, body = get(broker, "/readyz")
    assert (status, json.loads(body)["status"], json.loads(body)["reasons"]) == (200, "ready", [])
    assert json.loads(get(broker, "/version")[2])["name"] == "ottla"


def test_what_is_not_there_and_what_is_not_allowed(broker: BrokerProcess) -> None:
    status, _, body = get(broker, "/nothing")
    assert status == 404
    assert "/metrics" in json.loads(body)["pages"]
    assert get(broker, "/metrics", "POST")[0] == 405
    assert get(broker, "/metrics", "HEAD")[2] == b""


@pytest.mark.slow
def test_a_peer_that_talks_nonsense_or_not_at_all_costs_other_clients_nothing(broker: BrokerProcess) -> None:
    address = ("127.0.0.1", int(broker.properties["ottla.admin.listener"]))
    with socket.create_connection(address, WAIT_SECONDS_MAX) as silent, socket.create_connection(address, WAIT_SECONDS_MAX) as loud:
        loud.sendall(b"x" * 20_000)
        assert loud.recv(1) == b"", "closed at once"
        assert get(broker, "/healthz")[0] == 200
        assert silent.recv(1) == b"", "closed when its time is over"


def test_help_and_labels_are_escaped() -> None:
    families = [Family("a", "gauge", 'line\nand \\ "', [Sample(1.5, (("l", 'x"\\\ny'),))])]
    [family] = text_string_to_metric_families(asyncio.run(render(families, Slices(SystemClock()))))
    assert family.samples[0].labels == {"l": 'x"\\\ny'}
    assert family.samples[0].value == 1.5


@pytest.mark.parametrize(("text", "address"), [("9644", ("127.0.0.1", 9644)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:5", ("::1", 5))])
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert admin_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", ":70000", "http://127.0.0.1:9644", "https://h:1/metrics:9644"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(KafkaError, match=r"ottla\.admin\.listener"):
        admin_address(text)


def test_a_broker_that_has_no_such_listener_serves_no_pages(broker: BrokerProcess, tmp_path: Path) -> None:
    assert "admin_started" in broker.log()
    with BrokerProcess(tmp_path) as other:
        assert "admin_started" not in other.log()

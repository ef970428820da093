"""What the pages for operators say when something is wrong: of brokers in the simulated world, and of connections that end badly."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.admin_http.test_pages import get
from tests.broker.test_log_care import attempt, create, directory_of, play
from tests.broker.test_parts_beside_each_other import delete
from tests.cluster.in_simulation import SimNodes
from tests.cluster.in_simulation import play as play_nodes
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.waiting import eventually

from ottla.admin_http import pages
from ottla.admin_http.exposition import Sample
from ottla.admin_http.pages import AdminPages
from ottla.broker.node import Broker
from ottla.broker.tasks.slices import Slices
from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode
from ottla.sim.cluster import SimBroker
from ottla.sim.disk_faults import ANY, Fault
from ottla.types import GROUP_METADATA_TOPIC, TopicPartition

PAGES = ("/metrics", "/metrics/partitions", "/metrics/lag", "/healthz", "/livez", "/readyz", "/version")


WAIT_SECONDS_MAX = 60


async def readiness(broker: Broker) -> tuple[HTTPStatus, list[str]]:
    answer = await AdminPages(broker).get("/readyz")
    found = json.loads(answer.body)
    assert found["status"] == ("ready" if answer.status == HTTPStatus.OK else "not ready")
    return answer.status, found["reasons"] + found["notes"]


async def value(broker: Broker, page: str, name: str, **labels: str) -> float:
    answer = await AdminPages(broker).get(page)
    families = text_string_to_metric_families(answer.body.decode())
    [found] = [sample.value for family in families for sample in family.samples if (sample.name, sample.labels) == (name, labels)]
    return found


async def assert_pages_are_there(broker: Broker, *, is_ready: bool = True) -> None:
    for page in PAGES:
        answer = await AdminPages(broker).get(page)
        assert answer.status == (HTTPStatus.OK if is_ready or page != "/readyz" else HTTPStatus.SERVICE_UNAVAILABLE), page


def test_a_broker_is_ready_while_one_of_its_log_directories_is_offline_and_says_which_partitions_have_failed() -> None:
    """One damaged partition of many let a load balancer drop the broker, and one without a leader all brokers."""

    async def act(sim: SimBroker) -> None:
        broker = sim.broker
        assert broker is not None
        await create(sim, "t", 4)
        bad = [index for index in range(4) if directory_of(sim, "t", index) == "spare"]
        assert await readiness(broker) == (HTTPStatus.OK, [])
        sim.machine.disk.faults.append(Fault("append", ".log", errno.EIO, within="/spare"))
        assert await attempt(sim, bad[0]) == ErrorCode.KAFKA_STORAGE_ERROR
        failed = f"2 partitions have failed: t-{bad[0]}, t-{bad[1]}"
        directory = "log directory /spare has failed: see log_dir_failed in the log"
        assert await readiness(broker) == (HTTPStatus.OK, [failed, directory])
        await asyncio.sleep(10)  # the controller has it
        assert await readiness(broker) == (HTTPStatus.OK, [failed, directory, "2 partitions of the cluster have no leader"])
        await assert_pages_are_there(broker)
        for name, number in (
            ("kafka_server_replicamanager_offlinereplicacount", 2),
            ("kafka_log_logmanager_offlinelogdirectorycount", 1),
            ("kafka_controller_kafkacontroller_offlinepartitionscount", 2),
        ):
            assert await value(broker, "/metrics", name) == number, name

    play(act, log_dirs="/data,/spare")


def test_a_broker_is_ready_while_some_partitions_could_not_be_opened_and_says_that_they_have_no_leader() -> None:
    async def act(sim: SimBroker) -> None:
        await create(sim, "t", 4)
        await sim.stop()
        sim.machine.disk.faults.append(Fault(ANY, "", errno.EIO, lasts=True, within="/spare"))
        await sim.start()
        assert sim.broker is not None
        await asyncio.sleep(10)
        assert await readiness(sim.broker) == (HTTPStatus.OK, ["2 partitions of the cluster have no leader"])
        await assert_pages_are_there(sim.broker)
        assert await value(sim.broker, "/metrics", "kafka_server_replicamanager_offlinereplicacount") == 2

    play(act, log_dirs="/data,/spare")


def test_a_broker_is_not_ready_while_every_log_directory_is_full_and_ready_again_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_blocks=9, f_bavail=7, f_frsize=1))

    async def act(sim: SimBroker) -> None:
        broker = sim.broker
        assert broker is not None
        await create(sim, "t", 4)
        in_directory = {directory_of(sim, "t", index): index for index in range(4)}
        reason = "every log directory is full, and nothing is written: /data, /spare; lower retention.ms, delete topics, or add room"
        for directory in ("data", "spare"):
            full = [] if directory == "data" else ["log directory /data is full, and nothing is written there"]
            assert await readiness(broker) == (HTTPStatus.OK, full), "one of them has room"
            for operation in ("append", "reserve"):
                sim.machine.disk.faults.append(Fault(operation, "", errno.ENOSPC, lasts=True, within=f"/{directory}"))
            assert await attempt(sim, in_directory[directory]) == ErrorCode.KAFKA_STORAGE_ERROR
            usable = [await value(broker, "/metrics", "ottla_log_dir_usable_bytes", directory=path) for path in ("/data", "/spare")]
            assert usable == ([0, 7] if directory == "data" else [0, 0]), "the reserve is no room for records"
        assert await readiness(broker) == (HTTPStatus.SERVICE_UNAVAILABLE, [reason])
        await assert_pages_are_there(broker, is_ready=False)
        sim.machine.disk.faults.clear()
        while await readiness(broker) != (HTTPStatus.OK, []):
            await asyncio.sleep(1)  # simulated: there is room, and the next probe finds it

    play(act, log_dirs="/data,/spare")


def test_a_partition_that_has_failed_is_named_with_its_damaged_segment() -> None:
    async def act(sim: SimBroker) -> None:
        broker = sim.broker
        assert broker is not None
        await create(sim, "t", 1)
        found = broker.partitions.find("t", 0)
        assert found is not None
        found.log.health.reason = "damaged: /data/t-0/0.log"
        found.fail()
        failed = ["all partitions have failed", "1 partition has failed: t-0 (damaged: /data/t-0/0.log)"]
        assert await readiness(broker) == (HTTPStatus.SERVICE_UNAVAILABLE, failed)

    play(act)


def test_a_broker_whose_listeners_are_closed_is_not_ready_and_its_pages_are_there() -> None:
    async def act(sim: SimBroker) -> None:
        assert sim.broker is not None
        await sim.broker.gate.stop()
        reasons = ["the listeners are closed: the broker is stopping"]
        assert await readiness(sim.broker) == (HTTPStatus.SERVICE_UNAVAILABLE, reasons)
        await assert_pages_are_there(sim.broker, is_ready=False)

    play(act)


def test_lag_is_counted_to_what_consumers_can_read() -> None:
    """Not to the leader's log end: what its followers do not have yet is no group's lag."""

    async def body(nodes: SimNodes) -> None:
        async def commit(cluster: Cluster, topic: str) -> None:
            consumer = Consumer(cluster, ConsumerSettings(group_id="g"))
            await consumer.commit({TopicPartition(topic, 0): 3})
            await consumer.close()

        async def send(cluster: Cluster) -> None:
            producer = Producer(cluster, ProducerSettings(acks="1"))
            await producer.send_and_wait("t", b"not committed", partition=0)
            await producer.close()

        await nodes.create("earlier", [1, 2, 3])
        await nodes.act(partial(commit, topic="earlier"))  # the group has a coordinator
        asked = nodes.broker(1)
        assert asked is not None
        coordinator = asked.image.topics[GROUP_METADATA_TOPIC].partitions[0].leader
        followers = [node for node in nodes.nodes if node != coordinator]
        await nodes.create("t", [coordinator, *followers])
        await nodes.send("t", *(b"%d" % number for number in range(5)))
        await nodes.act(partial(commit, topic="t"))
        for follower in followers:
            nodes.simulation.fabric.cut_link(nodes.nodes[follower].machine.name, nodes.nodes[coordinator].machine.name)
        await nodes.act(send)
        partition, broker = nodes.partition(coordinator, "t"), nodes.broker(coordinator)
        assert broker is not None
        assert (partition.high_watermark, partition.log.log_end_offset) == (5, 6)
        labels = {"topic": "t", "partition": "0"}
        assert await value(broker, "/metrics/lag", "kafka_topic_partition_current_offset", **labels) == 5
        assert await value(broker, "/metrics/lag", "kafka_consumergroup_lag", consumergroup="g", **labels) == 2
        assert await value(broker, "/metrics/lag", "kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 2

    play_nodes(body, offsets_topic_num_partitions="1")


def test_connections_that_end_badly_leave_their_places_to_others(tmp_path: Path) -> None:
    port = lasting_port()
    with BrokerProcess(tmp_path, ottla_admin_listener=str(port)) as broker:
        for _ in range(pages.CONNECTIONS_MAX + 1):
            socket.create_connection(("127.0.0.1", port), 30).close()
        for _ in range(pages.CONNECTIONS_MAX + 1):
            with socket.create_connection(("127.0.0.1", port), 30) as loud:
                loud.sendall(b"x" * (pages.HEAD_BYTES_MAX + 1))
        eventually(lambda: answered(broker), lambda status: status == HTTPStatus.OK)


def answered(broker: BrokerProcess) -> int:
    """0 for nothing: the last of them may not have ended yet."""
    try:
        return get(broker, "/healthz")[0]
    except OSError:
        return 0


def test_a_page_of_very_many_partitions_pauses_and_is_of_the_moment_in_which_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait for no page, and a topic is deleted meanwhile. A pause after the first of three replicas makes them very many."""

    async def act(sim: SimBroker) -> None:
        assert sim.broker is not None
        for page, name, count in (
            ("/metrics/partitions", "kafka_log_log_size", 3),
            ("/metrics", "kafka_server_replicamanager_partitioncount", 1),
            ("/metrics/lag", "kafka_topic_partition_leader", 3),
        ):
            await create(sim, "t", 3)
            paused, deleted = asyncio.Event(), asyncio.Event()

            class Pausing(Slices):
                async def over(self, items: Iterable[Any], paused: asyncio.Event = paused, deleted: asyncio.Event = deleted) -> Any:
                    for number, item in enumerate(items):
                        if number == 1 and not isinstance(item, Sample):
                            paused.set()
                            await deleted.wait()
                        yield item

            monkeypatch.setattr(pages, "Slices", Pausing)
            asked = asyncio.create_task(AdminPages(sim.broker).get(page))
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await paused.wait()
                await delete(sim, "t")
                deleted.set()
                answer = await asked
            assert answer.status == HTTPStatus.OK
            shown = [family for family in text_string_to_metric_families(answer.body.decode()) if family.name == name]
            assert [len(family.samples) for family in shown] == [count], page

    play(act)


def test_notes_name_more_partitions_than_they_list_and_a_controller_that_is_missing() -> None:
    """Ten of 48 were listed without a word, and with two of three controllers gone there was no note."""

    async def act(sim: SimBroker) -> None:
        broker = sim.broker
        assert broker is not None
        await create(sim, "t", 24)
        bad = next(index for index in range(24) if directory_of(sim, "t", index) == "spare")
        sim.machine.disk.faults.append(Fault("append", ".log", errno.EIO, within="/spare"))
        await attempt(sim, bad)
        _, [failed, *_] = await readiness(broker)
        assert failed.startswith("12 partitions have failed: t-")
        assert failed.endswith(", ...")
        seen = SimpleNamespace(
            partitions=SimpleNamespace(all=list, directories=[]),
            image=SimpleNamespace(index=SimpleNamespace(leaderless={})),
            quorum=SimpleNamespace(leader_id=-1),
            unclean_election_count=0,
        )
        [note] = pages._notes(cast(Any, seen))
        assert note.startswith("no controller is active, as far as this node knows")
        seen.unclean_election_count = 2
        assert pages._notes(cast(Any, seen))[1].startswith("this controller has elected 2 leaders that were not in sync since its start: ")

    play(act, log_dirs="/data,/spare")

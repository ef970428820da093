"""A process that may open few files: refusals and not an end; and logs of many segments that need few."""

from __future__ import annotations

import gc
import os
import resource
import socket
import time
from pathlib import Path

import pytest
from tests.broker.test_log_care import create, log_of, records_of, send
from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.wire import RawClient, batch_of, end_offsets, produce_request
from tests.hostile.wire_bytes import batch
from tests.quiet import silence
from tests.waiting import eventually

from ottla.errors import ErrorCode, KafkaError
from ottla.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)  # fmt: skip
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.runtime.serve import BrokerThread
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run
from ottla.sync import Admin, NewTopic

LIMIT = 240
WAIT_SECONDS_MAX = 30
FEW_FILES = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$0" "$@"')


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_a_log_of_many_segments_needs_few_open_files(tmp_path: Path) -> None:
    """One for the segment that grows; those that are read stay open for a while."""
    with BrokerProcess(tmp_path, ottla_produce_validation="headers") as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1, configs={"segment.bytes": "1048576"})])
        with RawClient(broker.port) as client:
            before = open_files(broker.pid)
            for _ in range(300):
                answer = client.ask(produce_request("t", batch(count=2**31 - 1, last_offset_delta=2**31 - 2)), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
            assert len(list((broker.data / "t-0").glob("*.log"))) == 300
            assert open_files(broker.pid) - before < 15
            for number in range(0, 300, 5):
                wanted = FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=number * (2**31 - 1), partition_max_bytes=1)])
                answer = client.ask(FetchRequest(max_wait_ms=0, topics=[wanted]), 11)
                assert answer.responses[0].partitions[0].records
            assert open_files(broker.pid) - before < 15


def test_topics_that_come_and_go_leave_no_descriptor_behind(tmp_path: Path) -> None:
    """Deleted partitions are part of circles, which the collector of garbage comes to late, or never."""
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker, Admin(broker.bootstrap) as admin:
        gc.disable()
        try:
            before = open_files(os.getpid())
            for number in range(3):
                assert admin.create_topics([NewTopic(f"t-{number}", 20)]) == {f"t-{number}": None}
                assert admin.delete_topics([f"t-{number}"]) == {f"t-{number}": None}
                eventually(lambda: open_files(os.getpid()), lambda count: count < before + 20)
        finally:
            gc.enable()


def test_a_broker_with_few_descriptors_refuses_and_continues(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, command=FEW_FILES, log_flush_offset_checkpoint_interval_ms="1000") as broker:
        with Admin(broker.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 10, configs={"segment.bytes": "1048576"})]) == {"t": None}
        before = open_files(broker.pid)
        with RawClient(broker.port) as client:
            idle = []
            try:
                for _ in range(2 * LIMIT):
                    idle.append(socket.create_connection(("127.0.0.1", broker.port), 5))
                for number in range(10):  # files are left for logs, and for what they need beside
                    answer = client.ask(produce_request("t", batch_of(b"x"), partition=number), 9)
                    assert answer.responses[0].partition_responses[0].error_code == 0
            finally:
                for connection in idle:
                    connection.close()
            deadline = time.monotonic() + WAIT_SECONDS_MAX
            while open_files(broker.pid) > before + 2:
                assert time.monotonic() < deadline, "connections that ended leave their descriptors"
            wanted = [CreatableTopic("many", 200, 1), CreatableTopic("few", 3, 1)]
            wanted.append(CreatableTopic("placed", -1, -1, [CreatableReplicaAssignment(index, [1]) for index in range(200)]))
            found = {topic.name: topic.error_code for topic in client.ask(CreateTopicsRequest(wanted, 30_000), 5).topics}
            assert found == {"many": ErrorCode.POLICY_VIOLATION, "few": 0, "placed": ErrorCode.POLICY_VIOLATION}
            assert end_offsets(client, "t", 10) == [1] * 10


def test_the_soft_limit_of_open_files_is_raised_at_the_start(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with BrokerProcess(tmp_path, command=("sh", "-c", 'ulimit -S -n 100; exec "$0" "$@"')) as broker:
        limits = Path(f"/proc/{broker.pid}/limits").read_text()
    [line] = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert int(line.split()[3]) == hard


def test_a_broker_with_more_partitions_than_descriptors_opens_what_it_can(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, Admin(broker.bootstrap) as admin, RawClient(broker.port) as client:
        assert admin.create_topics([NewTopic(f"t{number}", 50) for number in range(6)])["t5"] is None
        for number in range(6):
            client.ask(produce_request(f"t{number}", batch_of(b"before"), partition=1), 9)
    broker.command = FEW_FILES
    with broker, RawClient(broker.port) as client:
        codes = [
            client.ask(produce_request(f"t{number}", batch_of(b"x"), partition=index), 9).responses[0].partition_responses[0].error_code
            for number in range(6)
            for index in range(0, 50, 7)
        ]
        assert set(codes) <= {0, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.LEADER_NOT_AVAILABLE}
        assert 0 in codes
    assert "too many open files" in broker.log()
    assert not list(broker.data.glob("*-stray")), "a replica that lacks a descriptor is still its topic's"
    broker.command = ()
    with broker, RawClient(broker.port) as client:
        answer = client.ask(produce_request("t5", batch_of(b"x"), partition=49), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert [end_offsets(client, f"t{number}", 50)[1] for number in range(6)] == [1] * 6


def test_creations_that_would_not_fit_are_refused_before_they_are_committed() -> None:
    silence()

    async def main() -> None:
        broker = SimBroker(Simulation(1))
        await broker.start()
        broker.machine.disk.open_files_max = 10
        await create(broker, "t", 8)
        with pytest.raises(AssertionError):
            await refused(broker, "small", 10)
        await refused(broker, "large", 11)
        await send(broker, "t", [(None, b"x")])
        assert len(await records_of(log_of(broker, "t"))) == 1

    run(main())


async def refused(broker: SimBroker, topic: str, partitions: int) -> None:
    from ottla.client.admin import Admin as SimAdmin
    from ottla.client.admin import NewTopic as SimTopic

    admin = SimAdmin(broker.client("admin"))
    [error] = (await admin.create_topics([SimTopic(topic, partitions)])).values()
    await admin.close()
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.POLICY_VIOLATION
    assert broker.broker is not None
    assert topic not in broker.broker.image.topics

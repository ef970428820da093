"""``metadata.log.dir``: the metadata log lies in one of the log directories, or in a directory of its own, in which no partition lies."""

from __future__ import annotations

import errno

import pytest
from tests.broker.test_log_care import create, play, send
from tests.quiet import silence

from ottla.broker.metadata.log import DIRECTORY_NAME
from ottla.client.admin import Admin, NewTopic
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.disk_faults import Fault
from ottla.sim.loop import run
from ottla.types import TopicPartition

MARK = ".kafka_cleanshutdown"


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def test_the_directory_of_the_metadata_log_comes_first() -> None:
    dirs = {"log.dirs": "/a,/b"}
    assert BrokerConfig(dirs).log_dirs == ["/a", "/b"]
    assert BrokerConfig(dirs | {"metadata.log.dir": "/b"}).log_dirs == ["/b", "/a"]
    apart = BrokerConfig(dirs | {"metadata.log.dir": "/c"})
    assert (apart.log_dirs, apart.replica_dirs) == (["/c", "/a", "/b"], ["/a", "/b"])
    assert BrokerConfig(dirs | {"metadata.log.dir": "/c", "zookeeper.connect": "host:1"}).log_dirs == ["/a", "/b"]


@pytest.mark.parametrize(("metadata_dir", "with_replicas"), [("/spare", ["/data", "/spare"]), ("/meta", ["/data", "/spare"])])
def test_it_holds_the_metadata_log_and_partitions_where_it_is_one_of_log_dirs(metadata_dir: str, with_replicas: list[str]) -> None:
    async def act(broker: SimBroker) -> None:
        disk = broker.machine.disk
        await create(broker, "t", 4)
        for restart in ("none", "clean", "kill"):
            if restart == "clean":
                await broker.stop()
                assert [await disk.exists(f"{path}/{MARK}") for path in (metadata_dir, *with_replicas)] == [True] * 3
                await broker.start()
            elif restart == "kill":
                broker.kill(power_cut=True)
                await broker.start()
            for partition in range(4):
                await send(broker, "t", [(None, b"x")], partition)
            for path in ("/data", "/spare", "/meta"):
                names = await disk.list_dir(path) if await disk.exists(path) else []
                assert (DIRECTORY_NAME in names) == (path == metadata_dir)
                assert len([name for name in names if name.startswith("t-")]) == (2 if path in with_replicas else 0)
        client = broker.client("admin")
        admin = Admin(client)
        assert sorted(found.path for found in (await admin.describe_log_dirs())[1]) == with_replicas
        [refused] = (await admin.alter_replica_log_dirs(1, {TopicPartition("t", 0): "/meta"})).values()
        assert refused is not None
        assert refused.code == ErrorCode.LOG_DIR_NOT_FOUND
        await admin.close()

    play(act, log_dirs="/data,/spare", metadata_log_dir=metadata_dir)


def test_without_it_the_broker_ends() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 2)
        assert broker.broker is not None
        broker.machine.disk.faults.append(Fault("append", f"/meta/{DIRECTORY_NAME}/{0:020d}.log", errno.EIO))
        admin = Admin(broker.client("admin"))
        with pytest.raises(KafkaError):
            await admin.create_topics([NewTopic("another", 1)])
        assert broker.broker.failure is not None
        assert "/meta" in broker.broker.failure
        await admin.close()

    play(act, log_dirs="/data", metadata_log_dir="/meta")


def test_a_cluster_is_not_begun_again_elsewhere() -> None:
    """Who names another directory by mistake is told where the metadata is."""

    async def main() -> None:
        simulation = Simulation(1)
        broker = SimBroker(simulation, {"log.dirs": "/data,/spare"})
        await broker.start()
        await broker.stop()
        for metadata_dir in ("/meta", "/spare"):
            broker._properties = {**broker._properties, "metadata.log.dir": metadata_dir}
            with pytest.raises(StorageError, match="the directory of the metadata log, has no metadata log, and /data has one"):
                await broker.start()

    run(main())

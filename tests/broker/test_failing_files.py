"""Each kind of file that a broker writes: where its disk refuses one, the log directory is offline, and no other."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.broker.test_log_care import attempt, create, directory_of, play

from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker
from ottla.sim.disk_faults import Fault

AT_ONCE = ("create", "append", "sync", "rename")
"""What is done for a file that is written under another name, and then has its own."""
FILES = (
    *((name, f"{name}.tmp", operation) for name in ("leader-epoch-checkpoint", "partition.metadata") for operation in AT_ONCE),
    *(
        (name, f"/{name}.tmp", operation)
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
        for operation in AT_ONCE
    ),
    *((suffix, suffix, operation) for suffix in (".log", ".timeindex") for operation in ("create", "append", "sync")),
    *((".index", ".index", operation) for operation in ("create", "sync")),
    *((".snapshot", ".snapshot", operation) for operation in ("create", "append")),
)
MANY = 40
"""Records for more than two segments."""
NOTICED_SECONDS_MAX = 3
"""Of the simulated clock: what is promised of a log directory that is no longer there."""


@pytest.mark.parametrize(("name", "suffix", "operation"), FILES, ids=[f"{name}-{operation}" for name, _, operation in FILES])
def test_a_file_that_its_disk_refuses_takes_its_log_directory_offline_and_no_other(name: str, suffix: str, operation: str) -> None:
    """Whichever it is, and whether a client waits for it or not; a new partition is made where the disk does what it is asked to."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 4)
        directories = [directory_of(broker, "t", index) for index in range(4)]
        assert sorted(directories) == ["data", "data", "spare", "spare"]
        fault = Fault(operation, suffix, errno.EIO, within="/spare")
        broker.machine.disk.faults.append(fault)
        for index in range(4):
            for _ in range(MANY):
                await attempt(broker, index)
        await create(broker, "later", 2)
        await asyncio.sleep(60)  # checkpoints are written meanwhile
        assert fault not in broker.machine.disk.faults, f"no {name} was written"
        assert broker.broker is not None
        assert broker.broker.failure is None
        assert [directory.path for directory in broker.broker.partitions.directories if directory.is_failed] == ["/spare"]
        found = [await attempt(broker, index) for index in range(4)]
        assert found == [ErrorCode.KAFKA_STORAGE_ERROR if directory == "spare" else ErrorCode.NONE for directory in directories]
        await broker.stop()
        await broker.start()
        assert [await attempt(broker, index) for index in range(4)] == [ErrorCode.NONE] * 4
        if name == "partition.metadata":
            assert [directory_of(broker, "later", index) for index in range(2)] == ["data", "data"]

    play(act, log_dirs="/data,/spare", log_flush_offset_checkpoint_interval_ms="5000")


def test_a_log_directory_that_is_no_longer_there_is_offline() -> None:
    """Its open files take records on, which the next start would not find."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 4)
        directories = [directory_of(broker, "t", index) for index in range(4)]
        disk = broker.machine.disk
        await disk.remove_tree("/spare")
        await asyncio.sleep(NOTICED_SECONDS_MAX)
        assert broker.broker is not None
        assert broker.broker.failure is None
        assert [directory.path for directory in broker.broker.partitions.directories if directory.is_failed] == ["/spare"]
        found = [await attempt(broker, index) for index in range(4)]
        assert found == [ErrorCode.KAFKA_STORAGE_ERROR if directory == "spare" else ErrorCode.NONE for directory in directories]

    play(act, log_dirs="/data,/spare")


def test_a_partition_that_is_made_after_its_log_directory_was_removed_does_not_make_its_path_again() -> None:
    """The path would be there again, with nothing of the broker's, and the directory count as well."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 4)
        disk = broker.machine.disk
        await disk.remove_tree("/spare")
        await create(broker, "later", 4)
        assert not await disk.exists("/spare")
        assert broker.broker is not None
        assert [directory.path for directory in broker.broker.partitions.directories if directory.is_failed] == ["/spare"]
        assert [directory_of(broker, "later", index) for index in range(4)] == ["data"] * 4

    play(act, log_dirs="/data,/spare")


def failures_in(logs: list[Any]) -> list[tuple[str, str]]:
    """Directories that have failed, with the reasons."""
    return [(line["directory"], line["reason"]) for line in logs if line["event"] == "log_dir_failed"]


@pytest.mark.parametrize(("operation", "code"), [("append", errno.EIO), ("sync", errno.EIO), ("sync", errno.ENOSPC)])
def test_a_log_directory_that_has_failed_is_logged_with_its_error(operation: str, code: int) -> None:
    """One line said that it has failed, and nothing why."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 4, flush_messages="1")
        bad = next(index for index in range(4) if directory_of(broker, "t", index) == "spare")
        broker.machine.disk.faults.append(Fault(operation, ".log", code, within="/spare"))
        with capture_logs() as logs:
            assert await attempt(broker, bad) == ErrorCode.KAFKA_STORAGE_ERROR
        [(path, reason)] = failures_in(logs)
        assert (path, reason.startswith(f"[Errno {code}] ")) == ("/spare", True), reason

    play(act, log_dirs="/data,/spare")


def test_a_log_directory_whose_disk_was_unmounted_is_offline_within_seconds() -> None:
    """An empty mount point is left, to which partitions and checkpoints could be written."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 4)
        disk = broker.machine.disk
        await disk.remove_tree("/spare")
        await disk.make_dirs("/spare")
        with capture_logs() as logs:
            await asyncio.sleep(NOTICED_SECONDS_MAX)
        assert failures_in(logs) == [("/spare", "it was removed, or its disk was unmounted")]
        assert broker.broker is not None
        assert [directory.path for directory in broker.broker.partitions.directories if directory.is_failed] == ["/spare"]
        assert await disk.list_dir("/spare") == []

    play(act, log_dirs="/data,/spare")


def test_a_node_whose_directory_of_the_metadata_log_was_removed_ends_within_seconds() -> None:
    """What it would say to be committed is in no file that the next start finds."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 1)
        await broker.machine.disk.remove_tree("/data")
        await asyncio.sleep(NOTICED_SECONDS_MAX)
        assert broker.broker is not None
        assert broker.broker.failure == "the log directory with the metadata log has failed: /data"

    play(act, log_dirs="/data,/spare")


@pytest.mark.parametrize("suffix", [".log.deleted", ".index.deleted", ".timeindex.deleted"])
def test_a_deleted_file_that_cannot_be_removed_takes_its_log_directory_offline_and_no_other(suffix: str) -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 4, retention_ms="10000", file_delete_delay_ms="5000")
        directories = [directory_of(broker, "t", index) for index in range(4)]
        for index in range(4):
            for _ in range(MANY):
                await attempt(broker, index)
        fault = Fault("remove", suffix, errno.EIO, within="/spare")
        broker.machine.disk.faults.append(fault)
        await asyncio.sleep(30)
        assert fault not in broker.machine.disk.faults, "nothing was removed"
        found = [await attempt(broker, index) for index in range(4)]
        assert found == [ErrorCode.KAFKA_STORAGE_ERROR if directory == "spare" else ErrorCode.NONE for directory in directories]
        assert broker.broker is not None
        assert broker.broker.failure is None

    play(act, log_dirs="/data,/spare")


@pytest.mark.parametrize("operation", AT_ONCE)
def test_the_broker_ends_where_no_snapshot_of_the_metadata_can_be_written(operation: str) -> None:
    async def act(broker: SimBroker) -> None:
        fault = Fault(operation, ".checkpoint.tmp", errno.EIO)
        broker.machine.disk.faults.append(fault)
        for number in range(20):
            try:
                await asyncio.wait_for(create(broker, f"t{number}"), 5)
            except (KafkaError, TimeoutError):
                break
        await asyncio.sleep(10)
        assert fault not in broker.machine.disk.faults, "no snapshot was written"
        assert broker.broker is not None
        assert "metadata log" in (broker.broker.failure or "")

    play(act, metadata_log_max_record_bytes_between_snapshots="1024")


@pytest.mark.parametrize(("operation", "code"), [*((operation, errno.EIO) for operation in AT_ONCE), ("append", errno.ENOSPC)])
def test_a_directory_without_its_mark_of_a_clean_stop_is_recovered_and_no_other(operation: str, code: int) -> None:
    """A stop goes on to its end, whatever becomes of the marks. There is room for one in the reserve of a full disk."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 2)
        assert [await attempt(broker, index) for index in range(2)] == [ErrorCode.NONE] * 2
        fault = Fault(operation, "/.kafka_cleanshutdown.tmp", code, within="/spare")
        broker.machine.disk.faults.append(fault)
        await broker.stop()
        assert fault not in broker.machine.disk.faults
        marks = [await broker.machine.disk.exists(f"/{directory}/.kafka_cleanshutdown") for directory in ("data", "spare")]
        assert marks == [True, code == errno.ENOSPC]
        await broker.start()
        assert [await attempt(broker, index) for index in range(2)] == [ErrorCode.NONE] * 2

    play(act, log_dirs="/data,/spare")

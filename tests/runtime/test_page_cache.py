"""What the page cache does for a fetch, on a real file system: data that is not cached is read in large pieces, once."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.waiting import eventually

from ottla.runtime import warming
from ottla.runtime.serve import BrokerThread
from ottla.sync import Consumer, Producer, TopicPartition

RECORDS, RECORD_BYTES = 40, 60_000
LARGE = 128 * 1024


def evict(path: Path) -> bool:
    """The file's pages leave the cache. False where the file system keeps all in memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return not any(pages_in_memory(descriptor))
    finally:
        os.close(descriptor)


def pages_in_memory(descriptor: int) -> list[bool]:
    """Of each page of the file. To ask by a read that must not wait (RWF_NOWAIT) would have the system read ahead."""
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY) as mapped:
        found = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        begin = ctypes.c_char.from_buffer(mapped)
        try:
            assert ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(begin)), ctypes.c_size_t(len(mapped)), found) == 0
        finally:
            del begin  # or the mapping could not be closed
        return [bool(page & 1) for page in found]


@pytest.fixture
def disk_directory(tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk: beside this file where temporary directories are kept in memory."""
    probe = tmp_path / "probe"
    probe.write_bytes(b"x" * 4096)
    if evict(probe):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix=".disk-", dir=Path(__file__).parent) as beside:
        yield Path(beside)


def read_all(bootstrap: str) -> int:
    size = 0
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        for _ in range(200):
            size += sum(len(record.value or b"") for record in consumer.poll(1000))
            if size >= RECORDS * RECORD_BYTES:
                break
    return size


@pytest.mark.usefixtures("default_paths")
def test_mechanisms_45_and_47_a_cold_fetch_reads_the_disk_in_large_pieces_and_the_next_one_the_cache(
    disk_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []
    really: Callable[[int, int, int], None] = warming._read_through

    def noted(descriptor: int, offset: int, length: int) -> None:
        read.append((offset, length))
        really(descriptor, offset, length)

    monkeypatch.setattr(warming, "_read_through", noted)
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(disk_directory / "data")}) as broker:
        with Producer(broker.bootstrap) as producer:
            for _ in range(RECORDS):
                producer.send("t", os.urandom(RECORD_BYTES))
        written = disk_directory / "data" / "t-0" / f"{0:020d}.log"

        def read_cold() -> bool:
            eventually(lambda: evict(written), bool)  # a page that another processor holds at the moment stays
            assert read_all(broker.bootstrap) == RECORDS * RECORD_BYTES
            return bool(read)  # not where the disk is so fast that the system's own reading ahead is done when the broker looks

        eventually(read_cold, bool)
        assert max(length for _, length in read) >= LARGE
        assert [offset for offset, _ in read] == sorted(offset for offset, _ in read)
        asked = len(read)
        assert read_all(broker.bootstrap) == RECORDS * RECORD_BYTES
        assert len(read) == asked, "the second reader got all of it from the page cache"

"""One consumer reads a cold backlog of 2 GB: what the others notice of it, and how fast it comes.

The others are produce and fetch round trips, one after the other, on a connection and on topics of their own; their 99th
percentile while the backlog is read is held against the one just before. The consumer is a process of its own, with one
fetch of a mebibyte at a time, as consumers ask by default. Before each read the log leaves the page cache, and the kernel is
asked whether it has.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from bench.generator import connect, create_topic, exchange, fetch_frame, percentiles, produce_frame
from bench.measures import MEBI_BYTES, RECORD_BYTES, SMALL_TOPIC, TOPIC, TRIPS, Figures, until_served, write
from bench.peers import Peer

BACKLOG: Final = "backlog"
BACKLOG_BYTES: Final = 2_000_000_000
BATCH_RECORDS: Final = 99  # of 10,000 bytes, as many as fit in MEBI_BYTES
BATCHES: Final = BACKLOG_BYTES // MEBI_BYTES
READ_SECONDS_MAX: Final = 300.0


def prepare(peer: Peer) -> None:
    """The backlog is in its log, and on the disk."""
    create_topic(peer.address, BACKLOG, 1)
    batch = produce_frame(BACKLOG, 0, batch_bytes=MEBI_BYTES, record_bytes=10_000)
    with connect(peer.address) as sock:
        for _ in range(BATCHES):
            write(sock, BACKLOG, batch)
    until_served(lambda: _evict(peer))


def beside_a_cold_read(peer: Peer) -> Figures:
    until_served(lambda: _evict(peer))
    with connect(peer.address) as sock:
        requests = {
            "produce": produce_frame(TOPIC, 9, batch_bytes=0, record_bytes=RECORD_BYTES),
            "fetch": fetch_frame(SMALL_TOPIC, 0, offset=0, max_bytes=4096),
        }

        def trips(is_over: Callable[[int], bool]) -> dict[str, float]:
            """The 99th percentile of each kind, in milliseconds."""
            times: dict[str, list[float]] = {name: [] for name in requests}
            while not is_over(len(times["fetch"])):
                for name, request in requests.items():
                    start = time.perf_counter()
                    exchange(sock, request)
                    times[name].append((time.perf_counter() - start) * 1000)
            return {name: percentiles(values)[1] for name, values in times.items()}

        quiet = trips(lambda count: count >= TRIPS)
        command = [sys.executable, "-m", "bench.backlog", *map(str, peer.address)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
            assert reader.stdin is not None, "a pipe"
            assert reader.stdout is not None, "a pipe"
            assert reader.stdout.readline() == b"connected\n", "the reader is there"
            reader.stdin.write(b"go\n")
            reader.stdin.flush()
            deadline = time.monotonic() + READ_SECONDS_MAX
            busy = trips(lambda _: reader.poll() is not None or time.monotonic() > deadline)
            reader.kill()  # no more than it should need to
            seconds = float(reader.stdout.read())
    return {
        "produce p99 beside a cold read, ms": busy["produce"],
        "produce p99 beside a cold read, x quiet": busy["produce"] / quiet["produce"],
        "fetch p99 beside a cold read, ms": busy["fetch"],
        "fetch p99 beside a cold read, x quiet": busy["fetch"] / quiet["fetch"],
        "cold backlog of 2 GB, MB/s": BATCHES * MEBI_BYTES / seconds / 1e6,
    }


def _evict(peer: Peer) -> None:
    """The backlog's log has left the page cache. AssertionError while the kernel keeps more than a hundredth, to read ahead or write."""
    for path in sorted((peer.directory / "data").glob(f"{BACKLOG}-0/*.log")):
        with path.open("r+b") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            cached = _cached_share(file.fileno())
        assert cached < 0.01, f"{cached:.0%} of {path} stayed in the page cache"


def _cached_share(descriptor: int) -> float:
    """As mincore tells; a probe that reads would itself begin to read ahead."""
    if os.fstat(descriptor).st_size == 0:
        return 0.0
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(descriptor, 0) as mapped:
        length = len(mapped)
        states = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(length), states)
        del start  # or the mapping could not be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(state & 1 for state in bytes(states)) / len(states)


def _read_backlog(address: tuple[str, int]) -> None:
    with connect(address) as sock:
        sys.stdout.write("connected\n")
        sys.stdout.flush()
        sys.stdin.readline()
        start = time.perf_counter()
        for number in range(BATCHES):
            answer = exchange(sock, fetch_frame(BACKLOG, 0, offset=number * BATCH_RECORDS, max_bytes=1 << 20))
            assert len(answer) >= MEBI_BYTES * 0.99, f"{len(answer)} bytes at batch {number}"
        sys.stdout.write(f"{time.perf_counter() - start}\n")


if __name__ == "__main__":
    _read_backlog((sys.argv[1], int(sys.argv[2])))

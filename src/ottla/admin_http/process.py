"""What Kafka does not report, and a broker in Python should: the event loop, the interpreter, the process."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import time
from collections.abc import Iterator
from typing import Final

from ottla.admin_http.exposition import Family, Sample, counter, gauge
from ottla.broker.requests.listener_security import ADMIN
from ottla.broker.status import Status
from ottla.runtime.loop import take_longest_turn_seconds

BOUNDS_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Of the native histogram of request times."""


class IdleMeter:
    """The share of the time since the last look in which this process did not compute: its loop waited for something to do."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()
        self._share = 1.0

    def read(self) -> float:
        wall, cpu = time.monotonic(), time.process_time()
        if wall - self._wall >= 0.1:  # looked at more often, the share would be noise
            self._share = min(1.0, max(0.0, 1 - (cpu - self._cpu) / (wall - self._wall)))
            self._wall, self._cpu = wall, cpu
        return self._share


def process_families(status: Status, *, started_at: float, certificate_ends_ms: int | None = None) -> Iterator[Family]:
    """Yields metrics of the process; ``certificate_ends_ms`` belongs to the pages' own certificate, in wall-clock milliseconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield counter("process_cpu_seconds_total", "Seconds of processor time, of user and system.", usage.ru_utime + usage.ru_stime)
    yield gauge("process_start_time_seconds", "When the broker was started, in seconds since 1970.", started_at)
    now = status.parts.world.clock.now_ms() / 1000
    yield gauge("ottla_clock_seconds", "What the clock of the broker shows, in seconds since 1970.", now)
    yield gauge("process_max_fds", "Descriptors that may be open.", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if os.path.isdir("/proc/self/fd"):
        yield gauge("process_open_fds", "Descriptors that are open.", len(os.listdir("/proc/self/fd")))
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[1])
        yield gauge("process_resident_memory_bytes", "Memory in use.", pages * resource.getpagesize())
    collections = [Sample(stats["collections"], (("generation", str(age)),)) for age, stats in enumerate(gc.get_stats())]
    yield Family("python_gc_collections_total", "counter", "Runs of the garbage collector.", collections)
    yield counter("ottla_connections_refused_total", "Connections closed for max.connections.per.ip.", status.refused_count)
    yield gauge("ottla_event_loop_delay_seconds", "How late the last timer of the housekeeping was.", status.loop_delay_ms / 1000)
    count, held_bytes = status.unauthenticated
    yield gauge("ottla_unauthenticated_connections", "Connections that have not authenticated yet.", count)
    yield gauge("ottla_unauthenticated_bytes", "Bytes of requests held by connections that have not authenticated yet.", held_bytes)
    seconds_left = dict(status.certificate_seconds)
    if certificate_ends_ms is not None:
        seconds_left[ADMIN] = certificate_ends_ms / 1000 - now
    valid = [Sample(seconds, (("listener", name),)) for name, seconds in sorted(seconds_left.items())]
    yield Family(
        "ottla_certificate_expiry_seconds", "gauge", "For how long the listener's certificate is still valid.", valid, ("listener",)
    )
    longest = take_longest_turn_seconds()
    yield gauge(
        "ottla_event_loop_turn_seconds_max", "The longest turn of the event loop since the last scrape, in processor time.", longest
    )
    yield from _room(status)
    yield _request_seconds(status)


def _room(status: Status) -> Iterator[Family]:
    """Yields the sizes of the volumes that log directories are on. One that has failed is not asked: its disk may never answer."""
    volumes = []
    for directory in status.partitions.directories:
        with contextlib.suppress(OSError):
            if not directory.is_failed:
                volumes.append((("directory", directory.path), os.statvfs(directory.path)))
    total = [Sample(volume.f_blocks * volume.f_frsize, (label,)) for label, volume in volumes]
    yield Family("ottla_log_dir_volume_bytes", "gauge", "Size of the volume that the log directory is on.", total)
    full = {directory.path for directory in status.partitions.directories if directory.room.is_full}
    usable = [Sample(0 if label[1] in full else volume.f_bavail * volume.f_frsize, (label,)) for label, volume in volumes]
    text = "Bytes that the broker may still write to the volume of the log directory; 0 where it is full and takes no records."
    yield Family("ottla_log_dir_usable_bytes", "gauge", text, usable)


def _request_seconds(status: Status) -> Family:
    samples = []
    for name, meters in status.request_meters:
        timer = meters.timer
        if not timer.count:
            continue
        request = ("request", name)
        counts = timer.cumulative([round(bound * 1_000_000) for bound in BOUNDS_SECONDS])
        samples += [Sample(count, (request, ("le", repr(bound))), "_bucket") for bound, count in zip(BOUNDS_SECONDS, counts, strict=True)]
        samples.append(Sample(timer.count, (request, ("le", "+Inf")), "_bucket"))
        samples.append(Sample(timer.total_us / 1_000_000, (request,), "_sum"))
        samples.append(Sample(timer.count, (request,), "_count"))
    return Family(
        "ottla_request_seconds", "histogram", "Seconds from receiving a request to sending its answer.", samples, ("request", "le")
    )

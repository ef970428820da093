"""``make bench-steps``: what each step of the request path costs, on the real code, without sockets.

Two figures for each: bytecode instructions, which come out the same on every run and machine with one
version of Python, and microseconds, which do not. The record kernel is the plain one: compiled code has no bytecode.
``--check`` compares the instructions with those that were accepted last (``bench/results/steps.json``) and fails when one has
risen by more than 15 %; ``--accept`` writes them anew. Instructions do not see what a C function does inside: the microseconds
beside them, and ``make bench``, do.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import structlog

from bench.generator import PRODUCE_VERSION, create_topic_frame, fetch_frame, produce_frame
from ottla.broker.node import Broker
from ottla.broker.requests import burst_timing
from ottla.config import BrokerConfig
from ottla.messages.headers import decode_request_header, encode_response_header
from ottla.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.records.batch import check_batch
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import iterate_records
from ottla.records.kernel import FORM
from ottla.runtime.world import real_world
from ottla.wire.compiler import decode_from, encode
from ottla.wire.frames import FrameCutter

RESULTS: Final = Path(__file__).parent / "results" / "steps.json"
RISE_MAX: Final = 1.15
BURST: Final = 64
ROWS: Final = 256
TIMED_RUNS: Final = 2000
Step = Callable[[], Any]


class Sink:
    """A transport that takes everything and keeps nothing."""

    peer = local = ("127.0.0.1", 0)
    unsent_bytes = 0
    is_closed = False

    def __init__(self) -> None:
        self.sent_count = 0

    def send(self, buffers: object) -> None:
        self.sent_count += 1

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None:
        raise AssertionError("the broker refused the request")


def main() -> None:
    if FORM != "plain":
        sys.exit("compiled code has no bytecode to count: run it with OTTLA_KERNEL=plain")
    quiet()
    counts, times = asyncio.run(_measure())
    all_accepted: dict[str, dict[str, int]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    version = f"{sys.version_info.major}.{sys.version_info.minor}"  # each has bytecode of its own
    accepted = all_accepted.get(version, {})
    risen = [name for name, count in counts.items() if name in accepted and count > RISE_MAX * accepted[name]]
    width = max(map(len, counts))
    for name, count in counts.items():
        before = f"{accepted[name]:>8,}" if name in accepted else "     new"
        sys.stdout.write(f"{name.ljust(width)}  {count:>8,} instructions  accepted {before}  {times[name]:>7.2f} us\n")
    if "--accept" in sys.argv:
        RESULTS.write_text(json.dumps(all_accepted | {version: counts}, indent=1) + "\n")
    elif "--check" in sys.argv and risen:
        sys.exit(f"more than 15 % dearer than accepted: {', '.join(risen)} (python -m bench.steps --accept takes them as they are)")


def quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


async def _measure() -> tuple[dict[str, int], dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="ottla-steps-") as directory:
        broker = Broker(real_world(), BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory}))
        await broker.start()
        vars(burst_timing).update(BURST_US_MIN=1 << 40, BURST_US_MAX=1 << 40)  # nobody else has a turn here
        try:
            steps = await _steps(broker)
            counts = {name: _instructions(step, per) for name, (step, per) in steps.items()}
            times = {name: _microseconds(step, per) for name, (step, per) in steps.items()}
        finally:
            await broker.stop()
    return counts, times


async def _steps(broker: Broker) -> dict[str, tuple[Step, int]]:
    """Each step, and how many requests one call of it serves."""
    sink = Sink()
    connection = broker.router.accept(sink, "PLAINTEXT")  # type: ignore[arg-type]
    broker.gate._admission.admitted("PLAINTEXT", "127.0.0.1", 0)
    connection.on_data(memoryview(bytearray(create_topic_frame("t", BURST))))
    while not sink.sent_count:  # the topic is there when this is answered
        await asyncio.sleep(0.001)

    one = produce_frame("t", 0, batch_bytes=0, record_bytes=100)
    spread = b"".join(produce_frame("t", index, batch_bytes=0, record_bytes=100) for index in range(BURST))
    body = memoryview(bytearray(one[4:]))
    _, body_start = decode_request_header(body, is_flexible=False)
    request, _ = decode_from(ProduceRequest, PRODUCE_VERSION, body, body_start)
    records = request.topic_data[0].partition_data[0].records
    answer = ProduceResponse([TopicProduceResponse("t", partition_responses=[PartitionProduceResponse(0)])])

    def receive(frames: bytes) -> Step:
        def step() -> None:
            connection.on_data(memoryview(bytearray(frames)))

        return step

    keys: list[bytes | None] = [b"%08d" % number for number in range(ROWS)]
    values: list[bytes | None] = [bytes(100)] * ROWS

    def write_rows() -> bytearray:
        builder = BatchBuilder()
        builder.extend(keys, values, start=0, end=ROWS, timestamp_ms=0, size_max=1 << 20)
        return builder.build()

    batch = write_rows()
    cutter = FrameCutter(1 << 20)
    fetch = fetch_frame("t", 0, offset=0, max_bytes=4096)
    return {
        "frame": (lambda: list(cutter.feed(memoryview(one))), 1),
        "request header": (lambda: decode_request_header(body, is_flexible=False), 1),
        "produce body": (lambda: decode_from(ProduceRequest, PRODUCE_VERSION, body, body_start), 1),
        "batch check": (lambda: check_batch(records), 1),
        "record of 100 bytes, read": (lambda: iterate_records(batch), ROWS),
        "record of 100 bytes, written": (write_rows, ROWS),
        "answer": (lambda: (encode_response_header(1, is_flexible=False), encode(answer, PRODUCE_VERSION)), 1),
        "produce, whole, one alone": (receive(one), 1),
        "produce, whole, in a burst": (receive(one * BURST), BURST),
        "produce, whole, in a burst over as many partitions": (receive(spread), BURST),
        "fetch, whole, one alone": (receive(fetch), 1),
        "fetch, whole, in a burst": (receive(fetch * BURST), BURST),
    }


def _instructions(step: Step, per: int) -> int:
    """Bytecode instructions of one request, once everything is warm."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    for _ in range(20):
        step()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(None)
    return round(count / per)


def _microseconds(step: Step, per: int) -> float:
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(TIMED_RUNS // per + 1):
            step()
        best = min(best, (time.perf_counter() - begin) / (TIMED_RUNS // per + 1))
    return best / per * 1e6


if __name__ == "__main__":
    main()

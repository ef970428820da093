"""The child process of ``worker.py``: reads jobs, does them on the real disk, answers.

A thread reads standard input, so that the end of the parent is noticed in the middle of a job as well. Everything on the
disk is done inline here: no other work waits for this process.
"""

from __future__ import annotations

import importlib
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec

from ottla.errors import DecodeError, KafkaError, StorageError
from ottla.pace import Throttle
from ottla.ports import Job, Pace
from ottla.runtime.inline_files import InlineDisk
from ottla.runtime.worker import LENGTH_BYTES, read_frame

T = TypeVar("T")

NICENESS = 5
"""Brokers answer clients; jobs take what is left of the processor."""


def main() -> None:
    os.nice(NICENESS)
    frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_frames, args=(frames,), daemon=True).start()
    while True:
        answer = msgspec.msgpack.encode(_do(frames.get()))
        sys.stdout.buffer.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        sys.stdout.buffer.flush()


def _read_frames(frames: queue.SimpleQueue[bytes]) -> None:
    try:
        while True:
            frames.put(read_frame(sys.stdin.buffer))
    except EOFError:
        os._exit(0)  # the parent has ended: no caller waits for the result


def _do(frame: bytes) -> tuple[str, int, bytes]:
    """Does the job of a frame; returns outcome, number and payload."""
    try:
        name, request, bytes_per_second = msgspec.msgpack.decode(frame, type=tuple[str, bytes, float])
        module, _, attribute = name.partition(":")
        job: Job[Any, Any] = getattr(importlib.import_module(module), attribute)
        decoded = msgspec.msgpack.decode(request, type=job.request)
        result = drive(_run(job, decoded, _pace(bytes_per_second)))
        return "done", 0, msgspec.msgpack.encode(result)
    except OSError as error:
        return "os", error.errno or 0, str(error).encode()
    except DecodeError as error:
        return "decode", 0, error.message.encode()
    except StorageError as error:
        return "storage", 0, error.message.encode()
    except KafkaError as error:
        return "kafka", error.code, error.message.encode()
    except Exception:  # noqa: BLE001 - the edge of the process: the error is returned to the parent
        return "failed", 0, traceback.format_exc().encode()


async def _run(job: Job[Any, Any], request: Any, pace: Pace) -> Any:
    return await job.run(InlineDisk(), request, pace)


def _pace(bytes_per_second: float) -> Pace:
    throttle = Throttle(bytes_per_second, time.monotonic() * 1000)

    async def pace(size: int) -> None:
        delay_ms = throttle.delay_ms(size, time.monotonic() * 1000)
        if delay_ms > 0:
            time.sleep(delay_ms / 1000)

    return pace


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    raise AssertionError("nothing on an inline disk suspends")


if __name__ == "__main__":
    main()

"""Class c: jobs in a child process, one at a time.

The child is started when the first job comes and ended when none has come for a while. It reads jobs from its standard
input and ends itself when that ends, so it never outlives this process. Frames are a length of four bytes and msgpack:
``[name, request, bytes_per_second]`` one way, ``[outcome, number, payload]`` the other (``worker_main.py``).

A thread of its own talks to the child: it blocks in system calls only, and costs the loop nothing.
"""

from __future__ import annotations

import asyncio
import queue
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import IO, Final, TypeVar

import msgspec

from ottla.errors import DecodeError, KafkaError, OttlaError, StorageError, WorkerDied
from ottla.ports import Job

Q = TypeVar("Q")
R = TypeVar("R")

IDLE_SECONDS: Final = 10.0
LENGTH_BYTES: Final = 4
_Call = tuple[bytes, "Future[bytes]"]


class Worker:
    """A queue of jobs and, while there are any, the process that does them."""

    def __init__(self, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._calls: queue.Queue[_Call] = queue.Queue()
        self._guard = threading.Lock()  # of the three below
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._doing: Future[bytes] | None = None

    @property
    def process_id(self) -> int | None:
        """Of the child; None while there is none."""
        child = self._child
        return None if child is None else child.pid

    async def work(self, job: Job[Q, R], request: Q, bytes_per_second: float) -> R:
        """Does the job (``ports.Disk.work``). When the caller is cancelled, so is the job: the child that does it is killed."""
        frame = msgspec.msgpack.encode((job.name, msgspec.msgpack.encode(request), bytes_per_second))
        future: Future[bytes] = Future()
        with self._guard:
            self._calls.put((frame, future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="ottla-worker", daemon=True)
                self._thread.start()
        try:
            answer = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._cancel(future)
            raise
        outcome, number, payload = msgspec.msgpack.decode(answer, type=tuple[str, int, bytes])
        if outcome != "done":
            raise _error(outcome, number, payload.decode())
        return msgspec.msgpack.decode(payload, type=job.result)

    def _cancel(self, future: Future[bytes]) -> None:
        with self._guard:
            if self._doing is future and self._child is not None:
                self._child.kill()

    # -- the thread

    def _serve(self) -> None:
        while True:
            try:
                frame, future = self._calls.get(timeout=self._idle_seconds)
            except queue.Empty:
                with self._guard:
                    if not self._calls.empty():
                        continue
                    self._thread = None
                    self._end_child()
                    return
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._exchange(frame, future))
            except (OSError, OttlaError) as error:
                future.set_exception(error)

    def _exchange(self, frame: bytes, future: Future[bytes]) -> bytes:
        with self._guard:
            if self._child is None:
                command = [sys.executable, "-m", "ottla.runtime.worker_main"]
                self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            child, self._doing = self._child, future
        assert child.stdin is not None, "it is a pipe"
        assert child.stdout is not None, "it is a pipe"
        try:
            child.stdin.write(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)
            child.stdin.flush()
            return read_frame(child.stdout)
        except (OSError, EOFError):
            with self._guard:
                status = self._end_child()
            raise WorkerDied(f"the worker process ended with status {status} in the middle of a job") from None
        finally:
            with self._guard:
                self._doing = None

    def _end_child(self) -> int | None:
        child, self._child = self._child, None
        if child is None:
            return None
        child.kill()  # it has nothing to lose: what it writes counts only when its answer has come
        status = child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # a frame that the dead one did not take
                    continue
        return status


def read_frame(stream: IO[bytes]) -> bytes:
    """Returns the next complete frame. EOFError when the stream ends before or in it."""
    length = stream.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        raise EOFError
    size = int.from_bytes(length, "big")
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _error(outcome: str, number: int, text: str) -> Exception:
    match outcome:
        case "os":
            return OSError(number, text)
        case "decode":
            return DecodeError(text)
        case "storage":
            return StorageError(text)
        case "kafka":
            return KafkaError(number, text)
    return OttlaError(f"a job failed: {text}")

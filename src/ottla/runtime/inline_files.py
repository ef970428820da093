"""Real files for a process that no caller waits for: every system call inline, no loop, no threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ottla.pace import no_pace
from ottla.ports import Job
from ottla.runtime.files import RealDisk, RealFile

T = TypeVar("T")
Q = TypeVar("Q")
R = TypeVar("R")


class InlineFile(RealFile):
    async def _hop(self, call: Callable[[], T]) -> T:
        return call()


class InlineDisk(RealDisk):
    has_threads = False

    def __init__(self) -> None:
        super().__init__(ThreadPoolExecutor(1))  # never used, and so without any

    async def _hop(self, call: Callable[[], T]) -> T:
        return call()

    async def open(self, path: str, *, create: bool = False) -> InlineFile:
        file = await super().open(path, create=create)
        return InlineFile(path, os.dup(file.descriptor), file.size, self._pool, self._pace)

    async def take_turns(self, size: int) -> None:
        """Does nothing: nothing else waits."""

    async def work(self, job: Job[Q, R], request: Q, *, bytes_per_second: float = 0) -> R:
        """Does the job here and now, without pauses."""
        return await job.run(self, request, no_pace)

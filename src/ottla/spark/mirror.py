"""A checkpoint's directory on its way into its topic: what has changed since the last batch, in the transaction of this one.

Spark goes on writing and deleting meanwhile: its maintenance uploads snapshots and deletes old versions, in threads of their own. A
directory is listed before those below it, so that the SST files of each zip that was seen have been seen, too. Where a file vanishes before
it is read, or a zip after its SST files were, the listing is made again. Hidden files are Spark's temporary ones, and checksums.

What is known of the topic counts until a batch fails; then it is read again, as the batch's marker is. So it is when someone else has
deleted records of it, or made it again, which is asked for once in a minute: it would lack for ever what has not changed since.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ottla.spark.checkpoint_topic import CheckpointTopic, MirroredFile, digest_of, headers_of, key_of
from ottla.spark.mirror_plan import Plan, is_snapshot, planned
from ottla.types import Headers

TRIES_MAX: Final = 20
ORIGIN_AGE_S_MAX: Final = 60.0

Stamp = tuple[int, int, int]  # size, time and inode: Spark replaces files, and does not write into them
Send = Callable[[bytes, bytes | None, Headers], None]
"""A record of the topic is in the transaction."""


class Mirror:
    def __init__(self, topic: CheckpointTopic) -> None:
        self.topic = topic
        self._root: Path | None = None
        self._known: dict[str, MirroredFile] = {}
        self._stamps: dict[str, Stamp] = {}
        self._written: tuple[dict[str, MirroredFile], dict[str, Stamp]] | None = None
        self._origin: tuple[bytes, int] = b"", -1
        self._asked_s = 0.0  # for the origin
        self.sent_bytes = 0  # in all

    def load(self) -> None:
        """Creates the topic, if it is missing, and reads what it has."""
        self.topic.ensure()
        self._origin, self._asked_s = self.topic.origin(), time.monotonic()
        self._known, self._stamps, self._written = self.topic.files(), {}, None

    def renew(self) -> None:
        """Loads again what has lost records since, as another topic of its name has. Asks at most once in ``ORIGIN_AGE_S_MAX``."""
        if time.monotonic() - self._asked_s < ORIGIN_AGE_S_MAX:
            return
        self._asked_s = time.monotonic()
        if self.topic.origin() != self._origin:
            self.load()

    def write(self, root: Path, number: int, send: Send) -> None:
        """Sends records until the topic has a checkpoint with which batch ``number`` can run again. It counts after ``settle``."""
        if root != self._root:
            self._root, self._stamps = root, {}
        known, stamps = self._written = dict(self._known), dict(self._stamps)
        for _ in range(TRIES_MAX):
            local = dict(listed(root))
            for path in ("metadata", f"offsets/{number}", *([f"commits/{number - 1}"] if number else [])):
                if path not in local:
                    raise FileNotFoundError(f"{root / path} was deleted while its query runs")
            changed = {path for path, stamp in local.items() if stamps.get(path) != stamp}
            plan = planned({path: stamp[0] for path, stamp in local.items()}, known.keys(), changed, version=number)
            if self._apply(plan, root, local, known, stamps, send):
                return
        raise RuntimeError(f"the checkpoint {root} changes faster than it can be read")

    def settle(self) -> None:
        """Notes that what was written last is committed."""
        assert self._written is not None, "a batch was written"
        (self._known, self._stamps), self._written = self._written, None

    def _apply(
        self, plan: Plan, root: Path, local: dict[str, Stamp], known: dict[str, MirroredFile], stamps: dict[str, Stamp], send: Send
    ) -> bool:
        """Sends the plan's records; False when Spark has deleted meanwhile what it is about."""
        for path in plan.put:
            try:
                content = (root / path).read_bytes()
            except FileNotFoundError:
                return False
            self._put(path, content, known, send)
            stamps[path] = local[path]
        if not all((root / path).exists() for path in plan.put if is_snapshot(path)):
            return False
        for path in plan.drop:
            for index in range(known.pop(path).piece_count):
                send(key_of(path, index), None, ())
            stamps.pop(path, None)
        return True

    def _put(self, path: str, content: bytes, known: dict[str, MirroredFile], send: Send) -> None:
        digest, piece_bytes = digest_of(content), self.topic.piece_bytes
        before = known.get(path, MirroredFile("", 0))
        if before.digest == digest:
            return
        starts = range(0, len(content) or 1, piece_bytes)
        for index, at in enumerate(starts):
            piece = content[at : at + piece_bytes]
            send(key_of(path, index), piece, headers_of(path, at=at, size=len(content), digest=digest))
            self.sent_bytes += len(piece)
        for index in range(len(starts), before.piece_count):
            send(key_of(path, index), None, ())
        known[path] = MirroredFile(digest, len(starts))


def listed(root: Path) -> Iterator[tuple[str, Stamp]]:
    """Yields the checkpoint's files, by paths below it: a directory's own files before its subdirectories."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            entries = list(os.scandir(root / below))
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = f"{below}/{entry.name}" if below else entry.name
            try:
                if entry.is_dir():
                    waiting.append(path)
                else:
                    found = entry.stat()
                    yield path, (found.st_size, found.st_mtime_ns, found.st_ino)
            except FileNotFoundError:
                continue

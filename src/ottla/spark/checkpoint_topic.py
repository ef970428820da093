"""The topic that a query's checkpoint is in: ``<app>-checkpoint``, of one partition, compacted.

A file is a record for each piece of it, in its transaction: the key is the path below the checkpoint, with ``#1``, ``#2`` for the pieces
after the first. The headers say which file it is, where the piece starts, and how long the file is, with its digest. A file that Spark has
deleted is a tombstone for each of its pieces. So the newest record of each key, as ``read_committed`` has it, is the checkpoint.

What compaction leaves of it is bounded: a segment that it does not touch yet, as much again as it lets be dirty, and tombstones for
ten minutes. A reader that takes longer than that over the topic would see a deleted file again, and its checksum would not agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.spark.compacted_topics import config_of, ensure_compacted, topic_exists
from ottla.spark.exactly_once import BEGIN_AGAIN, StopError
from ottla.spark.lookup import Lookup
from ottla.spark.marker import CHECKPOINT_SUFFIX
from ottla.spark.planning import OffsetRanges, ranges_between
from ottla.spark.reading import read_ranges
from ottla.types import Headers, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES_MAX: Final = 512 << 10
MESSAGE_BYTES_MAX: Final = 1_048_588
SEGMENT_BYTES: Final = 8 << 20
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.2",
    "delete.retention.ms": "600000",
    "max.message.bytes": str(MESSAGE_BYTES_MAX),
}
_FILE, _AT, _SIZE, _DIGEST = "file", "at", "size", "digest"


@dataclass(frozen=True, slots=True)
class MirroredFile:
    digest: str
    piece_count: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A record of the topic; ``file`` is empty for a tombstone, and for what no mirror wrote."""

    key: str
    file: str = ""
    at: int = 0
    size: int = 0
    digest: str = ""
    content: bytes = b""


class CheckpointTopic:
    def __init__(self, app: str, settings: Mapping[str, str]) -> None:
        self.name = f"{app}{CHECKPOINT_SUFFIX}"
        self.partition = TopicPartition(self.name, 0)
        self._options = dict(settings) | {"kafka.isolation.level": "read_committed"}
        self._lookup = Lookup(self._options)
        self.piece_bytes = PIECE_BYTES_MAX

    def exists(self) -> bool:
        return topic_exists(self._lookup, self.name)

    def ensure(self) -> None:
        """Creates the topic, compacted, if it is missing. KafkaError INVALID_CONFIG where it could not keep a checkpoint."""
        ensure_compacted(self._lookup, self.name, CONFIGS, partition_count=1)
        message_bytes_max = int(config_of(self._lookup, self.name, "max.message.bytes") or MESSAGE_BYTES_MAX)
        self.piece_bytes = max(1, min(PIECE_BYTES_MAX, message_bytes_max // 2))

    def origin(self) -> tuple[bytes, int]:
        """Returns which topic it is, and where its log starts: what changes when records are deleted, or the topic is made again.

        Compaction changes neither. No id, and -1, where there is no topic.
        """
        found = self._lookup.link.cluster.topics.get(self.name) if self.exists() else None
        return (b"", -1) if found is None else (found.topic_id, self._lookup.earliest([self.partition])[self.partition])

    def files(self) -> dict[str, MirroredFile]:
        """Returns the topic's files by path."""
        newest: dict[str, Piece] = {}
        for piece in self._pieces(with_content=False):
            newest.pop(piece.key, None)
            if piece.file:
                newest[piece.key] = piece
        counts: dict[str, int] = {}
        for piece in newest.values():
            counts[piece.file] = counts.get(piece.file, 0) + 1
        return {path: MirroredFile(newest[path].digest, count) for path, count in counts.items() if path in newest}

    def write_into(self, directory: Path) -> int:
        """Writes the topic's files into the directory, and returns how many. StopError when one of them is not complete.

        Compaction may remove the first piece of a deleted file before the others: what is left of that file is deleted at the end.
        """
        newest: dict[str, Piece] = {}
        written: set[Path] = set()
        for piece in self._pieces(with_content=True):
            known = newest.pop(piece.key, None)
            if not piece.file:
                if known is not None and known.at == 0:
                    (directory / known.file).unlink()
                    written.remove(directory / known.file)
                continue
            newest[piece.key] = Piece(piece.key, piece.file, piece.at, piece.size, piece.digest)
            path = directory / _checked_path(self.name, piece.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if path in written else "w+b") as file:
                file.seek(piece.at)
                file.write(piece.content)
            written.add(path)
        found = [piece for key, piece in newest.items() if piece.file == key]
        for path in written - {directory / piece.file for piece in found}:
            path.unlink()
        for piece in found:
            path = directory / piece.file
            with path.open("r+b") as file:
                file.truncate(piece.size)
            if digest_of(path.read_bytes()) != piece.digest:
                raise StopError(f"topic {self.name!r} does not have all of {piece.file}. {begin_again(self.name)}")
        return len(found)

    def _pieces(self, *, with_content: bool) -> Iterator[Piece]:
        import pyarrow as pa

        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        columns = {"key": pa.binary(), "value": pa.binary(), "headers": pa.list_(header)}
        if not with_content:
            del columns["value"]
        start, end = self._lookup.earliest([self.partition]), self._lookup.latest([self.partition])
        for batch in read_ranges(OffsetRanges(tuple(ranges_between(start, end))), self._options, pa.schema(list(columns.items()))):
            yield from _pieces_of(batch)


def _pieces_of(batch: pa.RecordBatch) -> Iterator[Piece]:
    keys, headers = batch.column("key").to_pylist(), batch.column("headers").to_pylist()
    values = batch.column("value").to_pylist() if "value" in batch.schema.names else [None] * batch.num_rows
    for key, row, value in zip(keys, headers, values, strict=True):
        said = {header["key"]: (header["value"] or b"").decode() for header in row}
        if key is None:
            continue
        name = key.decode(errors="replace")
        if said.keys() >= {_FILE, _AT, _SIZE, _DIGEST}:
            yield Piece(name, said[_FILE], int(said[_AT]), int(said[_SIZE]), said[_DIGEST], value or b"")
        else:
            yield Piece(name)


def key_of(path: str, index: int) -> bytes:
    return (path if index == 0 else f"{path}#{index}").encode()


def headers_of(path: str, *, at: int, size: int, digest: str) -> Headers:
    return ((_FILE, path.encode()), (_AT, b"%d" % at), (_SIZE, b"%d" % size), (_DIGEST, digest.encode()))


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def begin_again(topic: str) -> str:
    """Returns the sentence on what a query does whose topic has no checkpoint to go on from."""
    app = topic.removesuffix(CHECKPOINT_SUFFIX)
    return f"{BEGIN_AGAIN}, use a new checkpoint after: ottla group delete {app} --yes, and ottla topic delete {topic} --yes"


def _checked_path(topic: str, path: str) -> str:
    """Returns the path; StopError for one that leads out of its directory."""
    parts = Path(path).parts
    if not parts or Path(path).is_absolute() or ".." in parts:
        raise StopError(f"topic {topic!r} has a file {path!r}, which is of no checkpoint. {begin_again(topic)}")
    return path

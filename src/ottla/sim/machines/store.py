"""What one simulated replica has on disk, and what of it survives.

An entry of the log is ``(epoch, value)``. The file of the election and a truncation are durable at once, since the shell waits for them;
what is appended is durable once an fsync that started later has ended. A snapshot is a digest of everything below its end.
"""

from __future__ import annotations

from random import Random

from ottla.consensus.calls import SnapshotId, Span
from ottla.consensus.election_state import ElectionState
from ottla.consensus.log_shape import LogShape

Entry = tuple[int, int]
EMPTY_DIGEST = 17


def digest_of(entries: list[Entry], digest: int = EMPTY_DIGEST) -> int:
    """Returns the digest of the entries after those that ``digest`` covers."""
    for entry in entries:
        digest = hash((digest, entry))
    return digest


class Store:
    __slots__ = ("durable_offset", "election", "entries", "snapshot_digests", "snapshots", "start_epoch", "start_offset")

    def __init__(self) -> None:
        self.election = ElectionState()
        self.entries: list[Entry] = []  # from ``start_offset`` on
        self.start_offset = 0
        self.start_epoch = 0
        self.durable_offset = 0
        self.snapshots: tuple[tuple[SnapshotId, int], ...] = ()
        self.snapshot_digests: dict[SnapshotId, int] = {}

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    def entry(self, offset: int) -> Entry:
        return self.entries[offset - self.start_offset]

    def between(self, start: int, end: int) -> list[Entry]:
        return self.entries[start - self.start_offset : end - self.start_offset]

    def epoch_before(self, offset: int) -> int:
        return self.entries[offset - 1 - self.start_offset][0] if offset > self.start_offset else self.start_epoch

    def spans(self, start: int, end: int) -> tuple[Span, ...]:
        """Returns the entries from ``start`` to ``end`` by epoch, one span for each run."""
        spans: list[Span] = []
        base = start
        entries = self.between(start, end)
        for index, (epoch, _) in enumerate(entries):
            if index + 1 == len(entries) or entries[index + 1][0] != epoch:
                spans.append(Span(epoch, base, start + index + 1))
                base = start + index + 1
        return tuple(spans)

    def shape(self) -> LogShape:
        """Returns the log as a starting process finds it."""
        epochs = [(span.epoch, span.base_offset) for span in self.spans(self.start_offset, self.end_offset)]
        return LogShape(
            epochs, start_offset=self.start_offset, start_epoch=self.start_epoch, end_offset=self.end_offset, snapshots=self.snapshots
        )

    def truncate_to(self, end_offset: int) -> None:
        del self.entries[end_offset - self.start_offset :]
        self.durable_offset = min(self.durable_offset, end_offset)

    def install(self, snapshot_id: SnapshotId, digest: int, size: int) -> None:
        self.entries.clear()
        self.start_offset = self.durable_offset = snapshot_id.end_offset
        self.start_epoch = snapshot_id.epoch
        self.snapshots = ((snapshot_id, size),)
        self.snapshot_digests = {snapshot_id: digest}

    def take_snapshot(self, end_offset: int, digest: int, size: int) -> None:
        """Makes a snapshot of everything below ``end_offset``; the log starts there from now on."""
        snapshot_id = SnapshotId(self.epoch_before(end_offset), end_offset)
        self.start_epoch = snapshot_id.epoch
        del self.entries[: end_offset - self.start_offset]
        self.start_offset = end_offset
        self.durable_offset = max(self.durable_offset, end_offset)
        self.snapshots = ((snapshot_id, size),)
        self.snapshot_digests = {snapshot_id: digest}

    def crash(self, rng: Random, *, power_cut: bool) -> int:
        """Truncates the log to what a power cut leaves, at least all durable entries; a kill loses none. Returns the entries lost."""
        before = self.end_offset
        if power_cut:
            self.truncate_to(rng.randint(self.durable_offset, before))
        self.durable_offset = self.end_offset  # recovery fsyncs what it has found
        return before - self.end_offset

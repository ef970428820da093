"""A compacted log on the simulated disk, against a dictionary: crashed before any disk operation, recovered, compared.

A case is a list of operations and a disk operation before which the machine dies. What was acknowledged was synced first, so
it must be there after a power cut as well.
"""

from __future__ import annotations

import copy
import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import iterate_batches
from ottla.records.builder import BatchBuilder
from ottla.records.control import build_end_marker
from ottla.records.iteration import iterate_records
from ottla.sim.disk import SimDisk
from ottla.sim.loop import run
from ottla.sim.process import PowerCut
from ottla.sim.trace import Trace
from ottla.storage.compaction.job import CLEAN_JOB
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.replay import Aborted
from ottla.storage.segment.transaction_index import START

DIRECTORY = "/data/topic-0"
DELETE_RETENTION_MS = 1000
CONFIG = LogConfig(
    cleanup_policy="compact", segment_bytes=300, index_interval_bytes=100, delete_retention_ms=DELETE_RETENTION_MS, file_delete_delay_ms=50
)
START_MS = 10_000
KEYS = [b"a", b"b", b"c", b"d", b"e"]

Operation = tuple[str, Any]

_records = st.lists(st.tuples(st.integers(0, len(KEYS) - 1), st.booleans()), min_size=1, max_size=4)
_operations = st.one_of(
    st.tuples(st.just("plain"), st.tuples(_records, st.integers(0, 4))),
    st.tuples(st.just("idempotent"), st.tuples(_records, st.integers(0, 1))),
    st.tuples(st.just("transactional"), st.tuples(_records, st.integers(2, 3))),
    st.tuples(st.just("end"), st.tuples(st.booleans(), st.integers(2, 3))),
    st.tuples(st.just("clean"), st.integers(1, 12)),
    st.tuples(st.just("wait"), st.sampled_from([1, 60, DELETE_RETENTION_MS])),
    st.tuples(st.just("delete"), st.integers(0, 100)),
)


@dataclass(frozen=True)
class Case:
    operations: list[Operation]
    crash_steps: list[int]  # how many disk operations after the start, or after the crash before, each crash comes
    power_cut: bool
    seed: int


cases = st.builds(
    Case, st.lists(_operations, min_size=25, max_size=80), st.lists(st.integers(1, 250), max_size=3), st.booleans(), st.integers(0, 2**16)
)


@dataclass
class Stored:
    """One record as it was sent. ``transaction`` numbers the one it belongs to, -1 for none."""

    key: bytes
    value: bytes | None
    timestamp_ms: int
    transaction: int = field(default=-1, compare=False)


@dataclass
class Model:
    """What was acknowledged, by offset; and what was sent and may be there without an acknowledgement."""

    records: dict[int, Stored] = field(default_factory=dict)
    pending: dict[int, Stored] = field(default_factory=dict)
    markers: dict[int, tuple[int, bool]] = field(default_factory=dict)  # transaction that ended there, whether it was committed
    pending_markers: dict[int, tuple[int, bool]] = field(default_factory=dict)
    recovery_point: int = 0
    end_offset: int = 0
    start_offset: int = 0
    now_ms: int = START_MS
    sequences: dict[int, int] = field(default_factory=dict)
    open_transactions: dict[int, int] = field(default_factory=dict)  # by producer
    transaction_count: int = 0
    written: int = 0
    cleaned: int = 0
    installed: int = 0
    crashes: int = 0
    removed: int = 0
    cleaning_steps: int = 0  # disk operations of the last cleaning


def play(case: Case) -> Model:
    """AssertionError when the log does not hold what it promised."""
    machine = Machine(case.seed, power_cut=case.power_cut)
    run(machine.play(case.operations, case.crash_steps))
    return machine.model


class Machine:
    """A disk, a log on it that is opened when it is needed, and what should be in it."""

    def __init__(self, seed: int, *, power_cut: bool = False) -> None:
        self._rng = random.Random(seed)
        self._trace = Trace()
        self._power_cut = power_cut
        self.disk = SimDisk(self._rng, self._trace, "disk", delay_ms_max=0)
        self.model = Model()

    def copy(self, seed: int, *, power_cut: bool) -> Machine:
        """The same disk and model, with a fate of its own."""
        twin = copy.deepcopy(self, {id(self._trace): self._trace})
        twin._rng.seed(seed)
        twin._power_cut = power_cut
        return twin

    async def play(self, operations: list[Operation], crash_steps: list[int]) -> None:
        """Each operation is done, again when the machine dies in it, and everything compared after each."""
        if not self.model.end_offset:
            await self.disk.make_dirs(DIRECTORY)
            await self.disk.sync_dir("/data")
            await self.disk.sync_dir("/")
        crashes = list(crash_steps)
        opened: PartitionLog | None = await _open(self.disk, self.model)
        self._arm(crashes)
        for operation in [*operations, ("wait", 0)]:
            while True:
                try:
                    if opened is None:
                        opened = await _open(self.disk, self.model)
                    await _do(self.disk, opened, self.model, operation)
                    break
                except PowerCut:
                    self.model.crashes += 1
                    if self._power_cut:
                        self.disk.cut_power()
                    self.disk.restart()
                    self._arm(crashes)
                    opened = None
            armed, self.disk.crash_at = self.disk.crash_at, None  # a read may write an index again; the machine dies in operations only
            await _check(opened, self.model)
            self.disk.crash_at = armed
        self.disk.crash_at = None

    def _arm(self, crashes: list[int]) -> None:
        if crashes:
            self.disk.crash_at = self.disk.steps + crashes.pop(0)


async def _open(disk: SimDisk, model: Model) -> PartitionLog:
    log = await PartitionLog.open(
        disk,
        DIRECTORY,
        config=CONFIG,
        now_ms=model.now_ms,
        clean=False,
        recovery_point=model.recovery_point,
        log_start_offset=model.start_offset,
    )
    await log.sync()  # as the broker does soon: what is not synced is not compacted
    _settle(model, log)
    return log


def _settle(model: Model, log: PartitionLog) -> None:
    """What was sent without an answer has come, or it has not."""
    if model.pending or model.pending_markers:
        if log.log_end_offset > model.end_offset:
            model.records |= model.pending
            model.markers |= model.pending_markers
            for transaction, _ in model.pending_markers.values():
                model.open_transactions = {key: open_ for key, open_ in model.open_transactions.items() if open_ != transaction}
            model.end_offset = max([*model.pending, *model.pending_markers]) + 1
        model.pending, model.pending_markers = {}, {}
    model.sequences = {producer_id: state.batches[-1][1] + 1 for producer_id, state in log.producers.states.items() if state.batches} | {
        producer_id: 0 for producer_id in range(4) if producer_id not in log.producers.states
    }


async def _do(disk: SimDisk, log: PartitionLog, model: Model, operation: Operation) -> None:
    kind, argument = operation
    if kind in ("plain", "idempotent", "transactional"):
        await _write(log, model, kind, *argument)
    elif kind == "end":
        await _end_transaction(log, model, *argument)
    elif kind == "clean":
        await _clean(disk, log, model, argument)
    elif kind == "wait":
        model.now_ms += argument
        await log.remove_deleted(model.now_ms)
    else:
        offset = min(model.start_offset + argument, model.end_offset)
        if offset > model.start_offset and argument % 3 == 0:
            model.start_offset = offset
            log.advance_log_start_offset(offset)
            await log.delete_segments_below(offset, now_ms=model.now_ms)


async def _write(log: PartitionLog, model: Model, kind: str, records: list[tuple[int, bool]], who: int) -> None:
    builder = BatchBuilder()
    sent = []
    for key, is_tombstone in records:
        model.written += 1
        sent.append(Stored(KEYS[key], None if is_tombstone else b"%d" % model.written, model.now_ms))
        builder.append(sent[-1].key, sent[-1].value, timestamp_ms=model.now_ms)
    arguments: dict[str, Any] = {}
    if kind != "plain":
        if kind == "transactional":
            if who not in model.open_transactions:
                model.transaction_count += 1
                model.open_transactions[who] = model.transaction_count
            for record in sent:
                record.transaction = model.open_transactions[who]
        arguments = {"producer_id": who, "producer_epoch": 0, "base_sequence": model.sequences.get(who, 0)}
    batch = builder.build(codec=who if kind == "plain" else 0, is_transactional=kind == "transactional", **arguments)
    base_offset = log.log_end_offset
    assert base_offset == model.end_offset
    model.pending = {base_offset + index: record for index, record in enumerate(sent)}
    log.stage(memoryview(batch), leader_epoch=0, now_ms=model.now_ms, is_permitted=True)
    await log.flush()
    await log.sync()
    _settle(model, log)


async def _end_transaction(log: PartitionLog, model: Model, is_commit: bool, who: int) -> None:
    transaction = model.open_transactions.get(who)
    if transaction is None:
        return
    marker = build_end_marker(is_commit=is_commit, producer_id=who, producer_epoch=0, coordinator_epoch=1, timestamp_ms=model.now_ms)
    model.pending_markers = {log.log_end_offset: (transaction, is_commit)}
    log.stage(memoryview(marker), leader_epoch=0, now_ms=model.now_ms, from_client=False)
    await log.flush()
    await log.sync()
    _settle(model, log)


async def _clean(disk: SimDisk, log: PartitionLog, model: Model, keys_max: int) -> None:
    request = await log.compaction.clean_request(model.now_ms, map_bytes=24 * (keys_max + 1), map_load_factor=1.0)
    if request is None:
        return
    if keys_max % 2 == 0:  # several segments become one only where there is room for them
        request = msgspec.structs.replace(request, segment_bytes=5 * CONFIG.segment_bytes)
    begun = disk.steps
    result = await disk.work(CLEAN_JOB, request)
    assert request.first_dirty_offset < result.end_offset <= request.end_offset
    model.recovery_point = log.recovery_point  # checkpointed before: only below it may a log lack offsets
    assert await log.compaction.install_all(result.cleaned, now_ms=model.now_ms)
    model.installed += len(result.cleaned)
    log.compaction.first_dirty_offset = result.end_offset
    model.cleaning_steps = disk.steps - begun
    model.cleaned += 1
    model.removed += result.removed_records


async def _check(log: PartitionLog, model: Model) -> None:
    assert log.log_end_offset == model.end_offset
    assert log.log_start_offset == model.start_offset
    for segment, following in zip(log.segments, log.segments[1:]):
        assert segment.base_offset < following.base_offset
    found = await _read(log)
    ended = dict(model.markers.values())
    aborted = {transaction for transaction, is_commit in ended.items() if not is_commit}
    newest: dict[bytes, int] = {}
    for offset, record in model.records.items():
        if record.transaction not in aborted:
            newest[record.key] = offset
    for offset, record in found.items():
        assert model.records[offset] == record, f"offset {offset} holds what was sent there"
    for offset, record in model.records.items():
        if offset < model.start_offset:
            continue
        if record.transaction in aborted or newest[record.key] != offset:
            assert offset in found or offset < log.segments[-1].base_offset, "only closed segments are compacted"
        elif record.value is not None:
            assert offset in found, f"offset {offset} has the newest value of {record.key!r}"
        else:
            is_young = model.now_ms - record.timestamp_ms < DELETE_RETENTION_MS
            assert offset in found or not is_young, f"the tombstone at {offset} is too young to go"
    for key in KEYS:
        clean = [at for at, record in found.items() if record.key == key and at < log.compaction.first_dirty_offset]
        assert len(clean) <= 1, f"{key!r} is at {clean}, all of them cleaned"
    for key, offset in newest.items():
        older = [at for at, record in found.items() if record.key == key and at < offset and record.transaction not in aborted]
        assert offset in found or offset < model.start_offset or not older, f"{key!r} has come back from the dead"
    open_since = [offset for offset, record in model.records.items() if record.transaction in model.open_transactions.values()]
    stable = log.producers.last_stable_offset(log.log_end_offset)
    kept_since = [
        offset for offset in open_since if offset >= model.start_offset
    ]  # of one whose first records were deleted, a start knows no more
    assert stable in {log.log_end_offset, *open_since}
    assert min([log.log_end_offset, *open_since]) <= stable <= min([log.log_end_offset, *kept_since])
    committed = {offset for offset, record in model.records.items() if offset in found and record.transaction not in aborted}
    assert await _read_committed(log, stable) == {offset for offset in committed if offset < stable}, "what read_committed shows"


async def _read_committed(log: PartitionLog, end_offset: int) -> set[int]:
    """The offsets of what a consumer is given that drops the transactions that it is told of."""
    found: set[int] = set()
    offset = log.log_start_offset
    while offset < end_offset:
        part = await log.read(offset, max_bytes=300, end_offset=end_offset, with_aborted=True)
        if part is None:
            break
        aborted = AbortedTransactions(list(itertools.starmap(Aborted, START.iter_unpack(part.aborted))))
        data = part.region.read()
        for position, header in iterate_batches(data):
            if aborted.admits(data, position, header) and not header.is_control:
                found |= {record.offset for record in iterate_records(data, position) if record.offset >= log.log_start_offset}
            offset = header.last_offset + 1
            assert offset <= part.end_offset
    return found


async def _read(log: PartitionLog) -> dict[int, Stored]:
    """Every data record as a reader finds it; the transaction follows from the offset only."""
    found: dict[int, Stored] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = await log.read(offset, max_bytes=300, end_offset=log.log_end_offset)
        if part is None:
            break
        data = part.region.read()
        for position, header in iterate_batches(data, check_crc=True):
            assert header.last_offset >= offset
            for record in () if header.is_control else iterate_records(data, position):
                if record.offset >= log.log_start_offset:
                    assert record.offset not in found
                    found[record.offset] = Stored(record.key or b"", record.value, record.timestamp_ms)
            offset = header.last_offset + 1
    return found

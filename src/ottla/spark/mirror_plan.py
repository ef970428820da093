"""Which files of a checkpoint a batch's transaction writes into its topic, and which it deletes there: a pure function.

After a pass the topic is a checkpoint from which its last batch N can be run again, whatever Spark has done to the directory since.
All but the state is copied as it is. Of the state of an operator, one store of one partition at a time, there are

* changes: ``V.changelog`` (RocksDB) or ``V.delta`` (HDFS-backed), what version V has more than version V - 1; the batch that
  writes version V has it in its transaction;
* snapshots: ``V.zip`` with its ``SSTs``, or ``V.snapshot``, which Spark's maintenance writes when it likes, and which may be large.

A chain of changes from a snapshot that the topic has, or from version 0, makes newer snapshots needless. So they are written a few
megabytes a batch, a zip after all of its SST files. Until that is through, no file of the store is deleted in the topic, though Spark
may have deleted what the snapshot replaces. Where there is no chain (a mirror that starts late, a snapshot that Spark wrote in
place of a change) all of the store is written at once. A store of which nothing is left to write is in the topic as it is on the disk.

Spark deletes what it does not need, and never a chain. Where one is missing on the disk, the directory is being deleted by something
else, or damaged: the topic keeps all that it has.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

SNAPSHOT_BYTES_MAX: Final = 8 << 20
"""Of snapshots that can wait, in one batch; of a file that is larger, all."""

_CHANGES: Final = re.compile(r"^(state/.+)/(\d+)(?:_[^/.]+)?\.(?:changelog|delta)$")
_SNAPSHOT: Final = re.compile(r"^(state/.+)/(\d+)(?:_[^/.]+)?\.(?:zip|snapshot)$")
_PART: Final = re.compile(r"^(state/.+)/(?:SSTs|logs)/[^/]+$")


@dataclass(slots=True)
class Plan:
    """The plan of what one transaction does to the topic."""

    put: list[str] = field(default_factory=list)  # parts of a snapshot before the snapshot
    drop: list[str] = field(default_factory=list)


def planned(
    local: Mapping[str, int],
    mirrored: Collection[str],
    changed: Collection[str],
    *,
    version: int,
    snapshot_bytes_max: int = SNAPSHOT_BYTES_MAX,
) -> Plan:
    """Returns the plan for the transaction of batch ``version``, which starts with that version of its state.

    ``local`` has the bytes of each file; ``mirrored`` is what the topic has, and ``changed`` what of it differs on the disk.
    """
    new = [path for path in local if path in changed or path not in mirrored]
    new_of, old_of = _by_store(new), _by_store(path for path in mirrored if path not in local)
    plan = Plan(new_of.pop(None, []), old_of.pop(None, []))
    kept_of, there = _by_store(mirrored), _by_store(local)
    is_whole = all(_has_chain(there[store], version) for store in {*kept_of, *there} - {None})
    room = snapshot_bytes_max
    stores = sorted({*new_of, *old_of}, key=str)
    first = version % len(stores) if stores else 0  # a store that is large every time leaves room to the others
    for store in stores[first:] + stores[:first]:
        later = sorted((path for path in new_of[store] if not _CHANGES.match(path)), key=_turn)
        at_once = [path for path in new_of[store] if _CHANGES.match(path)]
        if not _has_chain([*kept_of[store], *at_once], version):
            at_once, later = at_once + later, []
        plan.put += at_once
        while later and (room > 0 or local[later[0]] == 0):
            room -= local[later[0]]
            plan.put.append(later.pop(0))
        if not later:
            plan.drop += old_of[store]
    return plan if is_whole else Plan(plan.put)


def _by_store(paths: Iterable[str]) -> defaultdict[str | None, list[str]]:
    """Returns the files by the store they belong to; files of no store under None."""
    found: defaultdict[str | None, list[str]] = defaultdict(list)
    for path in paths:
        match = _CHANGES.match(path) or _SNAPSHOT.match(path) or _PART.match(path)
        found[None if match is None else match[1]].append(path)
    return found


def _turn(path: str) -> tuple[bool, str]:
    return _SNAPSHOT.match(path) is not None, path


def is_snapshot(path: str) -> bool:
    return _SNAPSHOT.match(path) is not None


def _has_chain(paths: Iterable[str], version: int) -> bool:
    """True when the version can be made of these: of a snapshot, or of nothing, and the changes since."""
    changes: set[int] = set()
    bases = {0}
    for path in paths:
        if match := _CHANGES.match(path):
            changes.add(int(match[2]))
        elif match := _SNAPSHOT.match(path):
            bases.add(int(match[2]))
    base = version
    while base not in bases and base in changes:
        base -= 1
    return base in bases

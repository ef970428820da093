"""In which version a record is written: what ``metadata.version`` allows, so that every broker of that release can read it.

A field that a version does not carry is not written. A decision leaves it out of the image as well (``written_at``): all nodes have
the same one. Source: KIP-584, KIP-778, KIP-858 (directories), KIP-966 (eligible leader replicas).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ottla.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from ottla.wire.schema import FIELDS, Stored, declaration_of

METADATA_VERSION: Final = "metadata.version"
CONTROLLED_SHUTDOWN, MIGRATION, TRANSACTIONS, DIRECTORIES, ELIGIBLE_LEADERS, CORDONED = 7, 8, 13, 17, 23, 30
"""Levels that brought something to records: 3.3-IV3, 3.4-IV0, 3.6-IV1, 3.7-IV2, 4.0-IV1, 4.3-IV0."""
NEWEST: Final = CORDONED

_SINCE: Final[Mapping[type[Stored], Sequence[int]]] = {
    RegisterBrokerRecord: (CONTROLLED_SHUTDOWN, MIGRATION, DIRECTORIES, CORDONED),
    BrokerRegistrationChangeRecord: (CONTROLLED_SHUTDOWN, DIRECTORIES, CORDONED),
    PartitionRecord: (DIRECTORIES, ELIGIBLE_LEADERS),
    PartitionChangeRecord: (DIRECTORIES, ELIGIBLE_LEADERS),
}
"""From which levels on the versions after the first are written."""


def version_at(record: type[Stored], level: int) -> int:
    """Returns the version of such a record at that level; for a type with a single version, that one."""
    since = _SINCE.get(record)
    return declaration_of(record).versions[1] if since is None else sum(level >= first for first in since)


def level_after(record: Stored, level: int) -> int:
    """Returns the level of what is written after the record."""
    return record.feature_level if type(record) is FeatureLevelRecord and record.name == METADATA_VERSION else level


def level_after_all(records: Iterable[Stored], level: int) -> int:
    """Returns the level of what is written after all of the records."""
    for record in [found for found in records if type(found) is FeatureLevelRecord]:  # of very many, hardly one
        level = level_after(record, level)
    return level


def written_at(records: Sequence[Stored], level: int) -> Sequence[Stored]:
    """Returns the records as readers of the log see them: without the fields that their versions do not carry."""
    if level >= NEWEST and not any(type(record) is FeatureLevelRecord for record in records):
        return records
    return tuple(_written(records, level))


def _written(records: Iterable[Stored], level: int) -> Iterable[Stored]:
    for record in records:
        if type(record) in _SINCE and level < NEWEST:
            version = version_at(type(record), level)
            lost = {name: field.default for name, field in FIELDS[type(record)].items() if not field.is_in(version)}
            yield msgspec.structs.replace(record, **{name: _fresh(value) for name, value in lost.items()}) if lost else record
        else:
            yield record
        level = level_after(record, level)


def _fresh(default: object) -> object:
    return list(default) if isinstance(default, list) else default

"""ACLs in the form in which they are asked: part of each image, and kept by what makes the next one.

A *cell* has all ACLs of one pattern, as two bit fields for each principal and host: what is allowed and what is denied. One look at
the cells that cover a name decides every operation at once. Operations' numbers are the bits; ALL is all of them, and what an allowed
operation implies is allowed with it. Source: KIP-11, KIP-290.

Like an image, tables never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct, field

from ottla.messages.acl_codes import OPERATIONS, Operation, PatternType, Permission
from ottla.messages.metadata_records import AccessControlEntryRecord

Pattern = tuple[int, int, str]
"""Type of the pattern (literal or prefixed), type of the resource, name."""


class Grants(NamedTuple):
    """The combined effect of all ACLs of one pattern, principal and host."""

    principal: str
    host: str
    allowed: int
    denied: int
    codes: tuple[int, ...]
    """One for each of the ACLs, ascending: two may say the same."""


Cell = tuple[Grants, ...] | Mapping[tuple[str, str], Grants]
"""A few, or many by principal and host."""

FEW: Final = 8
ALIKE_MAX: Final = 10_000
EVERY_OPERATION: Final = sum(1 << operation for operation in frozenset[Operation]().union(*OPERATIONS.values()))
_DESCRIBING: Final = frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER})


class AclTables(Struct, frozen=True):
    """The ACLs of one image. A pattern without ACLs has no entry."""

    cells: Mapping[Pattern, Cell] = field(default_factory=dict)
    prefix_counts: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """How many prefixes there are of each length, by type of resource: no other beginnings of a name are looked up."""
    patterns_of: Mapping[str, frozenset[Pattern]] = field(default_factory=dict)
    """Those that name the principal."""


NO_ACLS: Final = AclTables()


def is_there(tables: AclTables, acl: AccessControlEntryRecord) -> bool:
    """True when the tables have an equal ACL, whatever its id."""
    for one in entries(tables.cells.get(pattern_of(acl), ())):
        if one.principal == acl.principal and one.host == acl.host:
            return _code(acl) in one.codes
    return False


def entries(cell: Cell) -> tuple[Grants, ...]:
    """Returns all grants of the cell."""
    return cell if type(cell) is tuple else tuple(cell.values())  # type: ignore[union-attr]


def acls_in(cell: Cell) -> Iterator[tuple[str, str, int, int]]:
    """Yields each ACL of the cell: principal, host, operation, permission."""
    for one in entries(cell):
        for code in one.codes:
            yield one.principal, one.host, code & 0xFF, code >> 8


@lru_cache(maxsize=ALIKE_MAX)
def _grants(principal: str, host: str, codes: tuple[int, ...]) -> Grants:
    """Returns one object for equal grants: a principal has the same rights to many resources."""
    allowed = denied = 0
    for code in codes:
        operation = code & 0xFF
        bits = EVERY_OPERATION if operation == Operation.ALL else 1 << operation
        if code >> 8 == Permission.DENY:  # which implies nothing
            denied |= bits
            continue
        if operation in _DESCRIBING:
            bits |= 1 << Operation.DESCRIBE
        elif operation == Operation.ALTER_CONFIGS:
            bits |= 1 << Operation.DESCRIBE_CONFIGS
        allowed |= bits
    return Grants(principal, host, allowed, denied, codes)


@lru_cache(maxsize=ALIKE_MAX)
def _few(grants: tuple[Grants, ...]) -> tuple[Grants, ...]:
    """Returns one object for equal tuples."""
    return grants


class AclTablesBuilder:
    """The newest tables in the making: each change is noted, and made when they are sealed."""

    def __init__(self, tables: AclTables) -> None:
        self._tables = tables
        self._added: dict[Pattern, list[AccessControlEntryRecord]] = {}
        self._removed: dict[Pattern, list[AccessControlEntryRecord]] = {}

    def add(self, acl: AccessControlEntryRecord) -> None:
        """Adds the ACL, which is in force in the next tables."""
        self._added.setdefault(pattern_of(acl), []).append(acl)

    def remove(self, acl: AccessControlEntryRecord) -> None:
        """Removes an ACL that was added before."""
        self._removed.setdefault(pattern_of(acl), []).append(acl)

    def seal(self) -> AclTables:
        """Returns the tables after all changes; they never change."""
        if self._added or self._removed:
            self._tables = self._changed()
            self._added.clear()
            self._removed.clear()
        return self._tables

    def _changed(self) -> AclTables:
        old = self._tables
        cells, patterns_of = dict(old.cells), dict(old.patterns_of)
        counts = {resource_type: dict(found) for resource_type, found in old.prefix_counts.items()}
        named: dict[str, set[Pattern]] = {}  # whose patterns change
        for pattern in {**self._added, **self._removed}:
            before = entries(old.cells.get(pattern, ()))
            after = self._changed_cell(pattern, before)
            if after:
                cells[pattern] = _few(after) if len(after) <= FEW else {(one.principal, one.host): one for one in after}
            elif before:
                del cells[pattern]
            for one in before:
                named.setdefault(one.principal, set(patterns_of.get(one.principal, ()))).discard(pattern)
            for one in after:
                named.setdefault(one.principal, set(patterns_of.get(one.principal, ()))).add(pattern)
            pattern_type, resource_type, name = pattern
            if pattern_type == PatternType.PREFIXED and bool(after) is not bool(before):
                found = counts.setdefault(resource_type, {})
                found[len(name)] = found.get(len(name), 0) + (1 if after else -1)
                if not found[len(name)]:
                    del found[len(name)]
        for principal, patterns in named.items():
            patterns_of[principal] = frozenset(patterns)
            if not patterns:
                del patterns_of[principal]
        return AclTables(cells, counts, patterns_of)

    def _changed_cell(self, pattern: Pattern, before: tuple[Grants, ...]) -> tuple[Grants, ...]:
        codes = {(one.principal, one.host): list(one.codes) for one in before}
        for acl in self._added.get(pattern, ()):
            codes.setdefault((acl.principal, acl.host), []).append(_code(acl))
        for acl in self._removed.get(pattern, ()):
            codes[acl.principal, acl.host].remove(_code(acl))
        return tuple(_grants(principal, host, tuple(sorted(found))) for (principal, host), found in sorted(codes.items()) if found)


def pattern_of(acl: AccessControlEntryRecord) -> Pattern:
    """Returns the pattern of resources that the ACL is for."""
    return acl.pattern_type, acl.resource_type, acl.resource_name


def _code(acl: AccessControlEntryRecord) -> int:
    return acl.permission_type << 8 | acl.operation

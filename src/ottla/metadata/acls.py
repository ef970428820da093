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
    patterns_of: Mapping[tuple[str, str], frozenset[Pattern]] = field(default_factory=dict)
    """The patterns whose ACLs name the principal and host."""


NO_ACLS: Final = AclTables()


def is_there(tables: AclTables, acl: AccessControlEntryRecord) -> bool:
    """True when the tables have an equal ACL, whatever its id."""
    cell = tables.cells.get((acl.pattern_type, acl.resource_type, acl.resource_name))
    if cell is None:
        return False
    grants = _grants_in(cell, acl.principal, acl.host)
    return grants is not None and _code(acl) in grants.codes


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
    """The newest tables in the making. What changes is copied once between two calls of ``seal``: each large cell by itself."""

    def __init__(self, tables: AclTables) -> None:
        self._tables = tables
        self._is_changed = False
        self._cells: dict[Pattern, Cell] = {}
        self._counts: dict[int, dict[int, int]] = {}
        self._patterns: dict[tuple[str, str], set[Pattern]] = {}  # of the principals and hosts whose patterns have changed
        self._large: dict[Pattern, dict[tuple[str, str], Grants]] = {}  # the cells among these that have changed

    def add(self, acl: AccessControlEntryRecord) -> None:
        """Adds the ACL, which is in force in the next tables."""
        self._open()
        pattern, principal, host = pattern_of(acl), acl.principal, acl.host
        cell = self._cells.get(pattern, ())
        if not cell:
            self._count(pattern, 1)
        grants = _grants_in(cell, principal, host)
        if grants is None:
            self._patterns_of(principal, host).add(pattern)
            codes: tuple[int, ...] = (_code(acl),)
        else:
            codes = tuple(sorted((*grants.codes, _code(acl))))
        self._put(pattern, cell, _grants(principal, host, codes))

    def remove(self, acl: AccessControlEntryRecord) -> None:
        """Removes an ACL that was added before."""
        self._open()
        pattern, principal, host = pattern_of(acl), acl.principal, acl.host
        cell = self._cells[pattern]
        grants = _grants_in(cell, principal, host)
        assert grants is not None, "it was added"
        codes = list(grants.codes)
        codes.remove(_code(acl))
        if codes:
            self._put(pattern, cell, _grants(principal, host, tuple(codes)))
            return
        self._drop(pattern, cell, (principal, host))
        self._patterns_of(principal, host).discard(pattern)
        if pattern not in self._cells:
            self._count(pattern, -1)

    def seal(self) -> AclTables:
        """Returns the tables after all changes; they never change."""
        if self._is_changed:
            patterns_of = dict(self._tables.patterns_of)
            for key, patterns in self._patterns.items():
                if patterns:
                    patterns_of[key] = frozenset(patterns)
                else:
                    patterns_of.pop(key, None)
            self._tables = AclTables(self._cells, self._counts, patterns_of)
            self._is_changed, self._cells, self._counts, self._patterns, self._large = False, {}, {}, {}, {}
        return self._tables

    def _open(self) -> None:
        if not self._is_changed:
            self._is_changed = True
            self._cells = dict(self._tables.cells)
            self._counts = {resource_type: dict(found) for resource_type, found in self._tables.prefix_counts.items()}

    def _count(self, pattern: Pattern, change: int) -> None:
        """Notes that the pattern has come or gone."""
        pattern_type, resource_type, name = pattern
        if pattern_type == PatternType.PREFIXED:
            found = self._counts.setdefault(resource_type, {})
            found[len(name)] = found.get(len(name), 0) + change
            if not found[len(name)]:
                del found[len(name)]

    def _patterns_of(self, principal: str, host: str) -> set[Pattern]:
        key = principal, host
        patterns = self._patterns.get(key)
        if patterns is None:
            patterns = self._patterns[key] = set(self._tables.patterns_of.get(key, ()))
        return patterns

    def _put(self, pattern: Pattern, cell: Cell, grants: Grants) -> None:
        """Sets what the cell has of a principal and host."""
        key = grants[:2]
        if type(cell) is not tuple:
            self._own(pattern, cell)[key] = grants
            return
        after = (*(one for one in cell if one[:2] != key), grants) if cell else (grants,)
        if len(after) > FEW:
            self._cells[pattern] = self._large[pattern] = {one[:2]: one for one in after}
        else:
            self._cells[pattern] = _few(tuple(sorted(after)))

    def _drop(self, pattern: Pattern, cell: Cell, key: tuple[str, str]) -> None:
        """Removes what the cell has of a principal and host."""
        left: Cell
        if type(cell) is tuple:
            left = tuple(one for one in cell if one[:2] != key)
        else:
            left = self._own(pattern, cell)
            del left[key]
            if len(left) > FEW:
                return
            del self._large[pattern]
            left = tuple(sorted(left.values()))
        if left:
            self._cells[pattern] = _few(left)
        else:
            del self._cells[pattern]

    def _own(self, pattern: Pattern, cell: Cell) -> dict[tuple[str, str], Grants]:
        """Returns the large cell, which the caller may change."""
        large = self._large.get(pattern)
        if large is None:
            self._cells[pattern] = large = self._large[pattern] = dict(cell)  # type: ignore[arg-type]
        return large


def _grants_in(cell: Cell, principal: str, host: str) -> Grants | None:
    """Returns what the cell has of a principal and host."""
    if type(cell) is not tuple:
        return cell.get((principal, host))  # type: ignore[union-attr]
    for grants in cell:
        if grants.principal == principal and grants.host == host:
            return grants
    return None


def pattern_of(acl: AccessControlEntryRecord) -> Pattern:
    """Returns the pattern of resources that the ACL is for."""
    return acl.pattern_type, acl.resource_type, acl.resource_name


def _code(acl: AccessControlEntryRecord) -> int:
    return acl.permission_type << 8 | acl.operation

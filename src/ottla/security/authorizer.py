"""Whether a principal may do something: Kafka's StandardAuthorizer as a function of tables (KIP-11, KIP-290, KIP-679, KIP-801).

An ACL counts where its pattern covers the resource, its principal is the caller or ``User:*``, and its host is the caller's or
``*``. What one of them denies is denied, wherever else it is allowed. What none allows is denied, too; but where no ACL at all covers
the resource the operator's word for that case holds.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from ottla.messages.acl_codes import ANYBODY, WILDCARD, Operation, PatternType, ResourceType
from ottla.metadata.acls import EVERY_OPERATION, AclTables, Cell, Grants, Pattern
from ottla.security.principal import Principal

_LITERAL, _PREFIXED = int(PatternType.LITERAL), int(PatternType.PREFIXED)


class Asker(NamedTuple):
    """A principal and its host, as ACLs name both. ``keys`` are all the ways in which an ACL may name them."""

    principal: str
    host: str
    keys: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, principal: Principal, host: str) -> Asker:
        """Makes an asker; ``host`` is the address of its socket."""
        name, address = str(principal), java_host(host)
        return cls(name, address, ((name, address), (name, WILDCARD), (ANYBODY, address), (ANYBODY, WILDCARD)))


def allowed_operations(tables: AclTables, asker: Asker, resource_type: int, name: str, *, otherwise: bool) -> int:
    """Returns the operations that are allowed on the resource, as a bit field. ``otherwise`` holds where no ACL covers the resource."""
    allowed = denied = 0
    is_covered = False
    cells = tables.cells
    patterns = [(_LITERAL, resource_type, name), (_LITERAL, resource_type, WILDCARD)]
    for length in tables.prefix_counts.get(resource_type, ()):
        if length <= len(name):
            patterns.append((_PREFIXED, resource_type, name[:length]))
    for pattern in patterns:
        cell = cells.get(pattern)
        if cell is not None:
            is_covered = True
            for grants in _said(cell, asker):
                allowed |= grants.allowed
                denied |= grants.denied
    if not is_covered:
        return EVERY_OPERATION if otherwise else 0
    return allowed & ~denied


def is_allowed_anywhere(tables: AclTables, asker: Asker, operation: Operation, resource_type: ResourceType) -> bool:
    """True when some name of a resource of that type exists with which ACLs allow the operation (KIP-679).

    Where one denies it for every name, no; else a pattern that allows it counts unless one that is as wide, or wider, denies it.
    """
    bit = 1 << operation
    patterns = frozenset[Pattern]().union(*(tables.patterns_of.get(key, ()) for key in asker.keys))

    def denies(pattern_type: PatternType, name: str) -> bool:
        cell = tables.cells.get((pattern_type, resource_type, name))
        return cell is not None and any(grants.denied & bit for grants in _said(cell, asker))

    if denies(PatternType.LITERAL, WILDCARD):
        return False
    lengths = tables.prefix_counts.get(resource_type, {})
    for pattern in patterns:
        pattern_type, found_type, name = pattern
        if found_type != resource_type or not any(grants.allowed & bit for grants in _said(tables.cells[pattern], asker)):
            continue
        if pattern_type == PatternType.LITERAL and name == WILDCARD:
            return True
        if pattern_type == PatternType.LITERAL and denies(PatternType.LITERAL, name):
            continue
        if not any(length <= len(name) and denies(PatternType.PREFIXED, name[:length]) for length in lengths):
            return True
    return False


def java_host(host: str) -> str:
    """Returns an address as Java writes it, and ACLs name it: IPv6 with all its groups and without a zone. Other text stays as it is."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    packed = address.packed
    return ":".join(f"{packed[at] << 8 | packed[at + 1]:x}" for at in range(0, 16, 2))


def _said(cell: Cell, asker: Asker) -> list[Grants]:
    """Returns what the cell says of the caller."""
    if type(cell) is tuple:
        principal, host, _ = asker
        return [
            grants
            for grants in cell
            if (grants.principal == principal or grants.principal == ANYBODY) and (grants.host == WILDCARD or grants.host == host)
        ]
    return [grants for key in asker.keys if (grants := cell.get(key)) is not None]  # type: ignore[union-attr]

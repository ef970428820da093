"""What a principal may do with a resource: without an authorizer, everything. The gate asks of the cluster, handlers of what requests name.

Operations are reported as a bit field: a bit is set for each operation that is defined for the type of resource and allowed
(KIP-430); Kafka's numbers of operations are the bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, Protocol

from ottla.security.principal import Principal


class Operation(IntEnum):
    """Kafka's AclOperation."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """Kafka's ResourceType, of what operations are asked for."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


_O = Operation
OPERATIONS: Final[Mapping[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset({_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
    ResourceType.GROUP: frozenset({_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
    ResourceType.CLUSTER: frozenset(
        {_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE}
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({_O.DESCRIBE, _O.WRITE}),
}
"""What is defined for each type."""
CLUSTER: Final = "kafka-cluster"
"""The name of the one resource of its type."""
NOT_ASKED: Final = -(2**31)


class Rights(Protocol):
    """What one principal may do from one address."""

    def allowed(self, resource_type: ResourceType, name: str) -> int:
        """The operations that are allowed on the resource, as a bit field."""
        ...

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether this one operation is allowed."""
        ...


class Authorizer(Protocol):
    """Who decides what principals may do."""

    def rights(self, principal: Principal, host: str) -> Rights:
        """Those of a connection: they follow changes of the rules."""
        ...


class AllowAll:
    """An authorizer, and the rights of everybody: everything."""

    __slots__ = ()

    def rights(self, principal: Principal, host: str) -> Rights:
        return self

    def allowed(self, resource_type: ResourceType, name: str) -> int:
        return _ALL[resource_type]

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return bool(_ALL[resource_type] >> operation & 1)


_ALL: Final = {resource_type: sum(1 << operation for operation in defined) for resource_type, defined in OPERATIONS.items()}

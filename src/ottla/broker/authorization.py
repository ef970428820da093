"""What a client may do with a resource, as the bit field of authorized operations: without an authorizer, everything.

A bit is set for each operation that is defined for the type of resource (KIP-430); Kafka's numbers of operations are the bits.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


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


def _all(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


_O = Operation
TOPIC_OPERATIONS: Final = _all(_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)
GROUP_OPERATIONS: Final = _all(_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)
CLUSTER_OPERATIONS: Final = _all(
    *(_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE)
)
OPERATIONS_NOT_ASKED: Final = -(2**31)

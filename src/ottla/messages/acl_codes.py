"""Kafka's numbers for what ACLs speak of: types of resources, of patterns, operations and permissions (KIP-11, KIP-290)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.types import NamedInt


class Operation(NamedInt):
    """Kafka's AclOperation. UNKNOWN and ANY are of filters alone; ALL is every operation of the resource's type."""

    UNKNOWN = 0
    """One that this client does not know."""
    ANY = 1
    """In a filter: every operation."""
    ALL = 2
    """Every operation that the type of resource has."""
    READ = 3
    """To fetch records of a topic; to join a group, and to commit in it."""
    WRITE = 4
    """To produce to a topic; to use a transactional id."""
    CREATE = 5
    """To create topics: of this name, or with CLUSTER any."""
    DELETE = 6
    """To delete a topic, its records, or a group."""
    ALTER = 7
    """To add partitions to a topic, or to change ACLs and users (CLUSTER)."""
    DESCRIBE = 8
    """To see that it is there, its partitions, offsets and members; every other operation on it includes this one."""
    CLUSTER_ACTION = 9
    """What brokers ask each other."""
    DESCRIBE_CONFIGS = 10
    """To see its configuration."""
    ALTER_CONFIGS = 11
    """To change its configuration."""
    IDEMPOTENT_WRITE = 12
    """To produce with idempotence; WRITE on a topic is enough."""
    CREATE_TOKENS = 13
    """To make tokens for a user."""
    DESCRIBE_TOKENS = 14
    """To see a user's tokens."""
    TWO_PHASE_COMMIT = 15
    """To keep a transaction open without a time limit."""


class ResourceType(NamedInt):
    """Kafka's ResourceType. UNKNOWN and ANY are of filters alone."""

    UNKNOWN = 0
    """One that this client does not know."""
    ANY = 1
    """In a filter: every type."""
    TOPIC = 2
    """A topic, by its name."""
    GROUP = 3
    """A group, by its id."""
    CLUSTER = 4
    """The cluster; its one resource is named ``kafka-cluster``."""
    TRANSACTIONAL_ID = 5
    """The transactional id of a producer."""
    DELEGATION_TOKEN = 6
    """A token, by its id."""
    USER = 7
    """A user whose tokens others may make and see: ``User:alice``."""


class PatternType(NamedInt):
    """The kind of a resource's name: literal, or a prefix. Only filters have UNKNOWN, ANY and MATCH."""

    UNKNOWN = 0
    """One that this client does not know."""
    ANY = 1
    """In a filter: every pattern."""
    MATCH = 2
    """In a filter: every pattern that covers the resource of this name."""
    LITERAL = 3
    """The name itself; ``*`` is every name."""
    PREFIXED = 4
    """Every name that starts with it."""


class Permission(NamedInt):
    """Kafka's AclPermissionType. UNKNOWN and ANY are of filters alone."""

    UNKNOWN = 0
    """One that this client does not know."""
    ANY = 1
    """In a filter: either."""
    DENY = 2
    """Refuses, whatever other ACLs allow."""
    ALLOW = 3
    """Allows, where no other ACL denies."""


_O = Operation
OPERATIONS: Final[Mapping[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset({_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
    ResourceType.GROUP: frozenset({_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
    ResourceType.CLUSTER: frozenset(
        {_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE}
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({_O.DESCRIBE}),
    ResourceType.USER: frozenset({_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS}),
}
"""What is defined for each type."""
CLUSTER: Final = "kafka-cluster"
"""The name of the one resource of its type."""
WILDCARD: Final = "*"
"""As a literal name, every name; as a host, every host."""
ANYBODY: Final = "User:*"
"""As an ACL's principal, every user."""

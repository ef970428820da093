"""One request of each API that names a resource wherever it can, made from the declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.messages.registry import Api
from ottla.metadata.image import RESOURCE_TOPIC
from ottla.records.builder import BatchBuilder
from ottla.wire.schema import FIELDS, ZERO_UUID, Field, Request

NUMBERS: Final[Mapping[str, Any]] = {
    "acks": -1, "timeout_ms": 100, "max_wait_ms": 0, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20, "replica_id": -1,
    "num_partitions": 1, "replication_factor": 1, "resource_type": RESOURCE_TOPIC, "resource_type_filter": ResourceType.TOPIC,
    "pattern_type_filter": PatternType.ANY, "resource_pattern_type": PatternType.LITERAL, "operation": Operation.READ,
    "permission_type": Permission.ALLOW, "endpoint_type": 1, "count": 2, "timestamp": -1, "current_leader_epoch": -1,
    "session_epoch": -1, "last_fetched_epoch": -1, "producer_id": 1, "verify_only": True, "validate_only": False,
    "allow_auto_topic_creation": True, "isolation_level": 0, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
}  # fmt: skip
EMPTY: Final = frozenset({"forgotten_topics_data", "assignments", "replicas", "configuration_keys", "isr", "state_filters"})
"""What is left out: a request makes sense without."""


def request_of(api: Api, version: int, name: str, topic_id: bytes) -> Request:
    """The request names ``name`` as topic, group and transactional id; where topics go by ids it has the id."""
    made = filled(api.request, version, name, topic_id)
    assert isinstance(made, Request)
    change = CHANGES.get(api.name)
    if change is not None:
        change(made, version)
    return made


def filled(cls: type, version: int, name: str, topic_id: bytes) -> Any:
    values = {
        key: value(key, field, version, name, topic_id)
        for key, field in FIELDS[cls].items()
        if field.is_in(version) and key not in EMPTY and (field.tag is None)
    }
    return cls(**values)


def value(key: str, field: Field, version: int, name: str, topic_id: bytes) -> Any:
    """Of one field."""
    if field.kind == "array":
        element = field.element
        one = value(key, element, version, name, topic_id) if isinstance(element, Field) else filled(element, version, name, topic_id)
        return [one]
    if field.kind == "struct":
        return filled(field.element, version, name, topic_id)
    if field.kind == "string":
        return name
    if field.kind == "uuid":
        return topic_id if "topic" in key else ZERO_UUID
    if field.kind == "records":
        batch = BatchBuilder()
        batch.append(None, b"v", timestamp_ms=1)
        return memoryview(bytearray(batch.build()))
    if field.kind == "binary":
        return b""
    return NUMBERS.get(key, True if field.kind == "boolean" else field.default)


def _produce(request: Any, version: int) -> None:
    request.transactional_id = None


def _init(request: Any, version: int) -> None:
    request.transaction_timeout_ms, request.producer_id, request.producer_epoch = 1000, -1, -1


def _by_name(request: Any, version: int) -> None:
    for topic in request.topics:
        topic.topic_id = ZERO_UUID


CHANGES: Final[Mapping[str, Callable[[Any, int], None]]] = {
    "Produce": _produce, "InitProducerId": _init, "Metadata": _by_name, "DeleteTopics": _by_name,
}  # fmt: skip
"""What the fields of a request alone do not say."""

"""The largest requests of every API: for each array in its request, as many elements as the decoder lets through.

They are made from the declarations, so that a new API or array is covered without a line here. ``same`` repeats one element, which
exists; ``distinct`` names another one each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ottla.broker.handlers import SERVICES
from ottla.broker.roles import Role
from ottla.messages.api_keys import ApiKey
from ottla.messages.registry import Api
from ottla.wire.decoder import REQUEST_ELEMENTS_MAX
from ottla.wire.schema import FIELDS, Field, Request

TOPIC, PARTITIONS, GROUP, NODE_ID = "t", 50, "g", 1
VERSIONS: Final = {ApiKey.JOIN_GROUP: 3}
"""Where the newest version would be answered before its array is looked at."""
TEXTS: Final = {
    "topic": TOPIC, "name": TOPIC, "topic_name": TOPIC, "resource_name": TOPIC, "topic_names": TOPIC, "group_id": GROUP, "groups": GROUP,
    "member_id": "", "protocol_type": "consumer", "entity_type": "user", "entity_name": "u", "key": "producer_byte_rate",
    "configuration_keys": "retention.ms", "path": "/data", "feature": "metadata.version", "states_filter": "Stable",
    "types_filter": "classic", "state_filters": "Empty", "value": "1", "committed_metadata": "",
}  # fmt: skip
NUMBERS: Final = {
    "resource_type": 2, "num_partitions": -1, "replication_factor": -1, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
    "count": PARTITIONS + 1, "generation_id_or_member_epoch": -1, "generation_id": -1, "acks": -1, "min_bytes": 1, "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 10, "timestamp": -1, "match_type": 2, "response_partition_limit": 2000, "value": 1e9, "upgrade_type": 1,
    "retention_time_ms": -1, "committed_offset": 5, "broker_ids": NODE_ID, "replicas": NODE_ID,
}  # fmt: skip
ELEMENTS_MAX: Final = {ApiKey.OFFSET_COMMIT: 20_000}
"""Where a request of more is refused before it is worked on: so many offsets cannot be one batch of the group's log."""
PLACES: Final = frozenset({"partition_index", "partition", "index", "partitions", "partition_indexes"})


@dataclass(frozen=True, slots=True)
class Largest:
    """One array of one API's request, filled."""

    api: Api
    version: int
    path: tuple[str, ...]
    is_distinct: bool

    @property
    def name(self) -> str:
        return f"{self.api.name} v{self.version} {'.'.join(self.path)} {'distinct' if self.is_distinct else 'same'}"

    @property
    def count_decoded(self) -> int:
        """Elements that the array can have in a request that is decoded."""
        one, two = (_elements(self.request(count, bytes(16))) for count in (1, 2))
        return (REQUEST_ELEMENTS_MAX - one) // (two - one) + 1

    @property
    def count_worked_on(self) -> int:
        """Elements that it can have in one that is not refused for their number alone."""
        return min(self.count_decoded, ELEMENTS_MAX.get(ApiKey(self.api.key), REQUEST_ELEMENTS_MAX))

    def request(self, count: int, topic_id: bytes) -> Request:
        made: Request = _Filling(self, count, topic_id).struct(self.api.request, self.path, 0)
        return made


def all_largest() -> Iterator[Largest]:
    for key, service in SERVICES[Role.BROKER].items():
        version = VERSIONS.get(ApiKey(key), service.version_max)
        for path in _paths(service.api.request, version):
            yield Largest(service.api, version, path, is_distinct=False)
            yield Largest(service.api, version, path, is_distinct=True)


@dataclass(frozen=True, slots=True)
class _Filling:
    largest: Largest
    count: int
    topic_id: bytes

    def struct(self, cls: Any, path: tuple[str, ...], at: int) -> Any:
        """The ``at``-th ``cls``; the array that ``path`` leads to from here is filled, and every other one has a single element."""
        values: dict[str, Any] = {}
        is_named = not self.largest.is_distinct or bool(path)  # its own name has been given
        for name, field in FIELDS[cls].items():
            if not field.is_in(self.largest.version) or field.kind in ("struct", "records"):
                continue
            if field.kind != "array":
                is_key = (not is_named and (field.kind in ("string", "uuid") or name in PLACES)) or name == "entity_name"
                is_named = is_named or (is_key and field.kind != "uuid")
                values[name] = self.scalar(field, name, at if is_key else -1)
            elif cls is self.largest.api.request and path[0] != name:
                values[name] = None if field.is_nullable_in(self.largest.version) else []
            else:
                values[name] = self.array(field, name, path[1:] if path[:1] == (name,) else None, at)
        return cls(**values)

    def array(self, field: Field, name: str, path: tuple[str, ...] | None, at: int) -> list[Any]:
        """``path`` goes on from its elements, and is empty when this is the array to fill, None when it is another one."""
        numbers = range(self.count) if path == () else [at]
        if isinstance(field.element, Field):
            return [self.scalar(field.element, name, number if path == () and self.largest.is_distinct else -1) for number in numbers]
        return [self.struct(field.element, ("",) if path is None else path, number) for number in numbers]

    def scalar(self, field: Field, name: str, at: int) -> Any:
        """``at`` makes it the name of another thing each time, unless it is -1."""
        match field.kind:
            case "string":
                if name == "name" and self.largest.api.key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
                    name = "configuration_keys"
                if (name == "name" and self.largest.api.key == ApiKey.DELETE_TOPICS) or (name not in TEXTS and at < 0 and field.nullable):
                    return None
                return TEXTS.get(name, "x") + (str(at) if at >= 0 else "")
            case "uuid":
                return at.to_bytes(16, "big") if at >= 0 else self.topic_id
            case "binary":
                return b"x"
            case "boolean":
                return name == "validate_only" and self.largest.api.key == ApiKey.CREATE_TOPICS
        if name in PLACES:
            return at % PARTITIONS if at >= 0 else 0
        return NUMBERS.get(name, field.default)


def _paths(cls: type, version: int) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, field in FIELDS[cls].items():
        if field.kind == "array" and field.is_in(version):
            found.append((name,))
            if not isinstance(field.element, Field):
                found += [(name, *rest) for rest in _paths(field.element, version)]
    return found


def _elements(value: Any) -> int:
    """Of all arrays in it."""
    if isinstance(value, list):
        return len(value) + sum(map(_elements, value))
    return sum(_elements(getattr(value, name)) for name in FIELDS.get(type(value), ()))

"""Well-formed requests of which one number, text or id is hostile: made from the declarations, for every API of a listener."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.hostile.case import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, Case
from tests.hostile.wire_bytes import request

from ottla.broker.handlers import SERVICES
from ottla.broker.roles import Role
from ottla.messages.api_keys import ApiKey
from ottla.wire.schema import FIELDS, Field

NAMES: Final = {"topic": "__cluster_metadata", "topic_name": "__cluster_metadata", "name": "__cluster_metadata"}
HOSTILE: Final[dict[str, tuple[Any, ...]]] = {
    "int8": (-1, 127, -128), "int16": (-1, 32767, -32768), "uint16": (0, 65535), "int32": (-1, INT_MAX, INT_MIN), "uint32": (2**32 - 1,),
    "int64": (-1, LONG_MAX, LONG_MIN), "float64": (float("nan"), float("inf"), -1.0), "boolean": (True,), "uuid": (b"\xff" * 16,),
    "string": ("", "x" * 32767, "../../etc/passwd", "a\0b"), "binary": (b"", b"\xa5" * 1000), "records": (b"\xa5" * 1000,),
}  # fmt: skip
ALTERING: Final = {ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CLIENT_QUOTAS}
"""Quotas and settings that could hold up whoever is served besides, by mere luck."""
BETWEEN_NODES: Final = (ApiKey.FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH)
"""Of the brokers' own APIs those that other brokers use."""


def of_controllers() -> Iterator[Case]:
    """What is served on the controllers' listener: quorum, registration, heartbeats, ISRs, directories, envelopes, forwarded requests."""
    yield from _cases([key for key in SERVICES[Role.CONTROLLER] if key not in ALTERING], Role.CONTROLLER)


def of_brokers() -> Iterator[Case]:
    """What brokers ask of each other, on the brokers' listener."""
    yield from _cases(BETWEEN_NODES, Role.BROKER)


def _cases(keys: Any, role: Role) -> Iterator[Case]:
    for key in sorted(keys):
        api = SERVICES[role][key].api
        for version in sorted({api.version_min, api.version_max}):
            for path, field in _leaves(api.request, version):
                for value in HOSTILE.get(field.kind, ()):
                    if isinstance(value, str) and len(value) > 32766 and not api.is_flexible(version):
                        continue
                    made = _filled(api.request, version, path, value)
                    name = f"{api.name} v{version} {'.'.join(path)}={str(value)[:20]!r}"
                    yield Case(name, request(made, version), is_answered=False)  # some may wait as they say


def _leaves(cls: Any, version: int, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Field]]:
    for name, field in FIELDS[cls].items():
        if not field.is_in(version):
            continue
        if field.kind in ("array", "struct"):
            if isinstance(field.element, Field):
                yield (*path, name), field.element
            else:
                yield from _leaves(field.element, version, (*path, name))
        else:
            yield (*path, name), field


def _filled(cls: Any, version: int, path: tuple[str, ...], value: Any) -> Any:
    """One element in each array; the leaf at ``path`` has the value."""
    values: dict[str, Any] = {}
    for name, field in FIELDS[cls].items():
        if not field.is_in(version):
            continue
        is_here = bool(path) and path[0] == name
        rest = path[1:] if is_here else ()
        if field.kind == "array":
            if isinstance(field.element, Field):
                values[name] = [value if is_here else field.element.default]
            else:
                values[name] = [_filled(field.element, version, rest, value)]
        elif field.kind == "struct":
            if is_here or not field.is_tagged_in(version):
                values[name] = _filled(field.element, version, rest, value)
        elif is_here:
            values[name] = value
        elif name in NAMES:
            values[name] = NAMES[name]
    return cls(**values)

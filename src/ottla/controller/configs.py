"""Dynamic configuration: what AlterConfigs and IncrementalAlterConfigs decide over an image.

A resource's values are the records of its name: a topic's, a group's, a client-metrics subscription's, one broker's, or,
under the empty name, all brokers'. Each resource is judged by itself, and the complete set that it would have then: one bad
value leaves all of them as they were.

Source: KIP-226 (brokers), KIP-339 (incremental), KIP-714 (client metrics), KIP-848 (groups).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from msgspec import Struct

from ottla.config import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    BrokerConfig,
    ConfigKey,
    ConfigType,
    Scope,
    find_broker_key,
    nearest,
    parse_topic_configs,
)
from ottla.config.broker import VALUE_ELSEWHERE
from ottla.config.definition import parse_list
from ottla.config.keys.dynamic import is_of_store
from ottla.config.keys.server import PER_IP, PER_IP_OVERRIDES
from ottla.controller.broker_values import check_addresses, check_broker_values
from ottla.controller.decided import Recorded
from ottla.controller.eligibility import end_eligibility
from ottla.controller.features import ELR_VERSION, MIN_ISR, check_min_isr_change
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import ConfigRecord
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP, RESOURCE_TOPIC, ClusterImage, EndpointImage
from ottla.types import topic_name_problem

VALUE_BYTES_MAX: Final = 32767

_KEYS: Final[Mapping[int, Mapping[str, ConfigKey]]] = {
    RESOURCE_TOPIC: TOPIC_KEYS,
    RESOURCE_BROKER: BROKER_KEYS,
    RESOURCE_CLIENT_METRICS: CLIENT_METRICS_KEYS,
    RESOURCE_GROUP: GROUP_KEYS,
}
_MATCH_NAMES: Final = frozenset(
    {"client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address", "client_source_port"}
)


class Operation(IntEnum):
    """Kafka's numbers for what is done with a value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(Struct, frozen=True):
    """One value of an incremental change. ``value`` is None only for DELETE."""

    name: str
    operation: Operation
    value: str | None


def replace_configs(
    image: ClusterImage, resource_type: int, name: str, values: Mapping[str, str | None], *, config: BrokerConfig
) -> Recorded:
    """Replaces the resource's values by exactly these; KafkaError with the code that Kafka gives."""
    _check_resource(image, resource_type, name, config)
    wanted: dict[str, str] = {}
    for key, value in values.items():
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"config {key[:200]!r} has no value")
        wanted[key] = value
    return _alteration(image, resource_type, name, wanted, config, given=wanted)


def change_configs(
    image: ClusterImage, resource_type: int, name: str, changes: Sequence[ConfigChange], *, config: BrokerConfig
) -> Recorded:
    """Changes the resource's values one by one; KafkaError with the code that Kafka gives."""
    _check_resource(image, resource_type, name, config)
    if len({change.name for change in changes}) != len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a config is listed twice")
    wanted = dict(image.configs.get((resource_type, name), {}))
    for change in changes:
        if change.operation is Operation.DELETE:
            wanted.pop(change.name, None)
            continue
        if change.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"config {change.name[:200]!r} has no value")
        if change.operation is Operation.SET:
            wanted[change.name] = change.value
        else:
            wanted[change.name] = _edited(resource_type, change, wanted.get(change.name), config)
    given = {change.name for change in changes if change.operation is Operation.SET}
    return _alteration(image, resource_type, name, wanted, config, given=given)


def _edited(resource_type: int, change: ConfigChange, current: str | None, config: BrokerConfig) -> str:
    """Returns a list with parts added or taken away; it starts as what the resource has now, override or default."""
    key = _find(resource_type, change.name)
    if key is None:
        raise _unknown(resource_type, change.name)
    if key.type is not ConfigType.LIST:
        text = f"{change.operation.name} needs a list, and {change.name} is of type {key.type.name.lower()}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    if current is not None:
        parts = parse_list(current)
    else:
        parts = list((config[key.name] if resource_type == RESOURCE_BROKER else config.topic_default(key)) or ())
    edits = parse_list(change.value or "")
    if change.operation is Operation.APPEND:
        parts += [part for part in dict.fromkeys(edits) if part not in parts]
    else:
        parts = [part for part in parts if part not in edits]
    return ",".join(parts)


def _alteration(
    image: ClusterImage, resource_type: int, name: str, wanted: dict[str, str], config: BrokerConfig, *, given: Collection[str]
) -> Recorded:
    current = image.configs.get((resource_type, name), {})
    changed = {key: wanted.get(key) for key in sorted(current.keys() | wanted.keys()) if current.get(key) != wanted.get(key)}
    _check_values(image, resource_type, name, wanted, changed, config)
    again = (key for key in given if resource_type == RESOURCE_BROKER and key not in changed and is_of_store(key))
    written = changed | {key: wanted[key] for key in sorted(again)}  # the same path, and another file: it is read again
    records = tuple(ConfigRecord(resource_type, name, key, value) for key, value in written.items())
    if MIN_ISR in changed and resource_type in (RESOURCE_TOPIC, RESOURCE_BROKER) and image.features.get(ELR_VERSION, 0) > 0:
        return Recorded((*records, *end_eligibility(image, name if resource_type == RESOURCE_TOPIC else "")))
    return Recorded(records)


def _check_resource(image: ClusterImage, resource_type: int, name: str, config: BrokerConfig) -> None:
    if resource_type not in _KEYS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no configuration")
    if resource_type == RESOURCE_BROKER:
        if name and not (name.isascii() and name.isdigit()):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name[:80]!r} is not a broker's id")
        if name and (len(name) > 10 or int(name) not in (config.node_id, *image.brokers, *image.controllers)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"this is broker {config.node_id}, and no broker or controller has the id {name[:80]}"
            )
        return
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "only broker configs have cluster-wide defaults, under the empty name")
    if resource_type == RESOURCE_TOPIC:
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:80]!r}: {problem}")
        if name not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")


def _check_values(
    image: ClusterImage, resource_type: int, name: str, wanted: Mapping[str, str], changed: Mapping[str, str | None], config: BrokerConfig
) -> None:
    for key, value in changed.items():
        if value is not None and len(value.encode("utf-8", "surrogatepass")) > VALUE_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the value of {key[:200]} is longer than {VALUE_BYTES_MAX} bytes")
    if resource_type == RESOURCE_TOPIC:
        parse_topic_configs(wanted)
    elif resource_type == RESOURCE_BROKER:
        check_min_isr_change(image, name, changed)
        node_id = int(name or -1)
        node = image.brokers.get(node_id) or image.controllers.get(node_id)
        values = {key: value for key, value in changed.items() if value is not None}
        _check_broker_values(values, config, {} if node is None else node.endpoints, is_default=not name)
        if PER_IP in changed or PER_IP_OVERRIDES in changed:
            check_addresses(image, name, wanted, config)
    elif resource_type == RESOURCE_GROUP:
        _check_group_values(wanted, config)
    else:
        _check_client_metrics(wanted)


def _check_broker_values(
    values: Mapping[str, str], config: BrokerConfig, endpoints: Mapping[str, EndpointImage], *, is_default: bool
) -> None:
    """Raises INVALID_REQUEST for all of it, as Kafka answers for brokers. Unknown keys are kept, for the clients that use them."""
    parsed: dict[str, Any] = {}
    for name, value in values.items():
        key = find_broker_key(name)
        if key is None:
            continue
        if key.scope is Scope.READ_ONLY:
            finer = next((key for key, others in VALUE_ELSEWHERE.items() if name in {other for other, _ in others}), None)
            instead = f", or set {finer}, which takes precedence and can be changed" if finer else ""
            text = f"{name} cannot be changed while the broker runs; set it in the broker's file{instead}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if is_default and key.scope is Scope.PER_BROKER:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is set for one broker, by its id, and not for all of them")
        try:
            parsed[name] = key.parse(value)
        except KafkaError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None
    check_broker_values(parsed, config, endpoints)


def _check_group_values(values: Mapping[str, str], config: BrokerConfig) -> None:
    parsed = {}
    for name, value in values.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise _unknown(RESOURCE_GROUP, name)
        parsed[name] = key.parse(value)
        kind, _, rest = name.partition(".")
        low, high = (f"group.{kind}.{bound}.{rest.removeprefix('num.')}" for bound in ("min", "max"))
        if low in BROKER_KEYS and parsed[name] < config[low]:
            raise key.refuse(value, f"is below {low}={config[low]}")
        if high in BROKER_KEYS and parsed[name] > config[high]:
            raise key.refuse(value, f"is above {high}={config[high]}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = (f"{kind}.{name}" for name in ("session.timeout.ms", "heartbeat.interval.ms"))
        session_ms, heartbeat_ms = (parsed.get(name, config[f"group.{name}"]) for name in (session, heartbeat))
        if session_ms <= heartbeat_ms:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{session}={session_ms} must be above {heartbeat}={heartbeat_ms}")


def _check_client_metrics(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            raise _unknown(RESOURCE_CLIENT_METRICS, name)
        try:
            parsed = key.parse(value)
        except KafkaError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None
        for item in parsed if name == "match" else ():
            if item.partition("=")[0].strip() not in _MATCH_NAMES or "=" not in item:
                raise key.refuse(value, f"must be name=pattern, where name is one of {', '.join(sorted(_MATCH_NAMES))}")


def _find(resource_type: int, name: str) -> ConfigKey | None:
    return find_broker_key(name) if resource_type == RESOURCE_BROKER else _KEYS[resource_type].get(name)


def _unknown(resource_type: int, name: str) -> KafkaError:
    """Returns the error, with the code that Kafka gives for this type of resource."""
    code = ErrorCode.INVALID_CONFIG if resource_type in (RESOURCE_TOPIC, RESOURCE_GROUP) else ErrorCode.INVALID_REQUEST
    hint = nearest(name, _KEYS[resource_type])
    return KafkaError(code, f"unknown config {name[:200]!r}" + (f"; did you mean {hint!r}?" if hint else ""))

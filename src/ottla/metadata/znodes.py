"""The znodes of a cluster: their paths, and what they say, as Apache Kafka 3.9 writes and reads it in ZooKeeper mode.

What is encoded here is byte for byte what Kafka would write, keys in the order of its maps; what is decoded may be of any version that
Kafka 3.9 reads. DecodeError for data that says something else. Source: Kafka 3.9's ZkData, from which the test's golden vectors come.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from ottla.config.forms import SECURITY_PROTOCOLS
from ottla.errors import DecodeError
from ottla.metadata.image import EndpointImage
from ottla.metadata.java_order import in_java_order, in_scala_order
from ottla.types import uuid_bytes, uuid_text

BROKERS: Final = "/brokers"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
SEQUENCE_ID: Final = "/brokers/seqid"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "/log_dir_event_notification/log_dir_event_"
PRODUCER_IDS: Final = "/latest_producer_id_block"
FEATURE: Final = "/feature"
CONSUMERS: Final = "/consumers"
PERSISTENT: Final = (
    *(CONSUMERS, BROKER_IDS, TOPICS, CONFIG_CHANGES, DELETE_TOPICS, SEQUENCE_ID, ISR_CHANGES, PRODUCER_IDS, LOG_DIR_EVENTS),
    *("/config/topics", "/config/clients", "/config/users", "/config/brokers", "/config/ips"),
)
"""What every cluster has from its first start on, with the parents of each."""
DEFAULT_ENTITY: Final = "<default>"
NUMBER_MAX: Final = (1 << 31) - 1
"""The highest id of a broker, index of a partition, or epoch."""
PORT_MAX: Final = (1 << 16) - 1
LEVEL_MAX: Final = (1 << 15) - 1
"""The highest level of a feature."""
NO_CONTROLLER_EPOCH: Final = 0
"""Before the first election."""
_NOT_IN_NAMES: Final = re.compile("[/\\0-\\x1f\\x7f-\\x9f\\ud800-\\uf8ff\\ufff0-\\uffff\\U00010000-\\U0010ffff]")
_ENDPOINT: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}"


def state_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}/state"


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def sanitized(name: str) -> str:
    """Returns a user's or client's name as part of a path."""
    return quote(name, safe="").replace("~", "%7E")


def unsanitized(name: str) -> str:
    return unquote(name)


def can_be_named(name: str) -> bool:
    """True when a znode can have that name: ZooKeeper allows no slash, no control character and nothing that is not text."""
    return name not in ("", ".", "..") and not _NOT_IN_NAMES.search(name)


def encode_json(value: Any) -> bytes:
    """Encodes the value as Kafka's Jackson does."""
    return msgspec.json.encode(value)


def json_object(data: bytes, what: str) -> dict[str, Any]:
    """Decodes a JSON object. DecodeError for data that is none."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"{what}: {error}") from None
    if not isinstance(found, dict):
        raise DecodeError(f"{what}: it is no JSON object")
    return found


class Reading:
    """A reader of one znode's JSON. It raises a DecodeError that names the znode for a missing value or a wrong type."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyError | TypeError | ValueError | AttributeError):
            raise DecodeError(f"{self._what}: {error!r}") from error


# -- topics


@dataclass(frozen=True, slots=True)
class TopicZnode:
    """The assignment of a topic. ``topic_id`` is None in what a Kafka before 2.8 wrote."""

    topic_id: bytes | None
    partitions: Mapping[int, Sequence[int]]
    adding: Mapping[int, Sequence[int]] = field(default_factory=dict)
    removing: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def encode(self) -> bytes:
        tables = {name: _by_text(replicas) for name, replicas in self._tables()}
        found: dict[str, Any] = {"partitions": tables["partitions"]}
        if self.topic_id is not None:
            found["topic_id"] = uuid_text(self.topic_id)
        return encode_json(found | {"adding_replicas": tables["adding"], "removing_replicas": tables["removing"], "version": 3})

    def _tables(self) -> list[tuple[str, Mapping[int, Sequence[int]]]]:
        return [("partitions", self.partitions), ("adding", self.adding), ("removing", self.removing)]

    @classmethod
    def decode(cls, data: bytes, topic: str) -> TopicZnode:
        found = json_object(data, topic_path(topic))
        with Reading(topic_path(topic)):
            topic_id = found.get("topic_id")
            partitions, adding, removing = (
                {_index(text): _replicas(nodes) for text, nodes in found.get(name, {}).items()}
                for name in ("partitions", "adding_replicas", "removing_replicas")
            )
            known_id = None if topic_id is None else uuid_bytes(topic_id)
            return cls(None if known_id == bytes(16) else known_id, partitions, adding, removing)
        raise AssertionError("it returns or raises")


def number_of(name: str) -> int | None:
    """Returns the number that a znode's name is: of a broker, or of a partition; None for any other name."""
    number = int(name) if name.isascii() and name.isdigit() else NUMBER_MAX + 1
    return number if number <= NUMBER_MAX else None


def _index(text: str) -> int:
    index = number_of(text)
    if index is None:
        raise ValueError(f"{text[:20]!r} is no partition")
    return index


def _replicas(nodes: Any) -> tuple[int, ...]:
    if not isinstance(nodes, list) or any(type(node) is not int or not 0 <= node <= NUMBER_MAX for node in nodes):
        raise ValueError("replicas are a list of the ids of brokers")
    if len(set(nodes)) < len(nodes):
        raise ValueError("a broker is listed twice")
    return tuple(nodes)


def _by_text(replicas: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {text: list(replicas[int(text)]) for text in in_scala_order(str(index) for index, nodes in sorted(replicas.items()) if nodes)}


@dataclass(frozen=True, slots=True)
class StateZnode:
    """The leader and the ISR of a partition; the znode's version is the partition epoch. ``controller_epoch`` is the writer's."""

    leader: int
    leader_epoch: int
    isr: Sequence[int]
    controller_epoch: int
    is_recovering: bool = False

    def encode(self) -> bytes:
        found: dict[str, Any] = {"controller_epoch": self.controller_epoch, "leader": self.leader, "version": 1}
        if self.is_recovering:
            found["leader_recovery_state"] = 1
        return encode_json(found | {"leader_epoch": self.leader_epoch, "isr": list(self.isr)})

    @classmethod
    def decode(cls, data: bytes, what: str) -> StateZnode:
        found = json_object(data, what)
        with Reading(what):
            state = cls(
                int(found["leader"]), int(found["leader_epoch"]), _replicas(found["isr"]), int(found["controller_epoch"]),
                found.get("leader_recovery_state", 0) == 1,
            )  # fmt: skip
            if not (-NUMBER_MAX <= state.leader <= NUMBER_MAX and 0 <= state.leader_epoch < NUMBER_MAX):
                raise ValueError("a number is out of its range")
            return state
        raise AssertionError("it returns or raises")


# -- brokers and the controller


@dataclass(frozen=True, slots=True)
class BrokerZnode:
    """The addresses of a broker. Old clients read ``host`` and ``port``, which are the first plaintext listener's."""

    endpoints: Sequence[EndpointImage]
    rack: str | None
    timestamp_ms: int
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def encode(self) -> bytes:
        plain = next((end for end in self.endpoints if end.security_protocol == 0), None)
        found: dict[str, Any] = {
            "features": {name: {"min_version": low, "max_version": high} for name, (low, high) in sorted(self.features.items())},
            "listener_security_protocol_map": {end.listener: SECURITY_PROTOCOLS[end.security_protocol] for end in self.endpoints},
            "endpoints": [f"{end.listener}://{f'[{end.host}]' if ':' in end.host else end.host}:{end.port}" for end in self.endpoints],
        }
        if self.rack is not None:
            found["rack"] = self.rack
        host, port = (None, -1) if plain is None else (plain.host, plain.port)
        return encode_json(found | {"jmx_port": -1, "port": port, "host": host, "version": 5, "timestamp": str(self.timestamp_ms)})

    @classmethod
    def decode(cls, data: bytes, broker_id: int) -> BrokerZnode:
        found = json_object(data, broker_path(broker_id))
        with Reading(broker_path(broker_id)):
            protocols = found.get("listener_security_protocol_map", {})
            if found["version"] == 1:
                if not isinstance(found["host"], str):
                    raise ValueError("the host is no text")
                ends = [EndpointImage("PLAINTEXT", found["host"], int(found["port"]))]
            else:
                ends = [_endpoint(text, protocols) for text in found["endpoints"]]
            features = {
                name: (int(levels["min_version"]), int(levels["max_version"])) for name, levels in (found.get("features") or {}).items()
            }
            znode = cls(ends, found.get("rack"), int(found.get("timestamp") or 0), features)
            znode._check()
            return znode
        raise AssertionError("it returns or raises")

    def _check(self) -> None:
        """Raises ValueError for what no record of a broker can have."""
        if not all(0 <= end.port <= PORT_MAX for end in self.endpoints):
            raise ValueError("a port is out of its range")
        if not isinstance(self.rack, str | None):
            raise ValueError("the rack is no text")
        if not all(0 <= level <= LEVEL_MAX for levels in self.features.values() for level in levels):
            raise ValueError("a level of a feature is out of its range")


def _endpoint(text: str, protocols: Mapping[str, str]) -> EndpointImage:
    matched = _ENDPOINT.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is no endpoint")
    name, host, port = matched.groups()
    return EndpointImage(name, host, int(port), SECURITY_PROTOCOLS.index(protocols.get(name, name)))


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return encode_json({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    """Returns the broker that is the active controller."""
    found = json_object(data, CONTROLLER)
    with Reading(CONTROLLER):
        return int(found["brokerid"])
    raise AssertionError("it returns or raises")


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    with Reading(CONTROLLER_EPOCH):
        epoch = int(data)
        if not 0 <= epoch < NUMBER_MAX:
            raise ValueError(f"{epoch} is no epoch that another one can follow")
        return epoch
    raise AssertionError("it returns or raises")


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    with Reading(CLUSTER_ID):
        return str(json_object(data, CLUSTER_ID)["id"])
    raise AssertionError("it returns or raises")


# -- configs


def encode_config(values: Mapping[str, str]) -> bytes:
    return encode_json({"version": 1, "config": {name: values[name] for name in in_java_order(values)}})


def decode_config(data: bytes, path: str) -> dict[str, str]:
    """Decodes the configuration; it is empty where the znode has none."""
    found = json_object(data, path).get("config") if data else None
    with Reading(path):
        return {str(name): str(value) for name, value in (found or {}).items()}
    raise AssertionError("it returns or raises")


def encode_config_change(entity_path: str) -> bytes:
    """Encodes a notice of change. ``entity_path`` is that of the config znode, below ``/config``."""
    return encode_json({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    """Returns the entity whose configuration has changed; version 1 has its type and name in two fields."""
    found = json_object(data, CONFIG_CHANGES)
    with Reading(CONFIG_CHANGES):
        path = str(found["entity_path"] if found["version"] == 2 else f"{found['entity_type']}/{found['entity_name']}")
        if not all(map(can_be_named, path.split("/"))):
            raise ValueError("no znode can have that name")
        return path
    raise AssertionError("it returns or raises")


# -- the rest


def encode_producer_ids(broker_id: int, start: int, end: int) -> bytes:
    """Encodes a block of producer ids. ``end`` is exclusive here, and inclusive in the znode."""
    return encode_json({"version": 1, "broker": broker_id, "block_start": str(start), "block_end": str(end - 1)})


def decode_producer_ids(data: bytes) -> int:
    """Returns the next free id."""
    with Reading(PRODUCER_IDS):
        return int(json_object(data, PRODUCER_IDS)["block_end"]) + 1
    raise AssertionError("it returns or raises")


def encode_feature(levels: Mapping[str, int]) -> bytes:
    return encode_json(
        {"features": {name: {"max_version_level": level} for name, level in sorted(levels.items())}, "version": 2, "status": 1}
    )


def encode_log_dir_event(broker_id: int) -> bytes:
    return encode_json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes) -> int:
    """Returns the broker whose log directory has failed."""
    with Reading(LOG_DIR_EVENTS):
        return int(json_object(data, LOG_DIR_EVENTS)["broker"])
    raise AssertionError("it returns or raises")


def encode_partitions(partitions: Sequence[tuple[str, int]]) -> bytes:
    """Encodes the partitions as in a preferred election."""
    return encode_json({"version": 1, "partitions": [{"topic": topic, "partition": index} for topic, index in partitions]})


def decode_partitions(data: bytes, path: str) -> list[tuple[str, int]]:
    with Reading(path):
        return [(str(part["topic"]), int(part["partition"])) for part in json_object(data, path)["partitions"]]
    raise AssertionError("it returns or raises")


def encode_reassignment(wanted: Mapping[tuple[str, int], Sequence[int]]) -> bytes:
    parts = [{"topic": topic, "partition": index, "replicas": list(nodes)} for (topic, index), nodes in wanted.items()]
    return encode_json({"version": 1, "partitions": parts})


def decode_reassignment(data: bytes) -> dict[tuple[str, int], tuple[int, ...]]:
    with Reading(REASSIGN_PARTITIONS):
        parts = json_object(data, REASSIGN_PARTITIONS)["partitions"]
        return {(str(part["topic"]), int(part["partition"])): tuple(map(int, part["replicas"])) for part in parts}
    raise AssertionError("it returns or raises")

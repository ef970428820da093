"""Names that users of other clients import, and fields that they read, each with what is meant here.

``hint_import`` is the ``__getattr__`` of ``ottla.aio`` and ``ottla.sync``: an import of another client's class says what to write.
``hint_fields`` gives classes attributes that raise, as ``other_methods`` does: a ``__getattr__`` would slow down each look at a field.
"""

from __future__ import annotations

import difflib
import opcode
import re
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, Final, NoReturn

from ottla.client.other_methods import Missing, dir_without_missing
from ottla.errors import ErrorCode

_CONSUMER: Final = 'write Consumer: Consumer("localhost:9092", group_id="app"), then subscribe(["orders"])'
_PRODUCER: Final = 'write Producer: Producer("localhost:9092", linger_ms=5)'
_SERIALIZER: Final = "a serializer is a function of one argument: value_serializer=str.encode, value_deserializer=lambda value: ..."
_RESOURCE: Final = 'write Topic("orders"), Broker(1), Group("app")'
_REBALANCES: Final = "write subscribe(topics, on_assigned=f, on_revoked=g, on_lost=h), each a function of a list of partitions"
_WORDS: Final = 'write a word: partition_assignment_strategy=["range"], or roundrobin, sticky, cooperative-sticky'
_PARTITIONER: Final = "write a function: partitioner(topic, key, partition_count); without one keys are divided as in Java"
_PLACE: Final = "write seek_to_beginning(partitions) or seek_to_end(partitions)"

OTHER_NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("KafkaConsumer", "AIOKafkaConsumer", "AIOConsumer"), _CONSUMER),
    "DeserializingConsumer": f"{_CONSUMER}; key_deserializer= and value_deserializer= are functions",
    **dict.fromkeys(("KafkaProducer", "AIOKafkaProducer", "AIOProducer"), _PRODUCER),
    "SerializingProducer": f"{_PRODUCER}; key_serializer= and value_serializer= are functions",
    **dict.fromkeys(("KafkaAdminClient", "AIOKafkaAdminClient", "AdminClient"), 'write Admin: Admin("localhost:9092")'),
    "KafkaException": "write KafkaError, which is raised itself",
    "KafkaTimeoutError": "write KafkaError; its code is ErrorCode.REQUEST_TIMED_OUT",
    "KafkaConnectionError": "write KafkaError; its code is ErrorCode.NETWORK_EXCEPTION",
    "NoBrokersAvailable": "write KafkaError; its code is ErrorCode.NETWORK_EXCEPTION",
    "CommitFailedError": "write KafkaError; its code is ErrorCode.ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or REBALANCE_IN_PROGRESS",
    "ProducerFenced": "write ProducerFencedError",
    "ConsumerStoppedError": "write ClientClosedError",
    **dict.fromkeys(("ConsumerRebalanceListener", "AbstractConsumerRebalanceListener"), _REBALANCES),
    "Message": "write ConsumerRecord, whose fields are no methods: record.value",
    "OffsetAndTimestamp": "write FoundOffset",
    "ConsumerGroupMetadata": "write GroupMetadata, which consumer.group_metadata() returns",
    "NewPartitions": 'write a dict: create_partitions({"orders": 6})',
    **dict.fromkeys(("ConfigResourceType", "RestrictedConfigResourceType"), _RESOURCE),
    "AlterConfigOpType": "write a value, None, Append(item) or Subtract(item) in alter_configs",
    **dict.fromkeys(("ACL", "AclBinding"), "write Acl"),
    **dict.fromkeys(("ACLFilter", "AclBindingFilter"), "write AclFilter"),
    **dict.fromkeys(("ACLOperation", "AclOperation"), "write Operation"),
    **dict.fromkeys(("ACLPermissionType", "AclPermissionType"), "write Permission"),
    **dict.fromkeys(("ACLResourcePatternType", "ResourcePatternType"), "write PatternType"),
    **dict.fromkeys(("ResourcePattern", "ResourcePatternFilter"), "its type, name and pattern type are fields of Acl and AclFilter"),
    **dict.fromkeys(("UserScramCredentialUpsertion", "UserScramCredentialDeletion"), "write UserChange"),
    "BrokerMetadata": "write Node",
    "ClusterMetadata": "write Admin(...).describe_cluster()",
    "IsolationLevel": 'write a word where the consumer is made: isolation_level="read_committed"',
    **dict.fromkeys(("OFFSET_BEGINNING", "OFFSET_END"), _PLACE),
    "OFFSET_STORED": "committed(partitions) returns the committed offsets; a consumer of a group starts at them",
    "RangePartitionAssignor": _WORDS,
    "RoundRobinPartitionAssignor": _WORDS,
    "StickyPartitionAssignor": _WORDS,
    **dict.fromkeys(("DefaultPartitioner", "RoundRobinPartitioner", "Murmur2Partitioner"), _PARTITIONER),
    **{
        f"{kind}{what}": _SERIALIZER
        for kind in ("", "String", "Integer", "Double", "JSON", "Avro", "Protobuf")
        for what in ("Serializer", "Deserializer")
        if kind
    },
    "SchemaRegistryClient": f"ottla has no client of a registry, and works with any; {_SERIALIZER}",
}
"""What is meant, by the name in another client."""

_SIZE: Final = "take the length of what was read without a deserializer"
_OF_CODE: Final = "write code, an ErrorCode; code.name is its name"
OTHER_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "ConsumerRecord": {
        "timestamp": "write timestamp_ms",
        "serialized_key_size": _SIZE,
        "serialized_value_size": _SIZE,
        "serialized_header_size": _SIZE,
        "checksum": "the client has checked it: check_crcs",
        "error": "a failure is raised by poll or the iteration; what they return are records",
    },
    "RecordMetadata": {
        "timestamp": "write timestamp_ms",
        "timestamp_type": "the topic has it: message.timestamp.type",
        "topic_partition": "write topic and partition",
        "error": "a failure is raised by the future",
        "log_start_offset": "write Consumer.beginning_offsets(partitions)",
    },
    "FoundOffset": {"timestamp": "write timestamp_ms"},
    "KafkaError": {
        "retriable": "write is_retriable",
        "invalid_metadata": "the client asks for metadata again by itself",
        "errno": _OF_CODE,
        "name": _OF_CODE,
        "description": "write message",
        "str": "write str(error), or message",
        "fatal": "a TransactionFatalError is fatal for its producer; a ProducerFencedError is one",
        "txn_requires_abort": "write isinstance(error, TransactionAbortableError)",
    },
    "TopicPartition": {
        "offset": "a partition has no offset here: offsets are given and returned as dicts, {partition: offset}",
        "metadata": "write OffsetAndMetadata(offset, text) in the dict of commit",
        "error": "a failure is raised, or is the value of a dict",
    },
    "OffsetAndMetadata": {"leader_epoch": "commit(record) keeps it; an offset of your own has none"},
    "Node": {"id": "write node_id", "nodeId": "write node_id"},
    "ClusterDescription": {"brokers": "write nodes", "controller": "write controller_id"},
    "NewTopic": {
        "topic": "write name",
        "num_partitions": "write partition_count",
        "config": "write configs",
        "topic_configs": "write configs",
        "replica_assignment": "write assignments",
        "replica_assignments": "write assignments",
    },
}
"""What is meant, by class and by the field of another client."""


def hint_import(module: str, known: Sequence[str], name: str) -> NoReturn:
    """Raises what a look for a name does that the module has not: ImportError within an import, else AttributeError; with what is meant.

    The error of an ``import`` is made by Python, and has no place for a hint where the module raises an AttributeError.
    """
    hint = _meant(name) or _near(name, known)
    end = f": {hint}" if hint else ""
    caller: FrameType | None = sys._getframe(2)
    if hint and caller is not None and caller.f_code.co_code[caller.f_lasti] == opcode.opmap["IMPORT_FROM"]:
        raise ImportError(f"cannot import name {name!r} from {module!r}{end}", name=module)
    raise AttributeError(f"module {module!r} has no attribute {name!r}{end}", name=name)


def _meant(name: str) -> str:
    """Returns the hint of the table, or of the code that an error's class stands for; empty without one."""
    words = "_".join(re.findall(r"[A-Z][a-z]+", name.removesuffix("Error"))).upper()
    if name not in OTHER_NAMES and name.endswith("Error") and words in ErrorCode.__members__:
        return f"write KafkaError; its code is ErrorCode.{words}"
    return OTHER_NAMES.get(name, "")


def _near(name: str, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {found[0]}?" if found else ""


def hint_fields(*kinds: type[Any]) -> None:
    """Gives the classes what raises for the fields of other clients."""
    for kind in kinds:
        for name, hint in OTHER_FIELDS[kind.__name__].items():
            if not hasattr(kind, name):
                setattr(kind, name, Missing(name, hint))
        setattr(kind, "__dir__", dir_without_missing)  # noqa: B010 - a type checker sees the class as it is

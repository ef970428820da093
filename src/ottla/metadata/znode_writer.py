"""Metadata records as operations on znodes.

A group of records becomes units; the operations of a unit belong together, and after each unit, in their order, the znodes say something
that a controller can go on from: a topic's assignment comes before the states of its partitions, and a controller that finds an assignment
without a state makes it. Each operation names the version that it replaces. The version of a partition's state is its partition epoch:
every change of the partition is one more write of its state. Brokers are no records here: their znodes are their own. All ACLs of a
resource are in one znode, and all that is known of a user in another one: quotas and SCRAM credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.coordination import OPEN_ACCESS, Access, Create, Delete, Operation, Set
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from ottla.metadata import security_znodes, znodes
from ottla.metadata.acls import Pattern, acls_in, pattern_of
from ottla.metadata.image import CLIENT_ID, IP, RESOURCE_BROKER, RESOURCE_TOPIC, USER, ClusterImage, PartitionImage, QuotaEntity, TopicImage
from ottla.metadata.known_znodes import Known, Removed
from ottla.metadata.znodes import StateZnode, TopicZnode
from ottla.types import NO_LEADER
from ottla.wire.schema import Stored

CONFIG_TYPES: Final[Mapping[int, str]] = {RESOURCE_TOPIC: "topics", RESOURCE_BROKER: "brokers"}
QUOTA_KEYS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"}
)
_WHOLE: Final = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
IMPLIED_FEATURES: Final[Mapping[str, int]] = {
    "metadata.version": 21,
    "eligible.leader.replicas.version": 0,
    "transaction.version": 0,
    "group.version": 0,
}
"""Levels that no znode has. A Kafka 3.9 in ZooKeeper mode knows these, and no other ones."""

AclOf = Callable[[str], Sequence[Access]]


class ZnodeWriter:
    """The writer of one controller, under its epoch.

    It assumes that what it returns gets written: if a write fails, the controller starts over.
    """

    def __init__(self, known: Known, *, controller_epoch: int, broker_id: int, acl_of: AclOf = lambda path: OPEN_ACCESS) -> None:
        self._known = known
        self._controller_epoch = controller_epoch
        self._broker_id = broker_id
        self._acl_of = acl_of

    @property
    def known(self) -> Known:
        return self._known

    def check(self, image: ClusterImage, records: Iterable[Stored]) -> None:
        """Raises INVALID_REQUEST for a record that has no place in ZooKeeper."""
        for record in records:
            if isinstance(record, ConfigRecord) and record.resource_type not in CONFIG_TYPES:
                raise _refused("a configuration of this kind has no place in ZooKeeper; groups and client metrics need a quorum")
            if isinstance(record, FeatureLevelRecord) and IMPLIED_FEATURES.get(record.name, record.feature_level) != record.feature_level:
                raise _refused(f"{record.name} is at level {IMPLIED_FEATURES[record.name]} in ZooKeeper mode, and stays there")
            for name in _names(record):
                if not znodes.can_be_named(name):
                    raise _refused(f"{name[:100]!r} has no place in ZooKeeper: no znode can have that name")

    @staticmethod
    def named(records: Sequence[Stored]) -> Sequence[Stored]:
        """Returns the records with the ids that a reader of the znodes assigns: ACLs have no id there."""
        if not any(isinstance(record, AccessControlEntryRecord) for record in records):
            return records
        return [_named(record) if isinstance(record, AccessControlEntryRecord) else record for record in records]

    @staticmethod
    def removed(image: ClusterImage, records: Iterable[Stored]) -> Removed:
        """Returns what the records remove from the image; called before they are applied."""
        topics, patterns = list[TopicImage](), dict[Pattern, None]()
        for record in records:
            if isinstance(record, RemoveTopicRecord):
                topics.append(image.topics[image.topic_names[record.topic_id]])
            elif isinstance(record, RemoveAccessControlEntryRecord) and record.id in image.acls:
                patterns[pattern_of(image.acls[record.id])] = None
        return Removed(topics, tuple(patterns))

    def units(self, image: ClusterImage, records: Sequence[Stored], removed: Removed) -> list[list[Operation]]:
        """Returns the operations that carry out the records; ``image`` is the one after them. ``removed`` was found before them."""
        found = _Touched.by(image, records)
        units: list[list[Operation]] = []
        for entity in found.configs:
            units.append(self._config(entity, image.configs.get(entity, {})))
        for quota in found.quotas:
            units.append(self._client(image, quota))
        for pattern in {**found.patterns, **dict.fromkeys(removed.patterns)}:
            units.append(self._acls(image, pattern))
        for token_id in found.tokens:
            units.append(self._token(token_id, image.delegation_tokens.get(token_id)))
        for name in found.assignments:
            units.append(self.assignment(image.topics[name]))
        for (name, index), change_count in found.partitions.items():
            units.append(self._state(name, index, image.topics[name].partitions[index], change_count))
        for topic in removed.topics:
            units += self._removal(topic)
        if found.features:
            levels = {name: level for name, level in image.features.items() if name not in IMPLIED_FEATURES}
            units.append([self._put(znodes.FEATURE, znodes.encode_feature(levels))])
        if found.producer_ids:
            start, end = found.producer_ids
            units.append([self._put(znodes.PRODUCER_IDS, znodes.encode_producer_ids(self._broker_id, start, end))])
        return units

    # -- one znode

    def _create(self, path: str, data: bytes = b"", *, is_sequential: bool = False) -> Create:
        if not is_sequential:
            self._known.versions[path] = 0
        return Create(path, data, is_sequential=is_sequential, acl=self._acl_of(path))

    def _put(self, path: str, data: bytes) -> Operation:
        version = self._known.versions.get(path)
        if version is None:
            return self._create(path, data)
        self._known.versions[path] = version + 1
        return Set(path, data, version)

    def _drop(self, path: str) -> list[Operation]:
        version = self._known.versions.pop(path, None)
        return [] if version is None else [Delete(path, version)]

    def _parents(self, path: str) -> list[Operation]:
        """Makes those that are not there: a cluster without ACLs and tokens has none of theirs."""
        if path.rpartition("/")[0] in self._known.versions:
            return []
        parts = path.split("/")
        above = ("/".join(parts[:count]) for count in range(2, len(parts)))
        return [self._create(parent) for parent in above if parent not in self._known.versions]

    def _notice(self, prefix: str, data: bytes) -> list[Operation]:
        return [*self._parents(prefix), self._create(prefix, data, is_sequential=True)]

    # -- what the records say

    def assignment(self, topic: TopicImage) -> list[Operation]:
        """Returns the writes of the topic's own znode, and of the one above its partitions'."""
        parts = topic.partitions.items()
        self._known.count(znodes.topic_path(topic.name))
        data = TopicZnode(
            topic.topic_id,
            {index: partition.replicas for index, partition in parts},
            {index: partition.adding for index, partition in parts if partition.adding},
            {index: partition.removing for index, partition in parts if partition.removing},
        ).encode()
        operations = [self._put(znodes.topic_path(topic.name), data)]
        parent = znodes.partitions_path(topic.name)
        if parent not in self._known.versions:
            operations.append(self._create(parent))
        return operations

    def _state(self, name: str, index: int, partition: PartitionImage, change_count: int) -> list[Operation]:
        """Returns as many writes of the state as changes. A new partition's znode may exist already, without a state."""
        assert not partition.elr, "a cluster in ZooKeeper mode has no eligible leader replicas"
        path, state_path = znodes.partition_path(name, index), znodes.state_path(name, index)
        leader = partition.leader if partition.leader != NO_LEADER else -1
        state = StateZnode(leader, partition.leader_epoch, partition.isr, self._controller_epoch, partition.is_recovering)
        data = state.encode()
        first_version = partition.partition_epoch - change_count
        operations: list[Operation] = []
        if first_version < 0:
            if path not in self._known.versions:
                operations.append(self._create(path))
            operations += self._drop(state_path)  # of a partition that a tool has removed
            operations.append(Create(state_path, data, acl=self._acl_of(state_path)))
            first_version = 0
        return [*operations, *(Set(state_path, data, version) for version in range(first_version, partition.partition_epoch))]

    def _removal(self, topic: TopicImage) -> list[list[Operation]]:
        """Returns the removal of the topic, marked first, so that another controller completes it; ``joined`` drops a needless mark."""
        mark = f"{znodes.DELETE_TOPICS}/{topic.name}"
        units: list[list[Operation]] = [[] if mark in self._known.versions else [self._create(mark)]]
        for index, partition in topic.partitions.items():
            state = Delete(znodes.state_path(topic.name, index), partition.partition_epoch)
            units.append([state, *self._drop(znodes.partition_path(topic.name, index))])
        config = f"{znodes.CONFIG}/topics/{topic.name}"
        self._known.count(config)
        self._known.kept.pop(config, None)
        self._known.count(znodes.topic_path(topic.name))
        self._known.count(mark)
        last = (*self._drop(znodes.partitions_path(topic.name)), *self._drop(znodes.topic_path(topic.name)), *self._drop(config))
        return [*units, [*last, *self._drop(mark)]]

    def _config(self, entity: tuple[int, str], values: Mapping[str, str]) -> list[Operation]:
        kind, name = entity
        entity_path = f"{CONFIG_TYPES[kind]}/{name or znodes.DEFAULT_ENTITY}"
        return self._put_config(entity_path, values)

    def _put_config(self, entity_path: str, values: Mapping[str, str]) -> list[Operation]:
        path = f"{znodes.CONFIG}/{entity_path}"
        self._known.count(path)
        kept = self._known.kept[path] = {key: value for key, value in self._known.kept.get(path, {}).items() if key not in values}
        data = znodes.encode_config(kept | dict(values))
        change = self._create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity_path), is_sequential=True)
        return [self._put(path, data), change]

    def _client(self, image: ClusterImage, entity: QuotaEntity) -> list[Operation]:
        """Returns the writes of the quotas of users, clients and addresses, and of the credentials of a user."""
        entity_path, operations = quota_path(entity), list[Operation]()
        parent, _, last = entity_path.rpartition("/clients/")
        if last and parent:  # /config/users/U/clients/C
            for path, data in ((f"{znodes.CONFIG}/{parent}", znodes.encode_config({})), (f"{znodes.CONFIG}/{parent}/clients", b"")):
                if path not in self._known.versions:
                    operations.append(self._create(path, data))
        values = {key: quota_text(key, value) for key, value in image.quotas.get(entity, {}).items()}
        for mechanism, _ in security_znodes.SCRAM.values():
            credential = image.scram_credentials.get((user_of(entity) or "", mechanism))
            if credential is not None:
                values |= [security_znodes.encode_credential(credential)]
        return [*operations, *self._put_config(entity_path, values)]

    def _acls(self, image: ClusterImage, pattern: Pattern) -> list[Operation]:
        """Returns the writes of all ACLs of the pattern; without any it has no znode."""
        path, known = security_znodes.acl_path(pattern), self._known
        known.count(path)
        acls = sorted(acls_in(image.acl_tables.cells.get(pattern, ())))
        kept = known.kept_acls.pop(path, ())
        if acls:
            data = security_znodes.encode_acls(acls, kept)
            if kept and security_znodes.says(data, pattern, acls):
                known.kept_acls[path] = kept
            elif kept:  # they have been deleted, with the ACL that closes the resource because of them
                data = security_znodes.encode_acls(acls)
            change = [*self._parents(path), self._put(path, data)]
        else:
            change = self._drop(path)
        return [*change, *self._notice(*security_znodes.acl_change(pattern))]

    def _token(self, token_id: str, token: DelegationTokenRecord | None) -> list[Operation]:
        path, known = security_znodes.token_path(token_id), self._known
        known.count(path)
        change = self._drop(path) if token is None else [*self._parents(path), self._put(path, security_znodes.encode_token(token))]
        return [*change, *self._notice(f"{security_znodes.TOKEN_CHANGES}/{security_znodes.TOKEN_CHANGE}", token_id.encode())]


@dataclass(slots=True)
class _Touched:
    """The subjects of some records. ``partitions`` counts how often each is changed; a new one counts once."""

    configs: dict[tuple[int, str], None] = field(default_factory=dict)
    quotas: dict[QuotaEntity, None] = field(default_factory=dict)
    patterns: dict[Pattern, None] = field(default_factory=dict)
    tokens: dict[str, None] = field(default_factory=dict)
    assignments: dict[str, None] = field(default_factory=dict)
    partitions: dict[tuple[str, int], int] = field(default_factory=dict)
    producer_ids: tuple[int, int] | None = None
    features: bool = False

    @classmethod
    def by(cls, image: ClusterImage, records: Sequence[Stored]) -> _Touched:
        found = cls()
        for record in records:
            match record:
                case ConfigRecord() if record.resource_type != RESOURCE_TOPIC or record.resource_name in image.topics:
                    found.configs[record.resource_type, record.resource_name] = None
                case ClientQuotaRecord():
                    found.quotas[tuple((part.entity_type, part.entity_name) for part in record.entity)] = None
                case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
                    found.quotas[((USER, record.name),)] = None
                case AccessControlEntryRecord():
                    found.patterns[pattern_of(record)] = None
                case DelegationTokenRecord() | RemoveDelegationTokenRecord():
                    found.tokens[record.token_id] = None
                case TopicRecord() if record.name in image.topics:
                    found.assignments[record.name] = None
                    found.configs[RESOURCE_TOPIC, record.name] = None  # also an empty one: it may be there, with what a tool left
                case PartitionRecord() | PartitionChangeRecord():
                    found._partition(image, record)
                case ProducerIdsRecord():
                    start = found.producer_ids[0] if found.producer_ids else record.next_producer_id - PRODUCER_ID_BLOCK
                    found.producer_ids = start, record.next_producer_id
                case FeatureLevelRecord():
                    found.features = found.features or record.name not in IMPLIED_FEATURES
        return found

    def _partition(self, image: ClusterImage, record: PartitionRecord | PartitionChangeRecord) -> None:
        name = image.topic_names.get(record.topic_id)
        if name is None:  # removed by the same records
            return
        key = name, record.partition_id
        self.partitions[key] = self.partitions.get(key, 0) + 1
        if isinstance(record, PartitionRecord) or not record.replicas == record.adding_replicas == record.removing_replicas:
            self.assignments[name] = None


PRODUCER_ID_BLOCK: Final = 1000


def quota_path(entity: QuotaEntity) -> str:
    """Returns the path below ``/config``."""
    names = {kind: znodes.DEFAULT_ENTITY if name is None else name if kind == IP else znodes.sanitized(name) for kind, name in entity}
    if IP in names:
        return f"ips/{names[IP]}"
    if USER not in names:
        return f"clients/{names[CLIENT_ID]}"
    return f"users/{names[USER]}" + (f"/clients/{names[CLIENT_ID]}" if CLIENT_ID in names else "")


def user_of(entity: QuotaEntity) -> str | None:
    """Returns the user whose credentials are beside these quotas; None for a client, an address, or the default of all users."""
    return entity[0][1] if len(entity) == 1 and entity[0][0] == USER else None


def quota_text(key: str, value: float) -> str:
    return str(int(value)) if key in _WHOLE else repr(float(value))


def joined(units: Sequence[Sequence[Operation]], *, bytes_max: int) -> list[list[Operation]]:
    """Joins the units to as few requests as possible, none larger than allowed; a unit is never split.

    Where all of them are one request, the marks that would let a removal go on are not needed, and left out.
    """
    if sum(map(_size, units)) <= bytes_max:
        return [_without_marks([operation for unit in units for operation in unit])]
    requests: list[list[Operation]] = [[]]
    size = 0
    for unit in units:
        unit_size = _size(unit)
        if requests[-1] and size + unit_size > bytes_max:
            requests.append([])
            size = 0
        requests[-1] += unit
        size += unit_size
    return requests


def sizes_with(image: ClusterImage, acls: Iterable[AccessControlEntryRecord]) -> dict[Pattern, int]:
    """Returns an upper bound, in bytes, of the size of each znode whose pattern these ACLs would extend."""
    added: dict[Pattern, list[tuple[str, str, int, int]]] = {}
    for acl in acls:
        added.setdefault(pattern_of(acl), []).append((acl.principal, acl.host, acl.operation, acl.permission_type))
    cells = image.acl_tables.cells
    return {one: security_znodes.size_of([*acls_in(cells.get(one, ())), *more]) for one, more in added.items()}


def _size(unit: Sequence[Operation]) -> int:
    """Estimates the size of the operations on the wire, rather too high."""
    return sum(120 + len(operation.path) + (len(operation.data) if isinstance(operation, Create | Set) else 0) for operation in unit)


def _without_marks(operations: list[Operation]) -> list[Operation]:
    made = {operation.path for operation in operations if isinstance(operation, Create) and operation.path.startswith(znodes.DELETE_TOPICS)}
    return [operation for operation in operations if operation.path not in made]


def _names(record: Stored) -> Sequence[str]:
    """Returns the names in the record that become names of znodes, and that no earlier check covers in every case."""
    if isinstance(record, AccessControlEntryRecord):
        return (record.resource_name,)
    if isinstance(record, UserScramCredentialRecord):
        return (znodes.sanitized(record.name),)
    if isinstance(record, DelegationTokenRecord):
        return (record.token_id,)
    if isinstance(record, ClientQuotaRecord):
        return [znodes.sanitized(part.entity_name) for part in record.entity if part.entity_name is not None]
    return ()


def _named(acl: AccessControlEntryRecord) -> AccessControlEntryRecord:
    return security_znodes.acl_record(pattern_of(acl), acl.principal, acl.host, acl.operation, acl.permission_type)


def _refused(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)

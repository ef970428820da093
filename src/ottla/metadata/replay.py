"""Records to image, image to records.

``replay`` folds a group of records into the next image; ``snapshot_records`` is its inverse: replayed over the empty
image they give an equal one. ``ImageBuilder`` folds many groups at the price of one.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from sys import intern
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from ottla.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from ottla.metadata.acls import AclTablesBuilder
from ottla.metadata.image import RESOURCE_TOPIC, BrokerImage, ClusterImage, PartitionImage, TopicImage, metric_name
from ottla.metadata.members import broker_of, broker_record, changed_broker, controller_of, controller_record
from ottla.metadata.partition_index import IndexBuilder
from ottla.wire.schema import Stored

ALIKE_MAX: Final = 1000
K = TypeVar("K", bound=Hashable)
V = TypeVar("V", str, float)


def replay(image: ClusterImage, records: Iterable[Stored]) -> ClusterImage:
    """Returns the image after the records. A record that does not fit the image is our own mistake, and an assert."""
    builder = ImageBuilder(image)
    for record in records:
        builder.add(record)
    return builder.image()


class ImageBuilder:
    """The newest image in the making. A dictionary is copied once between two calls of ``image``, however many records change it."""

    def __init__(self, image: ClusterImage) -> None:
        self._draft = image
        self._copied: set[str] = set()
        self._partitions: dict[str, dict[int, PartitionImage]] = {}  # copied, by topic
        self._indexing = IndexBuilder(image.index)
        self._acl_tables = AclTablesBuilder(image.acl_tables)
        self._unsettled: deque[AccessControlEntryRecord | RemoveAccessControlEntryRecord] = deque()
        self._partition = lru_cache(ALIKE_MAX)(PartitionImage)  # the partitions of a large topic are much alike

    @property
    def draft(self) -> ClusterImage:
        """The image after all records, to be looked at before the next one changes it."""
        self.settle()
        return self._draft

    @property
    def end_offset(self) -> int:
        """The end of the records so far."""
        return self._draft.end_offset

    def image(self) -> ClusterImage:
        """Returns the image after all records; it never changes."""
        if "index" in self._copied:
            self._indexing.seal()
        self.settle()
        self._copied.clear()
        self._partitions.clear()
        return self._draft

    def move_to(self, end_offset: int, epoch: int) -> None:
        """Sets the end of the records so far."""
        self._draft = dataclasses.replace(self._draft, end_offset=end_offset, epoch=epoch)

    def _own(self, name: str) -> Any:
        """Returns the dictionary of that name, which the caller may change."""
        if name not in self._copied:
            copied: dict[str, Any] = {name: dict(getattr(self._draft, name))}
            self._draft = dataclasses.replace(self._draft, **copied)
            self._copied.add(name)
        return getattr(self._draft, name)

    def add(self, record: Stored) -> None:
        match record:
            case TopicRecord():
                self._add_topic(record)
            case PartitionRecord():
                partition = self._partition(
                    tuple(record.replicas),
                    tuple(record.isr),
                    record.leader,
                    record.leader_epoch,
                    record.partition_epoch,
                    tuple(record.eligible_leader_replicas or ()),
                    tuple(record.last_known_elr or ()),
                    tuple(record.adding_replicas),
                    tuple(record.removing_replicas),
                    tuple(record.directories),
                    record.leader_recovery_state == 1,
                )
                self._put_partition(record.topic_id, record.partition_id, partition)
            case PartitionChangeRecord():
                self._change_partition(record)
            case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
                self._unsettled.append(record)
            case RemoveTopicRecord():
                self._remove_topic(record)
            case ConfigRecord():
                self._set_config(record)
            case RegisterBrokerRecord():
                self._own("brokers")[record.broker_id] = broker_of(record)
            case BrokerRegistrationChangeRecord():
                broker = self._registered(record.broker_id, record.broker_epoch)
                self._own("brokers")[record.broker_id] = changed_broker(broker, record)
            case FenceBrokerRecord():
                self._own("brokers")[record.id] = replace(self._registered(record.id, record.epoch), is_fenced=True)
            case UnfenceBrokerRecord():
                self._own("brokers")[record.id] = replace(self._registered(record.id, record.epoch), is_fenced=False)
            case UnregisterBrokerRecord():
                self._registered(record.broker_id, record.broker_epoch)
                del self._own("brokers")[record.broker_id]
            case RegisterControllerRecord():
                self._own("controllers")[record.controller_id] = controller_of(record)
            case ProducerIdsRecord():
                assert record.next_producer_id >= self._draft.next_producer_id, "producer ids are handed out once"
                self._draft = dataclasses.replace(self._draft, next_producer_id=record.next_producer_id)
            case FeatureLevelRecord():
                features = self._own("features")
                features[record.name] = record.feature_level
                if record.feature_level == 0:
                    del features[record.name]
            case ClientQuotaRecord():
                self._set_quota(record)
            case ClearElrRecord():
                self._clear_elr(record.topic_name)
            case UserScramCredentialRecord():
                self._own("scram_credentials")[record.name, record.mechanism] = record
            case RemoveUserScramCredentialRecord():
                self._own("scram_credentials").pop((record.name, record.mechanism), None)
            case DelegationTokenRecord():
                self._own("delegation_tokens")[record.token_id] = record
            case RemoveDelegationTokenRecord():
                self._own("delegation_tokens").pop(record.token_id, None)
            case NoOpRecord() | ZkMigrationStateRecord() | AbortTransactionRecord():
                pass
            case _:
                raise AssertionError(f"replay knows every metadata record, not {type(record).__name__}")

    def settle(self, count: int | None = None) -> bool:
        """Carries out the first ``count`` of the changes of ACLs that were added and not carried out yet, or all; whether none is left.

        ``draft`` and ``image`` carry out what is left. Who adds thousands settles them in slices before.
        """
        if self._unsettled:
            acls = self._own("acls")
            for _ in range(len(self._unsettled) if count is None else min(count, len(self._unsettled))):
                self._change_acl(acls, self._unsettled.popleft())
            if not self._unsettled:
                self._draft = dataclasses.replace(self._draft, acl_tables=self._acl_tables.seal())
        return not self._unsettled

    def _change_acl(
        self, acls: dict[bytes, AccessControlEntryRecord], record: AccessControlEntryRecord | RemoveAccessControlEntryRecord
    ) -> None:
        old = acls.pop(record.id, None)
        if old is not None:
            self._acl_tables.remove(old)
        if type(record) is AccessControlEntryRecord:
            record.principal, record.host = intern(record.principal), intern(record.host)  # the same few names in many ACLs
            acls[record.id] = record
            self._acl_tables.add(record)

    def _add_topic(self, record: TopicRecord) -> None:
        assert record.name not in self._draft.topics, f"topic {record.name} is created once"
        partitions = self._partitions[record.name] = {}
        self._own("topics")[record.name] = TopicImage(record.name, record.topic_id, partitions)
        self._own("topic_names")[record.topic_id] = record.name
        plain = metric_name(record.name)
        if plain is not None:
            self._own("metric_names")[plain] = record.name

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self._own("topic_names").pop(record.topic_id)
        self._own_index().remove(self._own("topics").pop(name))
        self._partitions.pop(name, None)
        if (RESOURCE_TOPIC, name) in self._draft.configs:
            del self._own("configs")[RESOURCE_TOPIC, name]
        if metric_name(name) in self._draft.metric_names:
            del self._own("metric_names")[metric_name(name)]

    def _put_partition(self, topic_id: bytes, number: int, partition: PartitionImage) -> None:
        partitions = self._partitions_of(topic_id)
        old = partitions.get(number)
        partitions[number] = partition
        self._own_index().change(self._draft.topic_names[topic_id], number, old, partition)

    def _own_index(self) -> IndexBuilder:
        """Returns the index, which the caller may change."""
        if "index" not in self._copied:
            self._draft = dataclasses.replace(self._draft, index=self._indexing.draft())
            self._copied.add("index")
        return self._indexing

    def _partitions_of(self, topic_id: bytes) -> dict[int, PartitionImage]:
        name = self._draft.topic_names[topic_id]
        if name not in self._partitions:
            old = self._draft.topics[name]
            partitions = self._partitions[name] = dict(old.partitions)
            self._own("topics")[name] = replace(old, partitions=partitions)
        return self._partitions[name]

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        name = self._draft.topic_names[record.topic_id]
        partitions = self._partitions.get(name)
        if partitions is None:
            partitions = self._partitions_of(record.topic_id)
        old = partitions[record.partition_id]
        leads, recovering = record.leader, record.leader_recovery_state
        new_leader = leads != -2  # -2: unchanged; KIP-631
        new = self._partition(  # spelled out: a broker that ends changes hundreds of thousands
            old.replicas if record.replicas is None else tuple(record.replicas),
            old.isr if record.isr is None else tuple(record.isr),
            leads if new_leader else old.leader,
            old.leader_epoch + new_leader,
            old.partition_epoch + 1,
            old.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
            old.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
            old.adding if record.adding_replicas is None else tuple(record.adding_replicas),
            old.removing if record.removing_replicas is None else tuple(record.removing_replicas),
            old.directories if record.directories is None else tuple(record.directories),
            old.is_recovering if recovering == -1 else recovering == 1,
        )
        partitions[record.partition_id] = new
        self._own_index().change(name, record.partition_id, old, new)

    def _clear_elr(self, topic: str) -> None:
        """Clears the eligible leader replicas of the topic's partitions; of all topics, for an empty name."""
        places = self._draft.index.with_elr
        for name in (topic,) if topic else tuple(places):
            found = self._draft.topics[name]
            for index in tuple(places.get(name, ())):
                self._put_partition(found.topic_id, index, dataclasses.replace(found.partitions[index], elr=(), last_known_elr=()))

    def _registered(self, broker_id: int, epoch: int) -> BrokerImage:
        """Returns the broker. Asserts that the epoch is that of its registration, not of another process with the same id."""
        broker = self._draft.brokers[broker_id]
        assert broker.broker_epoch == epoch, "a change names the epoch of the broker's registration"
        return broker

    def _set_config(self, record: ConfigRecord) -> None:
        _put(self._own("configs"), (record.resource_type, record.resource_name), record.name, record.value)

    def _set_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple((part.entity_type, part.entity_name) for part in record.entity)
        _put(self._own("quotas"), entity, record.key, None if record.remove else record.value)


def _put(tables: dict[K, Mapping[str, V]], table: K, key: str, value: V | None) -> None:
    """Sets the key of the table, or removes it when the value is None; a table without keys is removed, too."""
    values = dict(tables.get(table, {}))
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
    if values:
        tables[table] = values
    else:
        tables.pop(table, None)


def snapshot_records(image: ClusterImage) -> Iterator[Stored]:
    """Records that rebuild the image from nothing, in a fixed order."""
    for name, level in sorted(image.features.items()):
        yield FeatureLevelRecord(name, level)
    for _, broker in sorted(image.brokers.items()):
        yield broker_record(broker)
    for _, controller in sorted(image.controllers.items()):
        yield controller_record(controller)
    for name, topic in sorted(image.topics.items()):
        yield TopicRecord(name, topic.topic_id)
        for index, partition in sorted(topic.partitions.items()):
            yield PartitionRecord(
                partition_id=index,
                topic_id=topic.topic_id,
                replicas=list(partition.replicas),
                isr=list(partition.isr),
                removing_replicas=list(partition.removing),
                adding_replicas=list(partition.adding),
                leader=partition.leader,
                leader_recovery_state=int(partition.is_recovering),
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                directories=list(partition.directories),
                eligible_leader_replicas=list(partition.elr) or None,
                last_known_elr=list(partition.last_known_elr) or None,
            )
    for (resource_type, resource_name), values in sorted(image.configs.items()):
        for key, value in sorted(values.items()):
            yield ConfigRecord(resource_type, resource_name, key, value)
    for entity, limits in sorted(image.quotas.items(), key=lambda item: [(kind, name or "") for kind, name in item[0]]):
        for key, limit in sorted(limits.items()):
            yield ClientQuotaRecord([QuotaEntity(kind, name) for kind, name in entity], key, limit, False)
    for kept in (image.scram_credentials, image.acls, image.delegation_tokens):
        for _, record in sorted(kept.items()):
            yield record
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)

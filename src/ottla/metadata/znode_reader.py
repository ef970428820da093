"""The cluster as its znodes say it: the inverse of ``znode_writer``.

What a controller or a tool left incomplete is found, and completed by the next controller when it reads it: partitions with an
assignment and no state, topics that are to be deleted, topics of an old Kafka without an id, and copies of a topic's znode, with its
id. What cannot be understood of a topic stops it, unless that never had a partition; of users, ACLs and tokens it has no effect. The
others hold (``Known.problems``).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from ottla.errors import DecodeError
from ottla.messages.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from ottla.metadata import security_znodes, znodes
from ottla.metadata.acls import Pattern, acls_in
from ottla.metadata.config_values import understood
from ottla.metadata.image import CLIENT_ID, EMPTY_IMAGE, IP, RESOURCE_TOPIC, USER, ClusterImage
from ottla.metadata.known_znodes import Known
from ottla.metadata.replay import replay
from ottla.metadata.znode_writer import CONFIG_TYPES, IMPLIED_FEATURES, QUOTA_KEYS, user_of
from ottla.metadata.znodes import StateZnode, TopicZnode
from ottla.types import NO_LEADER, topic_name_problem
from ottla.wire.schema import Stored

Entity = tuple[tuple[str, str | None], ...]
Found = Mapping[str, tuple[bytes, int]]
"""Znodes by path: data and version."""


@dataclass(slots=True)
class Cluster:
    """``image`` has no brokers: those are read where it is known which of them were there before."""

    image: ClusterImage
    known: Known
    unborn: list[tuple[str, int, tuple[int, ...]]] = field(default_factory=list)
    """Partitions that have an assignment, and no state: topic, index, replicas."""
    deleting: list[str] = field(default_factory=list)
    """Topics whose deletion was started, or asked for."""
    unnamed: list[str] = field(default_factory=list)
    """Topics whose znode does not have their id yet."""
    topic_ids: dict[bytes, str] = field(default_factory=dict)
    """The ids that were found, and the topic of each."""


def read_cluster(found: Found, new_topic_id: Mapping[str, bytes]) -> Cluster:
    """Builds the cluster from the znodes. ``new_topic_id`` has an id for each topic without one. DecodeError for an unreadable znode."""
    cluster = Cluster(EMPTY_IMAGE, Known(versions={path: version for path, (_, version) in found.items()}))
    cluster.image = replay(EMPTY_IMAGE, _records(found, cluster, new_topic_id))
    return cluster


def _records(found: Found, cluster: Cluster, new_topic_id: Mapping[str, bytes]) -> Iterator[Stored]:
    for name, level in IMPLIED_FEATURES.items():
        if level:
            yield FeatureLevelRecord(name, level)
    topics = sorted(path.removeprefix(f"{znodes.TOPICS}/") for path in found if path.startswith(f"{znodes.TOPICS}/"))
    topics = [topic for topic in topics if "/" not in topic]
    for had_partitions in (True, False):  # an id that a topic without replicas shares with another one is not its own
        for topic in topics:
            if (znodes.partitions_path(topic) in found) == had_partitions:
                yield from _topic_records(found, cluster, topic, new_topic_id, had_partitions=had_partitions)
    names = set(cluster.topic_ids.values())
    for path, (data, _) in sorted(found.items()):
        if path.startswith(f"{znodes.CONFIG}/") and not path.startswith(znodes.CONFIG_CHANGES):
            try:
                yield from config_records(path, data, cluster.known, cluster.image, names)
            except DecodeError as error:  # it has no values for Kafka's controller, either
                cluster.known.problems.append(error.message)
        elif path.startswith(f"{znodes.DELETE_TOPICS}/"):
            cluster.deleting.append(path.rpartition("/")[2])
        elif path.startswith(f"{security_znodes.TOKENS}/"):
            yield from token_records(path, data, cluster.known, cluster.image)
        else:
            pattern = security_znodes.pattern_at(path)
            if pattern is not None:
                yield from acl_records(pattern, data, cluster.known, cluster.image)
    data, _ = found.get(znodes.PRODUCER_IDS, (b"", 0))
    if data:
        yield ProducerIdsRecord(-1, -1, znodes.decode_producer_ids(data))


def _topic_records(
    found: Found, cluster: Cluster, name: str, new_topic_id: Mapping[str, bytes], *, had_partitions: bool
) -> Iterator[Stored]:
    path = znodes.topic_path(name)
    try:
        topic = TopicZnode.decode(found[path][0], name)
        problem = topic_name_problem(name)
        if problem is not None:
            raise DecodeError(f"{path}: {problem}")
    except DecodeError as error:
        if had_partitions:  # brokers may have its records
            raise
        cluster.known.problems.append(error.message)
        return
    topic_id = topic.topic_id
    if topic_id is None or (topic_id in cluster.topic_ids and not had_partitions):
        cluster.unnamed.append(name)
        topic_id = new_topic_id[name]
    if topic_id in cluster.topic_ids:
        raise DecodeError(f"{path}: it has the id of the topic {cluster.topic_ids[topic_id]}, and both have partitions")
    cluster.topic_ids[topic_id] = name
    yield TopicRecord(name, topic_id)
    for index, replicas in sorted(topic.partitions.items()):
        state_path = znodes.state_path(name, index)
        if state_path not in found:
            cluster.unborn.append((name, index, tuple(replicas)))
            continue
        data, version = found[state_path]
        del cluster.known.versions[state_path]  # it is the partition epoch
        state = StateZnode.decode(data, state_path)
        isr = [node for node in state.isr if node in replicas]  # a reassignment may have been cut short
        yield PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=isr,
            adding_replicas=list(topic.adding.get(index, ())),
            removing_replicas=list(topic.removing.get(index, ())),
            leader=state.leader if state.leader in isr else NO_LEADER,
            leader_recovery_state=int(state.is_recovering),
            leader_epoch=state.leader_epoch,
            partition_epoch=version,
        )


def config_records(path: str, data: bytes, known: Known, image: ClusterImage, topics: Container[str]) -> list[Stored]:
    """Returns the records that bring the image's configuration to that of the znode. DecodeError for one that cannot be read.

    Remembers what is not ours, or cannot be used, to write it back.

    Ignores the configuration of a topic that does not exist: a tool has written it, or a deletion left it.
    """
    kind, _, name = path.removeprefix(f"{znodes.CONFIG}/").partition("/")
    for resource_type, entity_type in CONFIG_TYPES.items():
        if kind == entity_type and name and "/" not in name:
            if resource_type == RESOURCE_TOPIC and name not in topics:
                return []
            resource = "" if name == znodes.DEFAULT_ENTITY else name
            before = image.configs.get((resource_type, resource), {})
            values, known.kept[path], problems = understood(path, resource_type, znodes.decode_config(data, path), before)
            known.problems += problems
            changed = [key for key in sorted({*before, *values}) if before.get(key) != values.get(key)]
            return [ConfigRecord(resource_type, resource, key, values.get(key)) for key in changed]
    entity = quota_entity(kind, name)
    return [] if entity is None else _client_records(path, data, entity, known, image)


def _client_records(path: str, data: bytes, entity: Entity, known: Known, image: ClusterImage) -> list[Stored]:
    """Returns the records for quotas and credentials. A value that cannot be read counts as absent, and stays in the znode."""
    try:
        values = znodes.decode_config(data, path)
    except DecodeError as error:
        known.problems.append(error.message)
        values = {}
    user, limits, credentials = user_of(entity), dict[str, float](), dict[int, UserScramCredentialRecord]()
    kept = known.kept[path] = dict[str, str]()
    for key, value in values.items():
        try:
            if key in QUOTA_KEYS:
                limits[key] = _limit(value)
            elif key in security_znodes.SCRAM and user is not None:
                credential = security_znodes.decode_credential(user, key, value)
                credentials[credential.mechanism] = credential
            else:
                kept[key] = value
        except (ValueError, DecodeError) as error:
            kept[key] = value
            known.problems.append(f"{path}: {error.message if isinstance(error, DecodeError) else f'{key} is no number'}")
    known_limits = image.quotas.get(entity, {})
    changed = [key for key in sorted({*known_limits, *limits}) if known_limits.get(key) != limits.get(key)]
    parts = [QuotaEntity(part, part_name) for part, part_name in entity]
    records: list[Stored] = [ClientQuotaRecord(parts, key, limits.get(key, 0.0), key not in limits) for key in changed]
    return records if user is None else [*records, *_credential_records(user, credentials, image)]


def _limit(text: str) -> float:
    limit = float(text)
    if not math.isfinite(limit):
        raise ValueError(text)
    return limit


def _credential_records(user: str, credentials: Mapping[int, UserScramCredentialRecord], image: ClusterImage) -> Iterator[Stored]:
    for mechanism, _ in security_znodes.SCRAM.values():
        before, credential = image.scram_credentials.get((user, mechanism)), credentials.get(mechanism)
        if credential is not None and credential != before:
            yield credential
        elif credential is None and before is not None:
            yield RemoveUserScramCredentialRecord(user, mechanism)


def acl_records(pattern: Pattern, data: bytes, known: Known, image: ClusterImage) -> list[Stored]:
    """Returns the records that bring the image's ACLs of the pattern in line with its znode; without data there are none."""
    found = security_znodes.decode_acls(data, pattern)
    known.kept_acls.pop(security_znodes.acl_path(pattern), None)
    if found.kept:
        known.kept_acls[security_znodes.acl_path(pattern)] = found.kept
    if found.problem is not None:
        known.problems.append(found.problem)
    cell = image.acl_tables.cells.get(pattern, ())
    before = {security_znodes.acl_record(pattern, *acl).id for acl in acls_in(cell)}
    after = {acl.id for acl in found.acls}
    added = [acl for acl in found.acls if acl.id not in before]
    return [*added, *(RemoveAccessControlEntryRecord(acl_id) for acl_id in sorted(before - after))]


def token_records(path: str, data: bytes, known: Known, image: ClusterImage) -> list[Stored]:
    """Returns the records that bring the image's token to that of its znode."""
    token_id = path.removeprefix(f"{security_znodes.TOKENS}/")
    before = image.delegation_tokens.get(token_id)
    try:
        token = security_znodes.decode_token(data, token_id) if data else None
    except DecodeError as error:
        known.problems.append(error.message)
        token = None
    if token is None:
        return [] if before is None else [RemoveDelegationTokenRecord(token_id)]
    return [] if token == before else [token]


def quota_entity(kind: str, name: str) -> Entity | None:
    """Returns the entity whose quotas are below ``/config/<kind>/<name>``; None where a znode has none."""
    parts = name.split("/")
    if kind == "ips" and len(parts) == 1 and name:
        return ((IP, None if name == znodes.DEFAULT_ENTITY else name),)
    if kind == "clients" and len(parts) == 1 and name:
        return ((CLIENT_ID, _entity_name(name)),)
    if kind == "users" and len(parts) == 1 and name:
        return ((USER, _entity_name(name)),)
    if kind == "users" and len(parts) == 3 and parts[1] == "clients":
        return ((CLIENT_ID, _entity_name(parts[2])), (USER, _entity_name(parts[0])))
    return None


def _entity_name(name: str) -> str | None:
    return None if name == znodes.DEFAULT_ENTITY else znodes.unsanitized(name)

"""Brokers come, are fenced, stop and go: what the active controller decides about them, and about the partitions that they hold.

A broker registers, and gets an epoch by which everything that it says later is told from what an earlier process of its id said. It is
fenced until it has caught up with its own registration; fenced again when its session ends; out of all ISRs whenever it is not up.
Source: KIP-631 (registration, heartbeats), KIP-841 (fenced and stopping brokers in ISRs), KIP-858 (log directories), KIP-966 (what an
unclean restart makes of eligible replicas).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from ottla.controller.decided import Recorded
from ottla.controller.features import METADATA_VERSION
from ottla.controller.partition_change import with_leader, without_replicas
from ottla.controller.topic_rules import RESERVED_DIRECTORIES, TopicRules, partitions_of
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.members import FENCED, UNFENCED, broker_record
from ottla.types import NO_LEADER, uuid_text
from ottla.wire.schema import Stored


@dataclass(frozen=True, slots=True)
class Registered:
    """A ``Decided``: the records, and the epoch that the broker has from now on."""

    records: tuple[Stored, ...]
    broker_epoch: int


def register_broker(
    image: ClusterImage,
    wanted: BrokerImage,
    *,
    has_session: bool,
    previous_epoch: int,
    previous_incarnations: Container[bytes] = (),
    rules: TopicRules,
    is_unfenced: bool = False,
) -> Registered:
    """The registration of a process, fenced unless ``is_unfenced``; its epoch is the offset of its record, or stays as it is.

    ``wanted`` has no epoch yet. ``has_session`` says whether the process that is registered under the id is taken to be alive: another one
    is refused then, DUPLICATE_BROKER_REGISTRATION. ``previous_epoch`` and ``previous_incarnations`` are of processes of
    which the broker has everything; when the last one is not among them, it may have lost what it had. INVALID_REGISTRATION for
    directories that cannot be, UNSUPPORTED_VERSION for a broker that does not know the cluster's features.
    """
    known = image.brokers.get(wanted.broker_id)
    is_same = known is not None and known.incarnation_id == wanted.incarnation_id
    if known is not None and has_session and not is_same:
        text = f"another process is registered as broker {wanted.broker_id}; if that has ended, so will its session"
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text)
    _check_directories(image, wanted)
    _check_features(image, wanted)
    if known is not None and is_same:
        kept = replace(
            wanted, broker_epoch=known.broker_epoch, is_fenced=known.is_fenced, in_controlled_shutdown=known.in_controlled_shutdown
        )
        return Registered((broker_record(kept),), known.broker_epoch)
    records: list[Stored] = []
    if known is not None:
        is_clean = known.broker_epoch == previous_epoch or known.incarnation_id in previous_incarnations
        records += leaving(image, wanted.broker_id, rules, is_clean=is_clean)
    epoch = image.end_offset + len(records)
    records.append(broker_record(replace(wanted, broker_epoch=epoch, is_fenced=not is_unfenced)))
    return Registered(tuple(records), epoch)


def check_epoch(image: ClusterImage, broker_id: int, epoch: int) -> BrokerImage:
    """The broker; BROKER_ID_NOT_REGISTERED, or STALE_BROKER_EPOCH for what an earlier process of the id says."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if broker.broker_epoch != epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has the epoch {broker.broker_epoch}, not {epoch}")
    return broker


def fence_broker(image: ClusterImage, broker_id: int, *, rules: TopicRules, suspected: Container[int] = ()) -> Recorded:
    """The broker is fenced and out of every ISR; nothing to record when it is. The ``suspected`` lead only what nobody else can."""
    broker = image.brokers[broker_id]
    if broker.is_fenced:
        return Recorded(())
    change = BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, fenced=FENCED)
    return Recorded((*leaving(image, broker_id, rules, suspected=suspected), change))


def unfence_broker(image: ClusterImage, broker_id: int, *, rules: TopicRules) -> Recorded:
    """The broker is unfenced, and leads what nobody else could."""
    broker = image.brokers[broker_id]
    records: list[Stored] = [BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, fenced=UNFENCED)]
    serving = replace(image, brokers={**image.brokers, broker_id: replace(broker, is_fenced=False)})
    found = replace(rules, image=serving)
    for name, topic_id, index, partition in partitions_of(image):
        if partition.leader == NO_LEADER and broker_id in partition.replicas:
            record = with_leader(topic_id, index, partition, found.of(name, partition))
            if record is not None:
                records.append(record)
    return Recorded(tuple(records))


def begin_shutdown(image: ClusterImage, broker_id: int, *, rules: TopicRules) -> Recorded:
    """The broker is stopping: others lead what it led, where there are others."""
    broker = image.brokers[broker_id]
    records: list[Stored] = []
    if not broker.in_controlled_shutdown:
        records.append(BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, in_controlled_shutdown=1))
    return Recorded((*records, *leaving(image, broker_id, rules)))


def unregister_broker(image: ClusterImage, broker_id: int, *, rules: TopicRules, suspected: Container[int] = ()) -> Recorded:
    """The broker is no longer of the cluster, in no ISR, and eligible nowhere. BROKER_ID_NOT_REGISTERED when it never was."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    record = UnregisterBrokerRecord(broker_id, broker.broker_epoch)
    return Recorded((*leaving(image, broker_id, rules, is_clean=False, suspected=suspected), record))


def has_leaderships(image: ClusterImage, broker_id: int) -> bool:
    return any(partition.leader == broker_id for *_, partition in partitions_of(image))


def leaving(
    image: ClusterImage, broker_id: int, rules: TopicRules, *, is_clean: bool = True, suspected: Container[int] = ()
) -> Iterator[Stored]:
    """The changes of all partitions when the broker no longer serves. Uncleanly, it is not eligible any more either."""
    for name, topic_id, index, partition in partitions_of(image):
        if broker_id in partition.isr or (not is_clean and broker_id in partition.elr):
            record = without_replicas(topic_id, index, partition, {broker_id}, rules.of(name, partition, suspected), is_clean=is_clean)
            if record is not None:
                yield record


def _check_directories(image: ClusterImage, wanted: BrokerImage) -> None:
    if not wanted.directories:
        raise _invalid("no log directory is named")
    if any(int.from_bytes(directory, "big") < RESERVED_DIRECTORIES for directory in wanted.directories):
        raise _invalid("a log directory has a reserved id")
    if len(set(wanted.directories)) != len(wanted.directories):
        raise _invalid("two log directories have one id")
    for other in image.brokers.values():
        shared = next((directory for directory in wanted.directories if directory in other.directories), None)
        if other.broker_id != wanted.broker_id and shared is not None:
            raise _invalid(f"the log directory {uuid_text(shared)} belongs to broker {other.broker_id}")


def _check_features(image: ClusterImage, wanted: BrokerImage) -> None:
    if METADATA_VERSION not in wanted.features:
        raise _invalid(f"its features do not have {METADATA_VERSION}")
    for name, level in sorted(image.features.items()):
        low, high = wanted.features.get(name, (0, 0))
        if not low <= level <= high:
            text = f"broker {wanted.broker_id} supports {name} from {low} to {high}, and the cluster has {level}"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, f"the registration is refused: {why}")

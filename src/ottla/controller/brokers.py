"""Brokers come, are fenced, stop and go: what the active controller decides about them, and about the partitions that they hold.

A broker registers, and gets an epoch which distinguishes its messages from an earlier process with the same id. It is
fenced until it has caught up with its own registration; fenced again when its session ends; out of all ISRs whenever it is not up.
What concerns all of its partitions is a sweep: it is decided a slice at a time.
Source: KIP-631 (registration, heartbeats), KIP-841 (fenced and stopping brokers in ISRs), KIP-858 (log directories), KIP-966 (what an
unclean restart makes of eligible replicas).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from msgspec.structs import replace

from ottla.controller.decided import Recorded
from ottla.controller.features import METADATA_VERSION
from ottla.controller.sweeps import Leaving, OnStep, Returning, RulesOf, Suspected
from ottla.controller.topic_rules import RESERVED_DIRECTORIES
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.members import FENCED, UNFENCED, broker_record
from ottla.metadata.record_versions import DIRECTORIES
from ottla.types import uuid_text
from ottla.wire.schema import Stored


class Registering(Leaving):
    """The registration of a process, fenced unless ``is_unfenced``; its epoch is the offset of its record, or stays as it is.

    ``wanted`` has no epoch yet. ``has_session`` says whether the process that is registered under the id is taken to be alive: another one
    is refused then, DUPLICATE_BROKER_REGISTRATION. ``previous_epoch`` and ``previous_incarnations`` are of processes of
    which the broker has everything; when the last one is not among them, it may have lost what it had. INVALID_REGISTRATION for
    directories that cannot be, UNSUPPORTED_VERSION for a broker that does not know the cluster's features. It is judged at each step.
    """

    def __init__(
        self,
        wanted: BrokerImage,
        rules: RulesOf,
        *,
        has_session: Callable[[BrokerImage], bool],
        previous_epoch: int,
        previous_incarnations: Container[bytes] = (),
        is_unfenced: bool = False,
        on_step: OnStep = lambda offset: None,
    ) -> None:
        super().__init__(
            wanted.broker_id, rules, lambda image: True, last=self._register, is_clean=self._had_everything, on_step=on_step
        )  # fmt: skip
        self._wanted = wanted
        self._has_session = has_session
        self._previous_epoch = previous_epoch
        self._previous_incarnations = previous_incarnations
        self._is_unfenced = is_unfenced
        self.broker_epoch = -1
        """The epoch that the broker has from now on, once it is done."""

    def _step(self, image: ClusterImage) -> Recorded:
        wanted = self._wanted
        known = image.brokers.get(wanted.broker_id)
        is_same = known is not None and known.incarnation_id == wanted.incarnation_id
        if known is not None and not is_same and self._has_session(known):
            text = f"another process is registered as broker {wanted.broker_id}; if that has ended, so will its session"
            raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text)
        _check_directories(image, wanted)
        _check_features(image, wanted)
        if known is not None and is_same:
            self.is_done, self.broker_epoch = True, known.broker_epoch
            kept = replace(
                wanted, broker_epoch=known.broker_epoch, is_fenced=known.is_fenced, in_controlled_shutdown=known.in_controlled_shutdown
            )
            return Recorded((broker_record(kept),))
        return super()._step(image)

    def _had_everything(self, image: ClusterImage) -> bool:
        known = image.brokers.get(self._wanted.broker_id)
        if known is None:
            return True
        return known.broker_epoch == self._previous_epoch or known.incarnation_id in self._previous_incarnations

    def _register(self, image: ClusterImage, offset: int) -> Sequence[Stored]:
        self.broker_epoch = offset
        return (broker_record(replace(self._wanted, broker_epoch=offset, is_fenced=not self._is_unfenced)),)


def check_epoch(image: ClusterImage, broker_id: int, epoch: int) -> BrokerImage:
    """Returns the broker; BROKER_ID_NOT_REGISTERED, or STALE_BROKER_EPOCH for what an earlier process of the id says."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if broker.broker_epoch != epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has the epoch {broker.broker_epoch}, not {epoch}")
    return broker


def fencing(
    image: ClusterImage,
    broker_id: int,
    rules: RulesOf,
    *,
    is_wanted: Callable[[], bool] = lambda: True,
    suspected: Suspected = lambda: (),
) -> Leaving:
    """Returns the sweep that fences the broker and takes it out of every ISR, for as long as ``is_wanted``.

    The ``suspected`` lead only what no other can.
    """
    epoch = image.brokers[broker_id].broker_epoch

    def serves(image: ClusterImage) -> bool:
        known = image.brokers.get(broker_id)
        return known is not None and known.broker_epoch == epoch and not known.is_fenced and is_wanted()

    change = BrokerRegistrationChangeRecord(broker_id, epoch, fenced=FENCED)
    return Leaving(broker_id, rules, serves, last=lambda image, offset: (change,), suspected=suspected)


def unfencing(image: ClusterImage, broker_id: int, rules: RulesOf) -> Returning:
    """Returns the sweep that unfences the broker and lets it lead what no other could."""
    broker = image.brokers[broker_id]
    return Returning(broker, rules, BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, fenced=UNFENCED))


def stopping(image: ClusterImage, broker_id: int, rules: RulesOf, on_step: OnStep = lambda offset: None) -> Leaving:
    """Returns the sweep for a broker that is stopping: others lead what it led, where there are others."""
    epoch = image.brokers[broker_id].broker_epoch

    def first(image: ClusterImage) -> Sequence[Stored]:
        is_known = image.brokers[broker_id].in_controlled_shutdown
        return () if is_known else (BrokerRegistrationChangeRecord(broker_id, epoch, in_controlled_shutdown=1),)

    def serves(image: ClusterImage) -> bool:
        known = image.brokers.get(broker_id)
        return known is not None and known.broker_epoch == epoch and not known.is_fenced

    return Leaving(broker_id, rules, serves, first=first, on_step=on_step)


def unregistering(image: ClusterImage, broker_id: int, rules: RulesOf, *, suspected: Suspected = lambda: ()) -> Leaving:
    """Returns the sweep that takes the broker out of the cluster, every ISR and every ELR. BROKER_ID_NOT_REGISTERED for an unknown one."""
    known = image.brokers.get(broker_id)
    if known is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    epoch, record = known.broker_epoch, UnregisterBrokerRecord(broker_id, known.broker_epoch)

    def is_registered(image: ClusterImage) -> bool:
        return broker_id in image.brokers and image.brokers[broker_id].broker_epoch == epoch

    return Leaving(broker_id, rules, is_registered, last=lambda image, offset: (record,), is_clean=lambda image: False, suspected=suspected)


def has_leaderships(image: ClusterImage, broker_id: int) -> bool:
    return image.index.led.get(broker_id, 0) > 0


def _check_directories(image: ClusterImage, wanted: BrokerImage) -> None:
    if image.features.get(METADATA_VERSION, 0) < DIRECTORIES:  # brokers of such a release name none
        return
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

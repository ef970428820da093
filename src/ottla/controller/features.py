"""Feature levels: what UpdateFeatures decides over an image. Source: KIP-584, KIP-778."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from ottla.config import BrokerConfig
from ottla.controller.decided import Recorded
from ottla.controller.eligibility import end_eligibility
from ottla.controller.metadata_versions import is_lossy
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import ConfigRecord, FeatureLevelRecord, UserScramCredentialRecord
from ottla.messages.update_features import UpgradeType
from ottla.metadata.image import RESOURCE_BROKER, ClusterImage

METADATA_VERSION: Final = "metadata.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
MIN_ISR: Final = "min.insync.replicas"
FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 30),
    ELR_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    GROUP_VERSION: (0, 1),
}
"""Feature name to supported levels; a new cluster has the highest ones. All are Kafka 4.3's."""
_UNSTABLE: Final = 31
"""The level of metadata.version that Kafka 4.3 knows and has not released, 4.4-IV0. It changes no record."""


def supported_features(config: BrokerConfig) -> Mapping[str, tuple[int, int]]:
    """Returns the levels that this node supports by feature name; unreleased ones only with ``unstable.feature.versions.enable``."""
    if not config["unstable.feature.versions.enable"]:
        return FEATURES
    return {**FEATURES, METADATA_VERSION: (FEATURES[METADATA_VERSION][0], _UNSTABLE)}


class FeatureUpdate(Struct, frozen=True):
    """Level 0 means that the feature is off."""

    name: str
    level: int
    upgrade_type: int


def first_features(
    image: ClusterImage, *, min_isr: int, levels: Mapping[str, int] | None = None, users: Sequence[UserScramCredentialRecord] = ()
) -> Recorded:
    """Returns what a controller records when it becomes active: the features of a new cluster, and what those ask for.

    ``levels`` and ``users`` are what the cluster was formatted with; without levels, a new one has the highest ones.
    """
    wanted = levels or {name: high for name, (_, high) in FEATURES.items()}
    records = [] if image.features else [FeatureLevelRecord(name, level) for name, level in sorted(wanted.items())]
    values = _min_isr_for_elr(image, records, min_isr)
    return Recorded((*records, *(() if image.features else users), *values, *(end_eligibility(image) if values else ())))


def update_features(
    image: ClusterImage, updates: Sequence[FeatureUpdate], *, supported: Mapping[str, tuple[int, int]], min_isr: int
) -> Recorded:
    """Moves all levels, or none: a KafkaError names all features that are not known, or the first that cannot be moved.

    A feature that is not known is off, and may be asked to be: so Kafka's tools switch off what a release did not have.
    """
    names = [update.name for update in updates]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a feature is listed twice in the request")
    missing = [f"{update.name[:80]}={update.level}" for update in updates if update.name not in supported and update.level != 0]
    if missing:
        text = f"{', '.join(missing)}: unknown feature; the features are {', '.join(sorted(supported))}"
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)
    for update in updates:
        _check(image.features.get(update.name, 0), update, supported)
        _check_others(image, update)
    changed = [update for update in updates if image.features.get(update.name, 0) != update.level]
    levels = [FeatureLevelRecord(update.name, update.level) for update in changed]
    values = _min_isr_for_elr(image, levels, min_isr)
    rests_on_another = bool(values) or any(update.name == ELR_VERSION for update in changed)  # without the feature the list is not kept
    return Recorded((*levels, *values, *(end_eligibility(image) if rests_on_another else ())))


def _min_isr_for_elr(image: ClusterImage, levels: Sequence[FeatureLevelRecord], min_isr: int) -> list[ConfigRecord]:
    """Sets min.insync.replicas for the cluster, and for no broker: eligibility depends on it, so all brokers need the same value.

    ``min_isr`` is what the active controller was started with (KIP-966).
    """
    level = next((record.feature_level for record in levels if record.name == ELR_VERSION), image.features.get(ELR_VERSION, 0))
    if level == 0:
        return []
    own = [name for (kind, name), values in sorted(image.configs.items()) if kind == RESOURCE_BROKER and name and MIN_ISR in values]
    records = [ConfigRecord(RESOURCE_BROKER, name, MIN_ISR, None) for name in own]
    if MIN_ISR not in image.broker_configs(""):
        records.append(ConfigRecord(RESOURCE_BROKER, "", MIN_ISR, str(min_isr)))
    return records


def check_min_isr_change(image: ClusterImage, broker: str, changed: Mapping[str, str | None]) -> None:
    """Raises INVALID_CONFIG for a change that eligible leader replicas do not allow; ``broker`` is empty for all of them."""
    if MIN_ISR not in changed or image.features.get(ELR_VERSION, 0) == 0:
        return
    if broker:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{MIN_ISR} can only be set for all brokers while {ELR_VERSION} is on")
    if changed[MIN_ISR] is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{MIN_ISR} of all brokers cannot be removed while {ELR_VERSION} is on")


def _check_others(image: ClusterImage, update: FeatureUpdate) -> None:
    """Checks that every registered node supports the level, whether it serves at the moment or not."""
    brokers = ((f"broker {broker_id}", broker.features) for broker_id, broker in image.brokers.items())
    controllers = ((f"controller {controller_id}", controller.features) for controller_id, controller in image.controllers.items())
    for node, features in (*brokers, *controllers):
        low, high = features.get(update.name, (0, 0))
        if features and not low <= update.level <= high:
            text = f"{update.name}={update.level}: {node} supports levels {low} to {high}"
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)


def _check(current: int, update: FeatureUpdate, supported: Mapping[str, tuple[int, int]]) -> None:
    what = f"{update.name[:80]}={update.level}"
    if update.upgrade_type not in UpgradeType.__members__.values():
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what}: {update.upgrade_type} is not a type of upgrade")
    low, high = supported.get(update.name, (0, 0))
    if not low <= update.level <= high:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what}: levels {low} to {high} are supported")
    is_upgrade = update.upgrade_type == UpgradeType.UPGRADE
    if update.level < current and is_upgrade:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what} is below {current}; request a downgrade to lower it")
    if update.name == METADATA_VERSION and update.level < current and is_lossy(current, update.level):
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what} is below {current}; records of the levels between would be lost")
    if update.level > current and not is_upgrade:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what} is above {current}; that is not a downgrade")

"""Feature levels: what UpdateFeatures decides over an image. Source: KIP-584, KIP-778."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import FeatureLevelRecord
from ottla.metadata.image import ClusterImage


class UpgradeType(IntEnum):
    """Kafka's numbers for what a change of a level may do."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """Level 0 means that the feature is off."""

    name: str
    level: int
    upgrade_type: int


@dataclass(frozen=True, slots=True)
class FeatureChange:
    """The records of all updates of one request."""

    records: tuple[FeatureLevelRecord, ...]


def update_features(image: ClusterImage, updates: Sequence[FeatureUpdate], *, supported: Mapping[str, tuple[int, int]]) -> FeatureChange:
    """All levels are moved, or none: a KafkaError that names the first that cannot be."""
    names = [update.name for update in updates]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a feature is updated twice in one request")
    for update in updates:
        _check(image.features.get(update.name, 0), update, supported)
    changed = [update for update in updates if image.features.get(update.name, 0) != update.level]
    return FeatureChange(tuple(FeatureLevelRecord(update.name, update.level) for update in changed))


def _check(current: int, update: FeatureUpdate, supported: Mapping[str, tuple[int, int]]) -> None:
    what = f"{update.name[:80]}={update.level}"
    if update.upgrade_type not in UpgradeType.__members__.values():
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what}: {update.upgrade_type} is no type of upgrade")
    if update.name not in supported:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what}: this broker does not know the feature")
    low, high = supported[update.name]
    if not low <= update.level <= high:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what}: levels {low} to {high} are supported")
    is_upgrade = update.upgrade_type == UpgradeType.UPGRADE
    if update.level < current and is_upgrade:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what} is below {current}; ask for a downgrade to do that")
    if update.level > current and not is_upgrade:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what} is above {current}; that is no downgrade")

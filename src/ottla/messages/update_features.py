"""Moves finalized feature levels (KIP-584, KIP-778)."""

from __future__ import annotations

from ottla.types import NamedInt
from ottla.wire.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class UpgradeType(NamedInt):
    """The kind of change of a feature's level."""

    UPGRADE = 1
    """To a higher level."""
    SAFE_DOWNGRADE = 2
    """To a lower one, if no metadata is lost by it."""
    UNSAFE_DOWNGRADE = 3
    """To a lower one, also where metadata is lost."""


class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(default=1, since=1)


class UpdateFeaturesRequest(Request, api_key=57, versions=(0, 2), flexible=0):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class UpdateFeaturesResponse(Response, api_key=57, versions=(0, 2), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1)

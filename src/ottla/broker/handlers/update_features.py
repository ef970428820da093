"""UpdateFeatures, versions 0-2: finalized feature levels move, all of a request's or none (KIP-584, KIP-778).

Version 0 knows downgrades by a flag. Before v2 each feature of a request that succeeds has a result.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.controller.features import FeatureUpdate, update_features
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)

UPGRADE_TYPES_SINCE = 1
WITHOUT_RESULTS_SINCE = 2
UPDATES_MAX: Final = 1000
"""More than there are features."""


async def handle(parts: Parts, context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if len(request.feature_updates) > UPDATES_MAX:
        text = f"{len(request.feature_updates)} feature updates in one request; the limit is {UPDATES_MAX}"
        return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
    updates = [FeatureUpdate(key.feature, key.max_version_level, _upgrade_type(key, context.version)) for key in request.feature_updates]
    decision = partial(update_features, updates=updates, supported=parts.features, min_isr=parts.controller.static_min_isr)
    [outcome] = await parts.controller.decide([decision], validate_only=request.validate_only)
    response = UpdateFeaturesResponse(error_message=None)
    if isinstance(outcome, KafkaError):
        response.error_code, response.error_message = outcome.code, outcome.message
    elif context.version < WITHOUT_RESULTS_SINCE:
        names = dict.fromkeys(update.name for update in updates)
        response.results = [UpdatableFeatureResult(name, error_message=ErrorCode.NONE.name) for name in names]
    return response


def _upgrade_type(key: FeatureUpdateKey, version: int) -> int:
    if version >= UPGRADE_TYPES_SINCE:
        return key.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if key.allow_downgrade else UpgradeType.UPGRADE


SERVICE = service(UpdateFeaturesRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True, needs=Operation.ALTER)

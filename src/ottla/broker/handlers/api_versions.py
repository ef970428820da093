"""ApiVersions, versions 0-4: what is served on the listener that it is asked on (KIP-35, KIP-511, KIP-584).

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range of ApiVersions itself; the
connection stays. Features with minimum level 0 are left out below v4.
"""

from __future__ import annotations

import re

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.api_keys import ApiKey
from ottla.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_NAMED_SINCE = 3
_MINIMUM_ZERO_SINCE = 4


def handle(parts: Parts, context: RequestContext, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    """Answers with the served versions; ``request`` is None when its version is not known."""
    services = parts.home.services[context.connection.role]
    if request is None:
        own = services[ApiKey.API_VERSIONS]
        keys = [ApiVersion(own.api.key, own.version_min_listed, own.version_max)]
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, keys)
    if context.version >= _SOFTWARE_NAMED_SINCE:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    if request.node_id >= 0 and context.may_quietly(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER):
        parts.home.callers.note(request.node_id, context.connection.transport)
    keys = [ApiVersion(key, service.version_min_listed, service.version_max) for key, service in sorted(services.items())]
    image = parts.image
    supported = [
        SupportedFeatureKey(name, low, high)
        for name, (low, high) in sorted(parts.features.items())
        if low > 0 or context.version >= _MINIMUM_ZERO_SINCE
    ]
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=supported,
        finalized_features_epoch=image.end_offset,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in sorted(image.features.items())],
    )


SERVICE = service(ApiVersionsRequest, handle, roles=BROKER_AND_CONTROLLER, needs=Asks.NOBODY)

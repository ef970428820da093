"""ApiVersions, versions 0-4: what this broker serves (KIP-35, KIP-511, KIP-584).

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range of ApiVersions itself; the
connection stays. Features with minimum level 0 are left out below v4.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import service
from ottla.errors import ErrorCode
from ottla.messages.api_keys import ApiKey
from ottla.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey

if TYPE_CHECKING:
    from ottla.broker.parts import Parts

CONTROLLER_KEYS = frozenset(
    {
        *(ApiKey.API_VERSIONS, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS),
        *(ApiKey.CREATE_PARTITIONS, ApiKey.ELECT_LEADERS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_PARTITION_REASSIGNMENTS),
        *(ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES),
        *(ApiKey.DESCRIBE_CLUSTER, ApiKey.UNREGISTER_BROKER),
    }
)
"""What Kafka's controllers serve to tools, as far as it is served here."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_NAMED_SINCE = 3
_MINIMUM_ZERO_SINCE = 4


def handle(parts: Parts, context: RequestContext, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    """``request`` is None when its version is not known."""
    services = parts.services
    if request is None:
        own = services[ApiKey.API_VERSIONS]
        keys = [ApiVersion(own.api.key, own.version_min_listed, own.version_max)]
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, keys)
    if context.version >= _SOFTWARE_NAMED_SINCE:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    is_controller = parts.is_controller_listener(context.connection.listener)
    keys = [
        ApiVersion(key, service.version_min_listed, service.version_max)
        for key, service in sorted(services.items())
        if not is_controller or key in CONTROLLER_KEYS
    ]
    image = parts.image
    supported = [
        SupportedFeatureKey(name, low, high)
        for name, (low, high) in sorted(parts.features.items())
        if low > 0 or context.version >= _MINIMUM_ZERO_SINCE
    ]
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=supported,
        finalized_features_epoch=parts.controller.high_watermark,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in sorted(image.features.items())],
    )


SERVICE = service(ApiVersionsRequest, handle)

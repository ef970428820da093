"""Envelope, version 0, on the controllers' listener (KIP-590): a client's request that one of the brokers passes on.

NOT_CONTROLLER unless this controller is active; INVALID_REQUEST for what is no request that is forwarded, UNSUPPORTED_VERSION for a
version that is not served.
"""

from __future__ import annotations

import ipaddress

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext, fail_loudly
from ottla.broker.requests.embedded import answer_embedded
from ottla.broker.requests.forwarding import PRINCIPAL_VERSION
from ottla.broker.requests.service import CONTROLLER, service
from ottla.broker.roles import Role
from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse
from ottla.messages.headers import decode_request_header, decode_request_header_start
from ottla.quotas import THROTTLE_MS_MAX
from ottla.security.principal import Principal
from ottla.wire.compiler import decode, decode_from


async def handle(parts: Parts, context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    if not parts.controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        frame = memoryview(request.request_data)
        key, version, _ = decode_request_header_start(frame)
        served = parts.home.services[Role.BROKER].get(key)
        if served is None or not served.is_forwarded:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not served.version_min <= version <= served.version_max:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        header, position = decode_request_header(frame, is_flexible=version >= served.api.flexible)
        embedded, _ = decode_from(served.api.request, version, frame, position)
        host = str(ipaddress.ip_address(request.client_host_address))
    except (DecodeError, ValueError):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        principal = _principal(request.request_principal or b"")
    except DecodeError:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        data, pause_ms = await answer_embedded(parts, context, served, header, embedded, principal=principal, client_host=host)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)
    except Exception as error:  # noqa: BLE001 - one client's request must not cost the others of its broker theirs
        fail_loudly(served.api.name, error)
        return EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return EnvelopeResponse(data, metadata_end_offset=parts.image.end_offset, pause_ms=min(pause_ms, THROTTLE_MS_MAX))


def _principal(data: bytes) -> Principal:
    if int.from_bytes(data[:2], "big") != PRINCIPAL_VERSION:
        raise DecodeError("the principal is of a version that is not known")
    found = decode(DefaultPrincipalData, PRINCIPAL_VERSION, data[2:])
    return Principal(found.type, found.name, found.token_authenticated)


SERVICE = service(EnvelopeRequest, handle, roles=CONTROLLER, needs=Operation.CLUSTER_ACTION)

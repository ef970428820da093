"""DescribeUserScramCredentials, version 0: mechanisms and iterations of the users that are named, or of all (KIP-554)."""

from __future__ import annotations

from collections import Counter

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import service
from ottla.broker.tasks.slices import Slices
from ottla.controller.scram_users import credentials_of, users_of
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import Operation
from ottla.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle(
    parts: Parts, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    image, slices = parts.image, Slices(parts.world.clock)
    named = [user.name for user in request.users or ()]
    repeated = {name for name, count in Counter(named).items() if count > 1}
    results = []
    async for name in slices.over(list(dict.fromkeys(named)) or users_of(image)):
        infos = [CredentialInfo(mechanism, iterations) for mechanism, iterations in credentials_of(image, name)]
        if name in repeated:
            text = f"user {name[:100]!r} is listed twice"
            results.append(DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, text))
        elif not infos:
            text = f"user {name[:100]!r} has no credentials"
            results.append(DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, text))
        else:
            results.append(DescribeUserScramCredentialsResult(name, error_message=None, credential_infos=infos))
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


SERVICE = service(DescribeUserScramCredentialsRequest, handle, needs=Operation.DESCRIBE)

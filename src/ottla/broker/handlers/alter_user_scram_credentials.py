"""AlterUserScramCredentials, version 0: credentials are set and removed, one result for each user (KIP-554)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.broker.tasks.slices import Slices, drained
from ottla.controller.decided import Recorded
from ottla.controller.operation_size import too_many_records
from ottla.controller.scram_users import alter_credentials
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.metadata.image import ClusterImage

_Changes = tuple[list[ScramCredentialDeletion], list[ScramCredentialUpsertion]]


async def handle(parts: Parts, context: RequestContext, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    changes: dict[str, _Changes] = {}
    slices = Slices(parts.world.clock)
    async for deletion in slices.over(request.deletions):
        changes.setdefault(deletion.name, ([], []))[0].append(deletion)
    async for upsertion in slices.over(request.upsertions):
        changes.setdefault(upsertion.name, ([], []))[1].append(upsertion)
    excess = too_many_records(len(request.deletions) + len(request.upsertions))
    outcomes = await parts.controller.decide(map(_decision, changes, changes.values()), validate_only=False, refused=excess)
    results = []
    async for user, outcome in slices.over(zip(changes, drained(outcomes), strict=True)):
        result = AlterUserScramCredentialsResult(user, error_message=None)
        if isinstance(outcome, KafkaError):
            result.error_code, result.error_message = outcome.code, outcome.message
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)


def _decision(user: str, changes: _Changes) -> Callable[[ClusterImage], Recorded]:
    return partial(alter_credentials, user=user, deletions=changes[0], upsertions=changes[1])


def _refused(request: AlterUserScramCredentialsRequest, code: ErrorCode) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([*(one.name for one in request.deletions), *(one.name for one in request.upsertions)])
    return AlterUserScramCredentialsResponse(results=[AlterUserScramCredentialsResult(user, code, None) for user in users])


SERVICE = service(
    AlterUserScramCredentialsRequest,
    handle,
    roles=BROKER_AND_CONTROLLER,
    is_forwarded=True,
    needs=Operation.ALTER,
    refused=_refused,
)

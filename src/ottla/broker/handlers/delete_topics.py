"""DeleteTopics, versions 1-6: by name, from v6 also by id; one result each.

The data is deleted with the topic: its directories are renamed at once and removed after the answer.
More than 10,000 in one request are refused entirely, POLICY_VIOLATION.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.handlers.repeated_names import count_names, refused_as_repeated
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.broker.tasks.slices import Slices, drained
from ottla.controller.operation_size import too_many_records
from ottla.controller.topics import delete_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.wire.schema import ZERO_UUID

IDS_SINCE = 6
QUOTA_ERROR_SINCE = 5


async def handle(parts: Parts, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    slices = Slices(parts.world.clock)
    names, ids = request.topic_names, context.version >= IDS_SINCE
    wanted = request.topics if ids else [DeleteTopicState(name) async for name in slices.over(names)]
    image = parts.image
    resolved = [image.topic_names.get(state.topic_id) if state.name is None else state.name async for state in slices.over(wanted)]
    counts = await count_names(slices, resolved)
    results: list[DeletableTopicResult] = []
    accepted: list[tuple[DeletableTopicResult, str | None, bytes]] = []
    may_delete_all = context.may_quietly(Operation.DELETE, ResourceType.CLUSTER, CLUSTER)
    async for state, name in slices.over(zip(wanted, resolved, strict=True)):
        result = DeletableTopicResult(state.name, state.topic_id)
        results.append(result)
        problem = _problem(state, name, counts[name])
        if problem is None and name is not None and not may_delete_all:
            problem = _refusal(context, state, name, result, is_there=name in image.topics)
        if problem is not None:
            result.error_code, result.error_message = problem.code, problem.message
        else:
            accepted.append((result, state.name, state.topic_id))
    budget = parts.throttling.mutations(context, is_strict=context.version >= QUOTA_ERROR_SINCE)
    decisions = (budget.limit(partial(delete_topic, name=name, topic_id=topic_id, config=parts.config)) for _, name, topic_id in accepted)
    excess = too_many_records(len(accepted))
    deleted = await parts.controller.decide(decisions, refused=excess)
    async for (result, _, _), outcome in slices.over(zip(accepted, drained(deleted), strict=True)):
        if isinstance(outcome, KafkaError):
            result.error_code, result.error_message = outcome.code, outcome.message or None
        else:
            result.name, result.topic_id = outcome.name, outcome.records[0].topic_id
    return DeleteTopicsResponse(budget.pause_ms, results)


def _problem(state: DeleteTopicState, name: str | None, count: int) -> KafkaError | None:
    if state.name is not None and state.topic_id != ZERO_UUID:
        return KafkaError(ErrorCode.INVALID_REQUEST, "give a topic's name or its id, not both")
    if state.name is None and state.topic_id == ZERO_UUID:
        return KafkaError(ErrorCode.INVALID_REQUEST, "give a topic's name or its id")
    return None if name is None else refused_as_repeated("topic", name, count)


def _refusal(
    context: RequestContext, state: DeleteTopicState, name: str, result: DeletableTopicResult, *, is_there: bool
) -> KafkaError | None:
    """Returns why the deletion is refused, if it is.

    Only a client that may describe the topic learns whether it exists, and the name of an id.
    """
    is_described = context.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
    if is_described and (context.may(Operation.DELETE, ResourceType.TOPIC, name) or not is_there):
        return None
    if is_described and state.name is None:
        result.name = name
    return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")


SERVICE = service(DeleteTopicsRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True, needs=Asks.HANDLER)

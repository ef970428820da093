"""Changes of configuration on their way from a request to the controller, and back as one result for each resource."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from ottla.broker.authorization import denial
from ottla.broker.handlers.repeated_names import count_names, refused_as_repeated
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.roles import Role
from ottla.broker.tasks.slices import Slices, drained
from ottla.config.keys.dynamic import is_of_store
from ottla.controller.decided import Recorded
from ottla.controller.operation_size import too_many_records
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_GROUP, RESOURCE_TOPIC, ClusterImage


class Resource(Protocol):
    """The resource whose configuration changes, as both requests have it."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[object]: ...


_ASKED_FOR: Final = {RESOURCE_TOPIC: ResourceType.TOPIC, RESOURCE_GROUP: ResourceType.GROUP}
"""What ACLs are about where a resource has a configuration; all others are the cluster's."""
X = TypeVar("X", bound=Resource)
Alteration = Callable[[ClusterImage], Recorded]
CONFIGS_MAX: Final = 1000
NODE_DIGITS_MAX: Final = 10
"""Of one resource in one request: more than there are."""
Result = tuple[int, str | None, int, str]
"""Error code and message, resource type and name."""


def check_right(context: RequestContext, operation: Operation, resource_type: int, name: str) -> None:
    """Raises KafkaError, with the code of the resource's type, unless the client may do this with the resource's configuration."""
    asked_for = _ASKED_FOR.get(resource_type, ResourceType.CLUSTER)
    if not context.may(operation, asked_for, CLUSTER if asked_for is ResourceType.CLUSTER else name):
        raise KafkaError(denial(asked_for))


async def alter_each(
    parts: Parts,
    context: RequestContext,
    resources: Sequence[X],
    alteration: Callable[[X], Alteration | KafkaError],
    *,
    validate_only: bool,
) -> AsyncIterator[Result]:
    """Changes each resource as its alteration decides, or refuses it; one that is listed twice is refused both times.

    Changes of more than 10,000 values in one request are refused entirely, POLICY_VIOLATION.
    """
    slices = Slices(parts.world.clock)
    decision = await _decisions(slices, context, resources, alteration)
    excess = too_many_records(sum([len(resource.configs) async for resource in slices.over(resources)]))
    decisions = map(decision, resources)
    outcomes = await parts.controller.decide(decisions, validate_only=validate_only, refused=excess)
    async for resource, outcome in slices.over(zip(resources, drained(outcomes), strict=True)):
        yield _result(resource, outcome if isinstance(outcome, KafkaError) else None)


async def alter_here(
    parts: Parts, context: RequestContext, resources: Sequence[X], alteration: Callable[[X], Alteration | KafkaError]
) -> AsyncIterator[Result]:
    """Changes what is this process's alone, as ``alter_each`` does, without a controller."""
    slices = Slices(parts.world.clock)
    decision = await _decisions(slices, context, resources, alteration)
    async for resource in slices.over(resources):
        try:
            decision(resource)(parts.image)
        except KafkaError as error:
            yield _result(resource, error)
        else:
            yield _result(resource, None)


async def _decisions(
    slices: Slices, context: RequestContext, resources: Sequence[X], alteration: Callable[[X], Alteration | KafkaError]
) -> Callable[[X], Alteration]:
    counts = await count_names(slices, ((resource.resource_type, resource.resource_name) for resource in resources))

    def decision(resource: X) -> Alteration:
        problem = _unauthorized(context, resource) or _problem(resource, counts[resource.resource_type, resource.resource_name])
        change = problem or alteration(resource)
        return _refusing(change) if isinstance(change, KafkaError) else change

    return decision


def _result(resource: Resource, error: KafkaError | None) -> Result:
    code, text = (ErrorCode.NONE, None) if error is None else (error.code, error.message or None)
    return code, text, resource.resource_type, resource.resource_name


async def refused_first(
    parts: Parts, context: RequestContext, resources: Sequence[X], wanted: Callable[[X], tuple[Mapping[str, str | None], Mapping[str, str]]]
) -> list[Result] | None:
    """Returns the broker's objections to stores of TLS, which it alone can look at; None when it has none.

    ``wanted`` gives what a resource's change sets or removes, and all values that the resource would have. Of a request that is refused
    nothing is done.
    """
    problems: dict[int, KafkaError] = {}
    looked_at: set[str] = set()
    index = -1
    async for resource in Slices(parts.world.clock).over(resources):
        index += 1
        if resource.resource_type != RESOURCE_BROKER or resource.resource_name in looked_at or len(resource.configs) > CONFIGS_MAX:
            continue  # one that is there twice is refused anyway
        looked_at.add(resource.resource_name)
        changed, values = wanted(resource)
        if any(map(is_of_store, changed)) and context.may_quietly(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER):
            try:
                await _check_stores(parts, resource.resource_name, changed, values)
            except KafkaError as error:
                problems[index] = error
    if not problems:
        return None
    others = KafkaError(ErrorCode.INVALID_REQUEST, "nothing was changed: another resource of the request was refused")
    found = [problems.get(index, others) for index in range(len(resources))]
    return [(error.code, error.message, one.resource_type, one.resource_name) for error, one in zip(found, resources, strict=True)]


async def _check_stores(parts: Parts, name: str, changed: Mapping[str, str | None], values: Mapping[str, str]) -> None:
    if not name:
        return  # stores are set for one broker: the controller refuses it
    if name != str(parts.node_id):
        if _is_controller_alone(parts.image, name):
            return  # no client reaches it: it looks itself, when the change is in force
        text = f"the stores are looked at by broker {name[:80]} itself, and this is {parts.node_id}: send the change to that one"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    await parts.stores.check(changed, values)


def _is_controller_alone(image: ClusterImage, name: str) -> bool:
    return name.isdecimal() and len(name) < NODE_DIGITS_MAX and int(name) in image.controllers and int(name) not in image.brokers


def _unauthorized(context: RequestContext, resource: Resource) -> KafkaError | None:
    operation = Operation.ALTER_CONFIGS
    if resource.resource_type == RESOURCE_BROKER_LOGGER and context.connection.role is Role.CONTROLLER:
        operation = Operation.CLUSTER_ACTION
    try:
        check_right(context, operation, resource.resource_type, resource.resource_name)
    except KafkaError as error:
        return error
    return None


def _problem(resource: Resource, count: int) -> KafkaError | None:
    if repeated := refused_as_repeated("resource", resource.resource_name, count):
        return repeated
    if len(resource.configs) > CONFIGS_MAX:
        return too_many_configs(len(resource.configs))
    return None


def too_many_configs(count: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{count} configs of one resource; the limit is {CONFIGS_MAX}")


def _refusing(error: KafkaError) -> Alteration:
    def refuse(_: ClusterImage) -> Recorded:
        raise error

    return refuse

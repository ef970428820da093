"""One API as this broker serves it.

A handler module declares ``SERVICE``; that registers it. What its principal needs is declared, too: there is no API without a rule.
A handler returns a response, or None when it has arranged for the answer itself, or a coroutine; one that finishes without suspending
costs no Task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from ottla.broker.requests.context import RequestContext
from ottla.broker.roles import Role
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.registry import API_OF_REQUEST, Api
from ottla.wire.schema import Request, Response

Handle = Callable[[Any, RequestContext, Any], Response | Coroutine[Any, Any, Response | None] | None]
"""What a handler may touch (``parts.Parts``), who asks, and the request."""

Refused = Callable[[Any, ErrorCode], Response]
"""The answer to a request that is refused as a whole with that error code, where it has no place for the code at its top."""


First = Callable[[Any, RequestContext, Any], Coroutine[Any, Any, Response | None]]
"""The answer, when the request is refused; else None."""


class Asks(Enum):
    """The part that checks a principal's rights where the gate does not."""

    NOBODY = "everybody may"
    HANDLER = "the handler, for each resource that the request names"


class Need(Struct, frozen=True):
    """An operation on the one resource that a field of the request names."""

    operation: Operation
    resource_type: ResourceType
    field: str


Needs = Operation | Need | Asks
"""An operation alone is one on the cluster."""

BROKER: Final = frozenset({Role.BROKER})
CONTROLLER: Final = frozenset({Role.CONTROLLER})
BROKER_AND_CONTROLLER: Final = BROKER | CONTROLLER


class Service(Struct, frozen=True):
    """Served in the versions that the messages are declared for."""

    api: Api
    handle: Handle
    """Of who is connected here; ``first`` has a part in it."""
    needs: Needs
    """Who may not do that is refused before the handler. It has no default: an API without a rule would be open to all."""
    handle_many: Handle | None = None
    """In place of ``handle``, for requests of so many elements that they were decoded in steps."""
    waits_for_others: bool = False
    """Its answer may wait for other requests (a join for other joins): such a wait is no work of the broker's."""
    version_min_listed: int = 0
    """What ApiVersions reports, which may be below what is served."""
    roles: frozenset[Role] = BROKER
    """Whose listeners it is served on: as Kafka's message definitions say."""
    is_forwarded: bool = False
    """A broker whose own controller is not the active one passes it on, whole."""
    refused: Refused | None = None
    first: First | None = None
    """What the node that the client is connected to looks at itself, before it passes the request on or decides."""
    embedded: Handle | None = None
    """In place of ``handle``, for a request that another node has passed on."""

    @property
    def version_min(self) -> int:
        return self.api.version_min

    @property
    def version_max(self) -> int:
        return self.api.version_max


def service(
    request: type[Request],
    handle: Handle,
    *,
    handle_many: Handle | None = None,
    waits_for_others: bool = False,
    listed_from: int | None = None,
    roles: frozenset[Role] = BROKER,
    is_forwarded: bool = False,
    needs: Needs,
    refused: Refused | None = None,
    first: First | None = None,
) -> Service:
    """Returns the service of that request's API. ``listed_from`` is for an API that is listed in versions which are then refused."""
    api = API_OF_REQUEST[request]
    assert isinstance(needs, Asks) or refused or "error_code" in api.response.__struct_fields__, f"{api.name} cannot say that it is refused"
    low = api.version_min if listed_from is None else listed_from
    own = handle if first is None else after(first, lambda parts, context, request: _answer(handle(parts, context, request)))
    return Service(api, own, needs, handle_many, waits_for_others, low, roles, is_forwarded, refused, first, handle)


def after(first: First, then: Callable[[Any, RequestContext, Any], Awaitable[Response | None]]) -> Handle:
    """Returns a handler: ``then`` handles what ``first`` leaves to it."""

    async def handle(parts: Any, context: RequestContext, request: Any) -> Response | None:
        return await first(parts, context, request) or await then(parts, context, request)

    return handle


async def _answer(result: Response | Coroutine[Any, Any, Response | None] | None) -> Response | None:
    return result if result is None or isinstance(result, Response) else await result

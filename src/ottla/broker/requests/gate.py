"""What a request passes between its frame and its handler, in this order:

1. *Who asks* is the principal of its connection (``RequestContext.principal``). What a SASL mechanism finds out is set there.
2. *Whether they may*: what the API's service declares (``Service.needs``), an operation on the cluster or on the one resource that the
   request names, is asked of the authorizer, once for each request. Where a request names several, its handler asks for each of them.
3. *How long it takes* is the client's to pay for, where requests are timed (``throttling.py``).
4. *The handler* runs at once; what it leaves to a coroutine is answered when that ends.

A request that came inside another one (``embedded.py``) passes the second as well, as the client that it is from.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType
from typing import Any, Final

import msgspec

from ottla.broker.authorization import DENIED, denial
from ottla.broker.requests.context import RequestContext, fail
from ottla.broker.requests.large import Workload
from ottla.broker.requests.service import Asks, Handle, Need, Service
from ottla.broker.requests.throttling import Throttling
from ottla.broker.tasks import eager
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.wire.schema import Response

log = get_logger(__name__)

_HANDLER: Final = Asks.HANDLER

Forward = Callable[[RequestContext, bytes], None]
"""Passes a request on, as it came, to the active controller."""


class Gate:
    """The gate of one node. ``forward`` is None where its own controller is always the active one."""

    def __init__(self, throttling: Throttling, workload: Workload, forward: Forward | None) -> None:
        self._throttling = throttling
        self._workload = workload
        self.forward = forward
        self._parts: Any = None

    def begin(self, parts: Any) -> None:
        """Gives handlers these (``parts.Parts``): there is everything that serves a request."""
        self._parts = parts

    def enter(self, service: Service, handle: Handle, context: RequestContext, request: Any, kept: bytes | None = None) -> None:
        """Starts the request, or refuses it.

        ``kept`` is its frame, to be passed on if this node's controller turns out not to be active.
        """
        if service.needs is not _HANDLER and not is_allowed(service, context, request):
            refuse(service, context, request)
        elif self._throttling.times_requests:
            context.is_of_node = service.needs is Operation.CLUSTER_ACTION
            self._throttling.run(context, lambda: self._run(service, handle, context, request, kept))
        else:  # as ``_run``, which a call would make dearer
            result = handle(self._parts, context, request)
            if result is not None:
                self._finish(service, context, result, kept)

    def _run(self, service: Service, handle: Handle, context: RequestContext, request: Any, kept: bytes | None) -> None:
        result = handle(self._parts, context, request)
        if result is not None:
            self._finish(service, context, result, kept)

    def _finish(self, service: Service, context: RequestContext, result: Any, kept: bytes | None) -> None:
        if type(result) is CoroutineType:
            finish = _Finish(self._workload, self.forward, context, kept)
            if not eager.run(result, finish) and not service.waits_for_others:
                finish.is_counted = True
                self._workload.begin_work(1)
            return
        assert isinstance(result, Response), "a handler returns a response, a coroutine or None"
        context.reply(result)


def is_allowed(service: Service, context: RequestContext, request: Any) -> bool:
    """True when the principal may do what the service needs."""
    needs = service.needs
    if isinstance(needs, Asks):
        return True
    if isinstance(needs, Need):
        return context.may(needs.operation, needs.resource_type, getattr(request, needs.field))
    return context.may(needs, ResourceType.CLUSTER, CLUSTER)


def refuse(service: Service, context: RequestContext, request: Any) -> None:
    """Answers with the error code of the resource's type."""
    needs = service.needs
    code = denial(needs.resource_type if isinstance(needs, Need) else ResourceType.CLUSTER)
    if service.refused is not None:
        response: Any = service.refused(request, code)
    else:
        response = service.api.response()
        response.error_code = code
        if "error_message" in response.__struct_fields__:
            response.error_message = DENIED[code]
    context.reply(response)


class _Finish(msgspec.Struct, eq=False):
    """Answers when a handler's coroutine has ended. A failure that is not an answer costs the client its connection."""

    workload: Workload
    forward: Forward | None
    context: RequestContext
    kept: bytes | None
    is_counted: bool = False

    def __call__(self, response: Response | None, error: BaseException | None) -> None:
        if self.is_counted:
            self.workload.end_work(1)
        if error is not None:
            kept, forward = self.kept, self.forward
            if kept is not None and forward is not None and isinstance(error, KafkaError) and error.code == ErrorCode.NOT_CONTROLLER:
                forward(self.context, kept)
            else:
                fail(self.context, error)
        elif response is not None:
            self.context.reply(response)

"""What the voters and observers of the metadata log ask of each other, on the controllers' listener (KIP-595, 630).

Versions: Vote 0-2, BeginQuorumEpoch 0-1, EndQuorumEpoch 0-1, FetchSnapshot 0-1, and Fetch 4-18 of the metadata log.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import CONTROLLER, service
from ottla.consensus.calls import Answer
from ottla.consensus.wire_form import from_message, to_answer_message
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import Operation
from ottla.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.messages.end_quorum_epoch import EndQuorumEpochRequest
from ottla.messages.fetch import FetchRequest
from ottla.messages.fetch_snapshot import FetchSnapshotRequest
from ottla.messages.vote import VoteRequest
from ottla.wire.schema import Request, Response


class _Asked:
    """A request that the quorum has not answered yet; a ``context.Parked``."""

    __slots__ = ("_context", "_parts", "token")

    def __init__(self, parts: Parts, context: RequestContext) -> None:
        self._parts = parts
        self._context = context
        self.token: Any = None

    def answer(self, answer: Answer) -> None:
        self._context.connection.parked.pop(self, None)
        self._context.reply(to_answer_message(answer))

    def abandon(self) -> None:
        self._parts.home.metadata.on_request_dropped(self.token)


def handle(parts: Parts, context: RequestContext, request: Request) -> Response | None:
    """Passes the request to the machine, which answers when it can: a fetch may wait for records."""
    call = from_message(request)
    if call is None:
        return refused(context)
    asked = _Asked(parts, context)
    asked.token = asked.answer
    context.connection.parked[asked] = None
    parts.home.metadata.on_request(call, asked.token)
    return None


def refused(context: RequestContext) -> Response:
    """Refuses a request about another log than the one there is."""
    response: Any = context.api.response()
    response.error_code = ErrorCode.INVALID_REQUEST
    assert isinstance(response, Response), "an API has a response"
    return response


SERVICES = tuple(
    service(request, handle, roles=CONTROLLER, needs=Operation.CLUSTER_ACTION)
    for request in (VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, FetchSnapshotRequest)
)

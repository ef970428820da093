"""ListPartitionReassignments, version 0: the moves that are under way (KIP-455). With one broker there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse

if TYPE_CHECKING:
    from ottla.broker.parts import Parts


def handle(parts: Parts, context: RequestContext, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)


SERVICE = service(ListPartitionReassignmentsRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True)

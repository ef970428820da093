"""ListTransactions, versions 0-2: there are none, as transactional ids are not served; filters are checked as Kafka checks them.

v1 KIP-994; v2 KIP-1152: a pattern that is no regular expression is INVALID_REGULAR_EXPRESSION.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode
from ottla.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from ottla.broker.parts import Parts

STATES: Final = frozenset(
    {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}
)
PATTERN_LENGTH_MAX: Final = 1000


async def handle(parts: Parts, context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    if not _is_pattern(request.transactional_id_pattern or ""):
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    filters = Slices(parts.world.clock).over_distinct(request.state_filters)
    unknown = [state async for state in filters if state not in STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)


def _is_pattern(text: str) -> bool:
    try:
        return len(text) <= PATTERN_LENGTH_MAX and bool(re.compile(text))
    except (re.error, RecursionError, OverflowError):
        return False


SERVICE = service(ListTransactionsRequest, handle)

"""ListTransactions, versions 0-2: the transactions that this broker coordinates, those that pass all filters (KIP-664).

A filter that is empty lets everything pass. v1 how long they have been running (KIP-994); v2 a pattern of ids (KIP-1152), a regular
expression, else INVALID_REGULAR_EXPRESSION. COORDINATOR_LOAD_IN_PROGRESS while some of them are not known yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState
from ottla.transactions.commands import ListTransactions
from ottla.transactions.transaction import STATE_NAMES
from ottla.transactions.transaction import TransactionState as State

if TYPE_CHECKING:
    from ottla.broker.parts import Parts

_STATES: Final = frozenset(STATE_NAMES.values())
PATTERN_LENGTH_MAX: Final = 1000


async def handle(parts: Parts, context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    slices = Slices(parts.world.clock)
    try:
        matches = _matcher(request.transactional_id_pattern or "")
        listed = await parts.transactions.ask_all(ListTransactions)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    filters = [state async for state in slices.over_distinct(request.state_filters)]
    states, producer_ids = frozenset(filters) & _STATES, frozenset(request.producer_id_filters)
    unknown = [state for state in filters if state not in _STATES]
    now_ms, duration_ms = parts.world.clock.now_ms(), request.duration_filter
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    for result in listed:
        async for transactional_id, found in slices.over(result.transactions):
            is_running = found.start_ms >= 0 and (found.state == State.ONGOING or found.state.is_prepared)
            if (
                (not filters or STATE_NAMES[found.state] in states)
                and (not producer_ids or found.producer_id in producer_ids)
                and (duration_ms < 0 or (is_running and now_ms - found.start_ms > duration_ms))
                and matches(transactional_id)
                and context.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
            ):
                shown = TransactionState(transactional_id, found.producer_id, STATE_NAMES[found.state])
                response.transaction_states.append(shown)
    return response


def _matcher(pattern: str) -> Callable[[str], Any]:
    """Whether a whole id matches, in a time that grows with its length and no faster."""
    if not pattern:
        return lambda transactional_id: True
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"a pattern has at most {PATTERN_LENGTH_MAX} characters")
        match: Callable[[str], Any] = re2.compile(pattern, options=options).fullmatch
    except re2.error as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"the pattern is no regular expression: {error}") from error
    return match


SERVICE = service(ListTransactionsRequest, handle, needs=Asks.HANDLER)

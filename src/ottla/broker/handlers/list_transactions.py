"""ListTransactions, versions 0-2: the transactions that this broker coordinates, those that pass all filters (KIP-664).

A filter that is empty lets everything pass. v1 how long they have been running (KIP-994); v2 a pattern of ids (KIP-1152), a regular
expression, else INVALID_REGULAR_EXPRESSION. COORDINATOR_LOAD_IN_PROGRESS while some of them are not known yet. A
coordinator that cannot commit lists what it has.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.handlers.patterns import matcher
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import KafkaError
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState
from ottla.transactions.commands import ListTransactions
from ottla.transactions.transaction import STATE_NAMES
from ottla.transactions.transaction import TransactionState as State

_STATES: Final = frozenset(STATE_NAMES.values())


async def handle(parts: Parts, context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    slices = Slices(parts.world.clock)
    try:
        pattern = request.transactional_id_pattern
        matches = matcher(pattern) if pattern else _any
        listed = await parts.transactions.list_all(ListTransactions)
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


def _any(transactional_id: str) -> bool:
    return True


SERVICE = service(ListTransactionsRequest, handle, needs=Asks.HANDLER)

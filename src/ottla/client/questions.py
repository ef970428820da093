"""Requests that every broker answers; where one leaves unanswered what changes nothing, another is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final, Protocol, TypeVar

from ottla.client.background import background
from ottla.client.connection import ClientConnection
from ottla.client.late_answers import LATE_MS
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.api_keys import ApiKey
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.registry import API_OF_REQUEST
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
_QUESTIONS: Final = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)
_UNANSWERED: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)


class Brokers(Protocol):
    """The cluster, as far as any of its brokers can be asked."""

    is_closed: bool

    async def any_connection(self, asked: Collection[str] = ()) -> ClientConnection: ...


def may_ask_another(request: Request, error: KafkaError) -> bool:
    """True when the request is such a question, and the error says that its broker has not answered it."""
    return error.code in _UNANSWERED and _is_question(request)


def _is_question(request: Request) -> bool:
    if isinstance(request, InitProducerIdRequest):
        return request.transactional_id is None  # an id that no producer takes is no loss
    return API_OF_REQUEST[type(request)].key in _QUESTIONS


async def ask_any(brokers: Brokers, request: Request, response_type: type[R], *, timeout_ms: int) -> R:
    """Returns the answer of any broker. A question that one has not answered in LATE_MS, or cannot answer, is asked another.

    Each is asked once, and the first answer counts. Connections stay open: their other requests may still be answered.
    """
    connection = await brokers.any_connection()
    if not _is_question(request):
        return await connection.ask(request, response_type, timeout_ms=timeout_ms)
    asked: dict[str, asyncio.Task[R]] = {}
    try:
        while True:
            is_another = connection.address not in asked
            if is_another:
                asked[connection.address] = background(connection.ask(request, response_type, timeout_ms=timeout_ms))
            running = [task for task in asked.values() if not task.done()]
            if not running:  # no other broker can be reached
                return list(asked.values())[-1].result()
            done, _ = await asyncio.wait(running, timeout=LATE_MS / 1000 if is_another else None, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if brokers.is_closed or not _has_failed(task, request):
                    return task.result()
            if not done:
                connection.suspect()
            connection = await brokers.any_connection(asked)
    finally:
        for task in asked.values():
            if not task.cancel() and not task.cancelled():
                task.exception()


def _has_failed(task: asyncio.Task[R], request: Request) -> bool:
    """True when the broker has not answered the question, and another may."""
    error = task.exception()
    return isinstance(error, KafkaError) and may_ask_another(request, error)

"""Requests that every broker answers; where one leaves unanswered what changes nothing, another is asked."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, TypeVar

from ottla.client.background import background
from ottla.client.connection import ClientConnection
from ottla.client.late_answers import LATE_MS
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.api_keys import ApiKey
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

    async def any_connection(self) -> ClientConnection: ...


def may_ask_another(request: Request, error: KafkaError) -> bool:
    """True when the request is such a question, and the error says that its broker has not answered it."""
    return error.code in _UNANSWERED and _is_question(request)


def _is_question(request: Request) -> bool:
    return API_OF_REQUEST[type(request)].key in _QUESTIONS


async def ask_any(brokers: Brokers, request: Request, response_type: type[R], *, timeout_ms: int) -> R:
    """Returns the answer of any broker. A question that one has not answered in LATE_MS, or cannot answer, is asked another."""
    connection = await brokers.any_connection()
    if not _is_question(request):
        return await connection.ask(request, response_type, timeout_ms=timeout_ms)
    problem: KafkaError | None = None
    asking = background(connection.ask(request, response_type, timeout_ms=timeout_ms))
    try:
        await asyncio.wait({asking}, timeout=LATE_MS / 1000)
        if asking.done():
            try:
                return asking.result()
            except KafkaError as error:
                if brokers.is_closed or not may_ask_another(request, error):
                    raise
                problem = error
        else:
            connection.suspect()  # its other requests may still be answered: it stays open
        another = await brokers.any_connection()
        if another.address != connection.address:
            return await another.ask(request, response_type, timeout_ms=timeout_ms)
        if problem is not None:  # no other broker can be reached
            raise problem
        return await asking
    finally:
        asking.cancel()

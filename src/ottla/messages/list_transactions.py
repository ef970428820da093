"""The transactions that a broker coordinates (KIP-664)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Request, api_key=66, versions=(0, 2), flexible=0):
    state_filters: list[str] = array(string())
    producer_id_filters: list[int] = array(int64())
    duration_filter: int = int64(default=-1, since=1)
    transactional_id_pattern: str | None = string(default=None, since=2, nullable=2)


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Response, api_key=66, versions=(0, 2), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string())
    transaction_states: list[TransactionState] = array(TransactionState)

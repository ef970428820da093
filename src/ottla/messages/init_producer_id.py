"""A producer id and epoch for an idempotent or transactional producer (KIP-98, KIP-360)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, int16, int32, int64, string


class InitProducerIdRequest(Request, api_key=22, versions=(0, 5), flexible=2):
    transactional_id: str | None = string(nullable=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(default=-1, since=3)
    producer_epoch: int = int16(default=-1, since=3)


class InitProducerIdResponse(Response, api_key=22, versions=(0, 5), flexible=2):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()

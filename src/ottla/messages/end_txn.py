"""A transaction is committed or aborted; from version 5 on the answer has the producer's next epoch (KIP-98, KIP-890)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, boolean, int16, int32, int64, string


class EndTxnRequest(Request, api_key=26, versions=(0, 5), flexible=3):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Response, api_key=26, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1, since=5)
    producer_epoch: int = int16(default=-1, since=5)

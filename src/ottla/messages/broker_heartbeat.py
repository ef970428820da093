"""A broker's heartbeat to the active controller: its metadata offset, and what it wants (KIP-631; failed directories KIP-858)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, array, boolean, int16, int32, int64, uuid


class BrokerHeartbeatRequest(Request, api_key=63, versions=(0, 2), flexible=0):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array(uuid(), since=1, tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid(), default=None, since=2, nullable=2, tag=1)


class BrokerHeartbeatResponse(Response, api_key=63, versions=(0, 2), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()

"""Topics vanish, by name or from v6 by id."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string(default=None, nullable=6)
    topic_id: bytes = uuid()


class DeleteTopicsRequest(Request, api_key=20, versions=(1, 6), flexible=4):
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(string(), until=5)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable=6)
    topic_id: bytes = uuid(since=6)
    error_code: int = int16()
    error_message: str | None = string(default=None, since=5, nullable=5)


class DeleteTopicsResponse(Response, api_key=20, versions=(1, 6), flexible=4):
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)

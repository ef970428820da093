"""Where those wait who connect to a broker that has not joined its cluster yet, and is refused because its predecessor seems to live.

A controller that asks which process listens here is answered, if it has the rights of a node. Everything else waits, unread, as it would if
no connection were accepted: clients that met a broker with no other request would take it for one of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.broker.requests.answers import encode_answer
from ottla.broker.requests.connection import BrokerConnection
from ottla.broker.requests.context import ReplyQuotas, RequestContext
from ottla.broker.requests.router import Router
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.headers import decode_request_header, decode_request_header_start
from ottla.messages.registry import API_OF_REQUEST
from ottla.wire.compiler import decode_from
from ottla.wire.schema import Response

_API = API_OF_REQUEST[ApiVersionsRequest]


class Doorstep:
    """A ``connection.Dispatcher``, of connections that the router has accepted."""

    def __init__(self, router: Router, incarnation_id: bytes) -> None:
        self._router = router
        self._incarnation_id = incarnation_id
        self._connections: dict[BrokerConnection, bool] = {}  # and whether each has asked for more
        self.frame_memory = router.frame_memory
        self.request_memory = router.request_memory
        self.refusals = router.refusals
        self.timing = router.timing

    @property
    def topic_names(self) -> Mapping[bytes, str]:
        return self._router.topic_names

    @property
    def quotas(self) -> ReplyQuotas:
        return self._router.quotas

    @property
    def is_held(self) -> bool:
        return self._router.is_held

    def enter(self, connection: BrokerConnection) -> None:
        """Lets the connection wait here."""
        self._connections.setdefault(connection, False)
        connection.pipeline = self

    def open(self) -> None:
        """Lets all in, with what they have asked meanwhile."""
        waiting, self._connections = self._connections, {}
        for connection, has_asked in waiting.items():
            if connection.pipeline is self:  # a session that has expired meanwhile is on the threshold, and stays there
                connection.pipeline = self._router
            if has_asked:
                connection.release()

    def dispatch(self, connection: BrokerConnection, frame: memoryview) -> bool:
        correlation_id = _asks_incarnation(frame)
        is_node = connection.rights.allowed(ResourceType.CLUSTER, CLUSTER) >> Operation.CLUSTER_ACTION & 1
        if correlation_id is None or not is_node:
            self._connections[connection] = True
            connection.hold()
            return False
        api, version = _API, decode_request_header_start(frame)[1]
        answer = encode_answer(api, version, correlation_id, ApiVersionsResponse(incarnation_id=self._incarnation_id))
        connection.complete(connection.enter(), answer)
        return True

    def forget(self, connection: BrokerConnection) -> None:
        self._connections.pop(connection, None)
        self._router.forget(connection)

    def begin_burst(self) -> int:
        return self._router.begin_burst()

    def end_burst(self) -> bool:
        return False

    def close_burst(self) -> None:
        self._router.close_burst()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._router.call_soon(callback)

    def end_large(self, connection: BrokerConnection) -> None:
        self._router.end_large(connection)

    def reply_in_steps(self, context: RequestContext, response: Response) -> None:
        self._router.reply_in_steps(context, response)


def _asks_incarnation(frame: memoryview) -> int | None:
    """Returns the correlation id of a request that asks which process this is; None for any other. DecodeError for what is none."""
    api_key, version, correlation_id = decode_request_header_start(frame)
    if api_key != _API.key or not _API.flexible <= version <= _API.version_max:
        return None
    _, position = decode_request_header(frame, is_flexible=True)
    request, _ = decode_from(ApiVersionsRequest, version, frame, position)
    return correlation_id if request.asks_incarnation else None

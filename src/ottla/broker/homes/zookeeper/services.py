"""What a broker in ZooKeeper mode serves, before it has joined its cluster and after.

The controller is where its broker is: it serves what controllers and brokers ask of each other on the listener on which brokers reach each
other, and nowhere else, and only to who may do what concerns the cluster. The metadata log has the users' credentials and all ACLs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from ottla.broker.handlers import SERVICES
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.gate import is_allowed, refuse
from ottla.broker.requests.service import Service
from ottla.broker.roles import Role
from ottla.errors import DecodeError
from ottla.messages.api_keys import ApiKey
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.fetch import FetchRequest

OF_CONTROLLERS: Final = frozenset(
    {ApiKey.ENVELOPE, ApiKey.ALTER_PARTITION, ApiKey.BROKER_HEARTBEAT, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.FETCH_SNAPSHOT}
)
"""What brokers ask of the controller."""
OF_QUORUMS: Final = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.UNREGISTER_BROKER})
"""What says something about a quorum, or only makes sense with one."""
METADATA_TOPIC_ID: Final = bytes(15) + b"\1"
_BROKERS: Final = SERVICES[Role.BROKER]
_FETCH_METADATA: Final = SERVICES[Role.CONTROLLER][ApiKey.FETCH]


class Services:
    """The services of one broker in ZooKeeper mode. ``on_client`` gets the name of each client that connects.

    ``listener`` is the one on which brokers reach each other.
    """

    def __init__(self, on_client: Callable[[str | None], None], listener: str) -> None:
        self._on_client = on_client
        self._listener = listener
        between: dict[int, Service] = {
            **{key: self._between(SERVICES[Role.CONTROLLER][key]) for key in OF_CONTROLLERS},
            ApiKey.API_VERSIONS: replace(_BROKERS[ApiKey.API_VERSIONS], handle=self._api_versions),
        }
        clients = {key: service for key, service in _BROKERS.items() if key not in OF_QUORUMS}
        fetch = _BROKERS[ApiKey.FETCH]
        self.of_joined: Mapping[Role, Mapping[int, Service]] = {
            Role.BROKER: {**clients, **between, ApiKey.FETCH: replace(fetch, handle=self._fetch)},
            Role.CONTROLLER: {},
        }
        self.of_joining: Mapping[Role, Mapping[int, Service]] = {
            Role.BROKER: {**between, ApiKey.FETCH: replace(fetch, handle=self._fetch_metadata)},
            Role.CONTROLLER: {},
        }

    def _between(self, service: Service) -> Service:
        """Returns a service that every other listener refuses, where clients are."""
        return replace(service, handle=partial(self._handle_between, service))

    def _handle_between(self, service: Service, parts: Any, context: RequestContext, request: Any) -> Any:
        if context.connection.listener != self._listener:
            return refuse(service, context, request)
        return service.handle(parts, context, request)

    def _fetch(self, parts: Any, context: RequestContext, request: FetchRequest) -> Any:
        """Passes a fetch of the metadata log to the controller; any other one is a consumer's, or a follower's."""
        if _is_of_metadata(request):
            return self._of_metadata(parts, context, request)
        return _BROKERS[ApiKey.FETCH].handle(parts, context, request)

    def _fetch_metadata(self, parts: Any, context: RequestContext, request: FetchRequest) -> Any:
        """Passes on a fetch of the metadata log; of another log it ends the connection, as all that is not served yet does."""
        if not _is_of_metadata(request):
            raise DecodeError("only the metadata log can be fetched yet")
        return self._of_metadata(parts, context, request)

    def _of_metadata(self, parts: Any, context: RequestContext, request: FetchRequest) -> Any:
        """Answers a fetch of the metadata log, which does not need a consumer's rights to each of its topics."""
        if not is_allowed(_FETCH_METADATA, context, request):
            return refuse(_FETCH_METADATA, context, request)
        return self._handle_between(_FETCH_METADATA, parts, context, request)

    def _api_versions(self, parts: Any, context: RequestContext, request: ApiVersionsRequest | None) -> Any:
        """Answers, and notes the client: every connection of a broker starts with this request."""
        self._on_client(context.client_id)
        return _BROKERS[ApiKey.API_VERSIONS].handle(parts, context, request)


def _is_of_metadata(request: FetchRequest) -> bool:
    return bool(request.topics) and request.topics[0].topic_id == METADATA_TOPIC_ID

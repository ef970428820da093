"""One request on its way through the broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from ottla.broker.authorization import DEFINED, Rights
from ottla.broker.requests.answers import encode_answer
from ottla.broker.requests.burst_timing import BurstTiming
from ottla.broker.requests.counted_errors import told_errors
from ottla.broker.requests.repeated_answer import RepeatedAnswer
from ottla.broker.roles import Role
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import REQUESTS, Chatty, get_logger
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.registry import Api
from ottla.metrics import RequestMeters
from ottla.net.response_queue import ResponseSlot
from ottla.ports import Connection
from ottla.security.principal import Principal
from ottla.wire.primitives import ManyElements
from ottla.wire.schema import Response

log = get_logger(__name__)
_REQUESTS: Final = Chatty(REQUESTS)


class Parked(Protocol):
    """A request that waits for something on behalf of a connection."""

    def abandon(self) -> None:
        """Abandons the request: no client is left that the answer could be sent to."""
        ...


class ReplyQuotas(Protocol):
    """The quotas that decide whether a client has to pause for the cost of its requests."""

    times_requests: bool

    def on_reply(self, context: RequestContext, response: Response) -> None:
        """Adjusts the response, which is about to be encoded."""
        ...

    def pause(self, context: RequestContext, pause_ms: int) -> None:
        """Does not read the client for that time, once its answer has its place."""
        ...


class Pipeline(Protocol):
    """The way of an answer from its handler to the connection."""

    @property
    def timing(self) -> BurstTiming: ...

    @property
    def quotas(self) -> ReplyQuotas: ...

    @property
    def topic_names(self) -> Mapping[bytes, str]:
        """The names of the topics, by id."""
        ...

    def reply_in_steps(self, context: RequestContext, response: Response) -> None:
        """Sends the response, of many elements, once it is encoded."""
        ...


class Channel(Protocol):
    """The connection that a request came on, as far as its handler and its answer may touch it."""

    transport: Connection
    listener: str
    role: Role
    principal: Principal
    rights: Rights
    muted_until_ms: int
    parked: dict[Parked, None]
    watches: dict[Parked, None]

    @property
    def pipeline(self) -> Pipeline: ...

    @property
    def client_host(self) -> str: ...

    def complete(self, place: ResponseSlot, answer: Sequence[Any]) -> None:
        """Completes the answer, which leaves after the earlier ones."""
        ...

    def hold(self) -> None:
        """Starts no later request until there was a ``release`` for each ``hold``."""
        ...

    def release(self) -> None: ...

    def update_reading(self) -> None:
        """Reads from it, or not, as it should be by now."""
        ...

    def expect_write(self, count: int) -> None:
        """Notes that the records of so many produce requests are being written by a thread."""
        ...

    def written(self, count: int) -> None:
        """Notes that they are in their logs, or were refused."""
        ...

    def gather_answers(self) -> None:
        """Answers wait for ``send_answers``."""
        ...

    def send_answers(self) -> None:
        """Sends the answers that are ready, in one system call."""
        ...


class RequestContext(msgspec.Struct, eq=False):
    """The circumstances of one request: its client, its version, and the place of its answer in line."""

    connection: Channel
    place: ResponseSlot
    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    meters: RequestMeters
    began_us: int
    work_us: int = 0  # what it kept the loop busy for, when that is measured
    is_of_node: bool = False  # what another node asks for, which no quota of clients holds back
    repeated_answer: RepeatedAnswer | None = None  # of a produce request like the one before

    @property
    def principal(self) -> Principal:
        """Who asks: what the connection has authenticated as."""
        return self.connection.principal

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """True when the caller may do this with the resource."""
        return self.connection.rights.may(operation, resource_type, name)

    def may_quietly(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Answers as ``may``, where something else is asked after a denial, or the resource is left out: the audit log does not have it."""
        return bool(self.connection.rights.allowed(resource_type, name) >> operation & 1)

    def allowed(self, resource_type: ResourceType, name: str) -> int:
        """Returns all that the caller may do with the resource, as a bit field (KIP-430)."""
        return self.connection.rights.allowed(resource_type, name) & DEFINED[resource_type]

    def reply(self, response: Response) -> None:
        """Sends the response when its turn comes."""
        pipeline = self.connection.pipeline
        quotas = pipeline.quotas
        if quotas.times_requests:
            quotas.on_reply(self, response)
        if _REQUESTS.is_wanted:
            self._tell(response)
        meters = self.meters
        if meters.has_error_code and (code := response.error_code):  # type: ignore[attr-defined]
            meters.count_error(code)
        if (nested := meters.nested) is not None:
            for code in nested(response):
                meters.count_error(code)
        repeated = self.repeated_answer
        if repeated is not None and (whole := repeated.encode(self.correlation_id, response)) is not None:  # type: ignore[arg-type]
            pipeline.timing.answered(meters, self.began_us)
            self.connection.complete(self.place, (whole,))
            return
        try:
            answer = encode_answer(self.api, self.version, self.correlation_id, response)
        except ManyElements:
            pipeline.reply_in_steps(self, response)
        else:  # as ``complete``, which a call would make dearer
            pipeline.timing.answered(meters, self.began_us)
            self.connection.complete(self.place, answer)

    def _tell(self, response: Response) -> None:
        """Notes the request in the log of requests."""
        connection = self.connection
        _REQUESTS.log.debug(
            "request", api=self.api.name, version=self.version, correlation_id=self.correlation_id, client_id=self.client_id,
            host=connection.client_host, listener=connection.listener, principal=str(connection.principal),
            took_us=connection.pipeline.timing.now_us() - self.began_us, **told_errors(response, connection.pipeline.topic_names),
        )  # fmt: skip

    def reply_nothing(self, response: Response) -> None:
        """Completes a request that gets no answer (acks=0); the response is what it would be."""
        if _REQUESTS.is_wanted:
            self._tell(response)
        self.complete(())

    def complete(self, answer: Sequence[Any]) -> None:
        """Sends the answer when its turn comes."""
        connection = self.connection
        connection.pipeline.timing.answered(self.meters, self.began_us)
        connection.complete(self.place, answer)


def fail(context: RequestContext, error: BaseException) -> None:
    """Fails the request by a mistake of ours, or of a controller that lost its office: it is logged, and the connection ends."""
    if isinstance(error, KafkaError) and error.code == ErrorCode.NOT_CONTROLLER:
        log.info("request_not_decided", api=context.api.name, reason=error.message)
    else:
        fail_loudly(context.api.name, error)
    context.connection.transport.abort()


def fail_loudly(what: str, error: BaseException) -> None:
    log.error("request_failed", api=what, exc_info=error)

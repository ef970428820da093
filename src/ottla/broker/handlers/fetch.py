"""Fetch, versions 4-18.

Answers at once when min_bytes are there, something failed or nothing may be waited for; else the request is parked and
answered by the append that completes it, or at its deadline. Batches are never cut into: the first one is sent completely even
when it is larger than allowed, and an offset inside a batch returns the complete batch. v7 sessions (KIP-227); v12
diverging epochs; v13 topic ids (KIP-516); v16 leader hints (KIP-951). A parked request is answered when a leader changes.

Consumers read up to the high watermark, of the leader or of a replica in their rack (KIP-392), followers up to the log's end; what
a follower asks for says what it has (KIP-101, KIP-903).
An offset between the two is no error for a consumer: a new leader's high watermark may be below the last one's. Followers answer
those who compare replicas (replica id -2), and consumers that name their rack.
"""

from __future__ import annotations

import asyncio

from ottla.broker.fetching.consumer import ComparingPolicy, ConsumerPolicy, RefusedPolicy
from ottla.broker.fetching.fetch_pass import FetchPass, Policy
from ottla.broker.parts import Parts
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.waiting import AT_ONCE
from ottla.broker.requests.context import RequestContext, fail
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks import eager
from ottla.errors import KafkaError
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.fetch import TOPIC_IDS_SINCE, FetchRequest, FetchResponse
from ottla.replication.fetch_sessions import FetchSession

REPLICA_STATE_SINCE = 15
WAIT_MS_MAX = 2**31 - 1
CONSUMER, COMPARING = -1, -2
"""Replica ids of those that are no followers; the latter is that of kafka-replica-verification."""


async def handle(parts: Parts, context: RequestContext, request: FetchRequest) -> FetchResponse | None:
    try:
        plan = parts.fetch_sessions.plan(
            request, uses_topic_ids=context.version >= TOPIC_IDS_SINCE, now_ms=parts.world.clock.monotonic_ms()
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    session = plan.session
    is_plain = request.replica_state is None and request.replica_id == CONSUMER and not request.rack_id
    if is_plain and (session is None or not session.is_worth_watching):
        policy: Policy = ConsumerPolicy(request)
    else:
        policy = _policy_of(parts, context, request, session)
    fetch = FetchPass(parts, context, request, plan, policy)
    await fetch.read()
    if fetch.has_error and policy.waits_for_leaders and (early := fetch.came_early()):
        await parts.early_requests.wait(early)
        await fetch.read()
    if fetch.has_error or fetch.size_bytes >= request.min_bytes or request.max_wait_ms <= 0 or not policy.may_wait(fetch):
        return await fetch.answer()
    if policy.settles_before_waiting:
        await fetch.settle()
    ParkedFetch(context, fetch).park()
    return None


def _policy_of(parts: Parts, context: RequestContext, request: FetchRequest, session: FetchSession | None) -> Policy:
    """Returns the policy: a follower's; a comparing tool's; a consumer's, watched, or for versions with followers elsewhere."""
    node, epoch, state = request.replica_id, -1, request.replica_state
    if context.version >= REPLICA_STATE_SINCE:
        node, epoch = (-1, -1) if state is None else (state.replica_id, state.replica_epoch)
    if node < 0:
        if node == COMPARING:
            consumer: ConsumerPolicy = ComparingPolicy(request)
        elif request.rack_id:
            from ottla.broker.fetching.nearby import NearbyPolicy

            consumer = NearbyPolicy(request, parts, context.connection.listener)
        else:
            consumer = ConsumerPolicy(request)
        if node != COMPARING and session is not None and session.is_worth_watching:
            from ottla.broker.fetching.session_consumer import SessionConsumerPolicy  # a lone broker starts without

            return SessionConsumerPolicy(consumer, request, session, context.connection, context.connection.rights.version)
        if session is not None and session.watch is not None:  # another kind of client had it
            session.watch.ended()
        return consumer
    if parts.authorizer.is_configured and not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER):
        return RefusedPolicy(request)
    context.is_of_node = True
    from ottla.broker.fetching.follower import FollowerPolicy  # a lone broker starts without

    return FollowerPolicy(parts.partitions.replication, session, context.connection, node=node, broker_epoch=epoch)


class ParkedFetch:
    """A fetch that waits for more bytes: on the list of each of its partitions, and in the purgatory by its deadline."""

    __slots__ = ("_context", "_fetch", "_is_due", "_missing_bytes", "is_done")

    def __init__(self, context: RequestContext, fetch: FetchPass) -> None:
        self._context = context
        self._fetch = fetch
        self._missing_bytes = fetch.request.min_bytes - fetch.size_bytes
        self.is_done = self._is_due = False

    def park(self) -> None:
        fetch = self._fetch
        fetch.policy.wait(fetch, self)
        self._context.connection.parked[self] = None
        fetch.parts.parking.park(self, min(fetch.request.max_wait_ms, WAIT_MS_MAX))
        if fetch.policy.has_news(fetch) or fetch.parts.partitions.role_changes != fetch.role_changes:
            self._complete()  # an append came, or a leader, while the last partitions were still being read

    def on_append(self, size_bytes: int) -> None:
        """Answers once there is enough. Other changes are answered with all that come in this turn of the loop.

        Partitions that one image gives to another leader are then asked for together, there.
        """
        self._missing_bytes -= size_bytes
        if size_bytes >= AT_ONCE:
            self._complete_soon()
        elif self._fetch.policy.is_enough(self._fetch, self._missing_bytes):
            self._complete()

    def on_leader_progress(self, partition: Partition, size_bytes: int) -> None:
        """Notes growth as ``on_append`` does, for a follower: it takes what the rest of the burst brings, too."""
        if size_bytes < AT_ONCE and self._fetch.policy.is_held_back(partition):
            return
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self._complete_soon()

    def _complete_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._complete)

    def expire(self) -> None:
        self._complete()

    def abandon(self) -> None:
        self._leave()

    def _complete(self) -> None:
        if not self.is_done:
            self._leave()
            eager.run(self._fetch.read_and_answer(), self._answer)

    def _leave(self) -> None:
        self.is_done = True
        self._context.connection.parked.pop(self, None)
        self._fetch.policy.leave(self._fetch, self)
        self._fetch.parts.parking.unpark()

    def _answer(self, response: FetchResponse | None, error: BaseException | None) -> None:
        if response is None:
            fail(self._context, error or RuntimeError("a fetch has an answer"))
        else:
            self._context.reply(response)


SERVICE = service(FetchRequest, handle, needs=Asks.HANDLER)

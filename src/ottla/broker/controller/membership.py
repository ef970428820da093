"""The cluster's brokers, as the active controller keeps them: who registers, who is heard from, who is fenced.

Nothing here waits for this node's own broker: a controller that does would wait for itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.liveness.evidence import Evidence
from ottla.broker.metadata.applied import not_controller
from ottla.broker.part import Part
from ottla.broker.tasks import eager
from ottla.config import BrokerConfig
from ottla.controller.brokers import Registering, check_epoch, fencing, has_leaderships, stopping, unfencing, unregistering
from ottla.controller.decided import Recorded
from ottla.controller.false_alarms import FalseAlarms
from ottla.controller.replica_directories import failing_directories
from ottla.controller.sessions import Sessions, Standing
from ottla.controller.sweeps import Completing, Sweep
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.members import endpoints_of, features_of
from ottla.ports import Connection, TimerHandle, World

log = get_logger(__name__)

HELLO_MS: Final = 40
"""So long after it has become active a controller takes every broker that it has not heard from for alive."""
STOOD_STILL_MS: Final = 1_000
"""A timer that fires so late says that this process was stopped: it has heard nothing meanwhile."""
SILENT_MS: Final = 1_500
"""In this time after a controller has become active it hears from every broker that lives and reaches it: one looks for it every 640 ms."""
_NOTHING: Final = Recorded(())
_SILENT: Final = "its session has ended"
_ENDED: Final = "its process has ended"


class Membership(Part):
    """The controller's list of brokers, at work while this node's controller is active.

    ``is_own_silent``: this node's own broker sends no heartbeats, and has no session.
    """

    completes = True
    """Whether a controller looks at every partition for what the one before it did not end, when it becomes active."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        controller: ActiveController,
        cluster_id: str,
        evidence: Evidence,
        *,
        is_own_silent: bool = False,
    ) -> None:
        self._world = world
        self._evidence = evidence
        evidence.report_to(self)
        self._is_own_silent = is_own_silent
        self._false_alarms = FalseAlarms()
        self._began_ms = 0  # when this controller became active
        self._channels: dict[int, tuple[int, Connection]] = {}  # by broker: its epoch, and the connection that it was last heard on
        self._controller = controller
        self._cluster_id = cluster_id
        self._sessions = Sessions(config["broker.session.timeout.ms"], self._registered_at)
        self._node_id = config.node_id
        self._is_at_work = False
        self._dead: set[tuple[int, int]] = set()  # whom a decision under way fences: the broker and its epoch
        self._leaving: set[int] = set()  # the brokers that are being fenced
        self._sweeps: dict[int, tuple[Standing, Sweep]] = {}  # by broker: what followed last from where it stands
        self._timer: TimerHandle | None = None
        self._due_ms = 0  # when it is to fire
        self._is_late = False  # it fired late the last time
        self._heartbeats_ms = 2 * config["broker.heartbeat.interval.ms"]  # within which every broker that lives is heard
        self.fenced_counts: Counter[str] = Counter({_SILENT: 0, _ENDED: 0})
        """Brokers that were fenced without having asked for it, by reason."""

    @property
    def false_alarm_count(self) -> int:
        """Brokers that were taken for dead, and lived."""
        return self._false_alarms.count

    def on_active(self, epoch: int) -> None:
        """Starts a session for every broker that serves."""
        self._is_at_work = True
        now_ms = self._began_ms = self._now_ms()
        for broker in self._controller.replica.draft.live_brokers:
            if self._is_own_silent and broker.broker_id == self._node_id:
                continue
            self._sessions.begin(broker.broker_id, broker.broker_epoch, now_ms)
        self._watch()
        if self.completes and not self._is_own_silent:
            self._run(Completing(self._controller.rules, suspected=self._suspected))
        self._evidence.check()  # a broker that died together with the previous controller is noticed at once

    async def stop(self) -> None:
        self.on_inactive()

    def on_inactive(self) -> None:
        self._is_at_work = False
        self._sessions.end_all()
        self._channels.clear()
        self._dead.clear()
        self._leaving.clear()
        self._sweeps.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def register(self, request: BrokerRegistrationRequest, channel: Connection) -> BrokerRegistrationResponse:
        """Registers the process that asks on this connection: it gets an epoch, and a session."""
        broker_id = request.broker_id
        if request.cluster_id != self._cluster_id:
            return BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        wanted = BrokerImage(
            broker_id=broker_id,
            broker_epoch=-1,
            endpoints=endpoints_of(request.listeners),
            rack=request.rack,
            is_fenced=True,
            incarnation_id=request.incarnation_id,
            features=features_of(request.features),
            directories=tuple(request.log_dirs),
        )

        def on_step(_: int) -> None:
            if registering.is_done:
                self._sessions.begin(broker_id, registering.broker_epoch, self._now_ms())
                self._channels[broker_id] = registering.broker_epoch, channel

        registering = Registering(
            wanted,
            self._controller.rules,
            has_session=lambda known: self._has_session(known, wanted),
            previous_epoch=request.previous_broker_epoch,
            previous_incarnations=request.previous_incarnations,
            on_step=on_step,
        )
        try:
            result = await self._controller.sweep(registering)
        except KafkaError as error:
            return BrokerRegistrationResponse(error_code=error.code)
        if result is not None:
            log.warning("broker_refused", broker_id=broker_id, reason=result.message)
            if result.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self._ask_the_registered(wanted)
            return BrokerRegistrationResponse(error_code=result.code)
        self._watch()
        log.info("broker_registered", broker_id=broker_id, broker_epoch=registering.broker_epoch)
        self._evidence.check([broker_id])  # what is left of its earlier process
        return BrokerRegistrationResponse(broker_epoch=registering.broker_epoch)

    def _has_session(self, known: BrokerImage, wanted: BrokerImage) -> bool:
        """True when the registered process lives, as far as is known.

        It is dead if all its connections have ended and another process has its log directories, whose locks prove it. It is also dead if
        this controller, active for a while, has seen no connection of it, and that other process listens at its address.
        """
        epoch = known.broker_epoch
        if not self._sessions.is_live(known.broker_id, epoch, self._now_ms()):
            return False
        of_epoch, channel = self._channels.get(known.broker_id, (-1, None))
        ends = [self._evidence.is_broken(known.broker_id, epoch), channel.is_closed if channel is not None and of_epoch == epoch else None]
        seen = [has_ended for has_ended in ends if has_ended is not None]
        if not seen and self._now_ms() - self._began_ms >= SILENT_MS:
            seen = [self._evidence.listens_for(known) == wanted.incarnation_id]
        return not (seen and all(seen) and set(known.directories) == set(wanted.directories))

    def _ask_the_registered(self, wanted: BrokerImage) -> None:
        """Asks whether the registered process still lives, where another process registers with the same log directories.

        A machine that has lost power, and is back, has said nothing of its connections: it does when something comes on them. They end
        then, and the next request finds them so. A broker that lives notices nothing, even if a copy of its directories runs elsewhere.
        When every controller has died as well, no connection is left: it is found out who listens at its address.
        """
        known = self._controller.replica.draft.brokers.get(wanted.broker_id)
        of_epoch, channel = self._channels.get(wanted.broker_id, (-1, None))
        if known is None or set(known.directories) != set(wanted.directories):
            return
        if channel is None or of_epoch != known.broker_epoch:
            if self._evidence.listens_for(known) != wanted.incarnation_id:  # a thousand brokers may knock three times a second
                self._evidence.ask_address(known)
            return
        channel.probe()
        self._evidence.check([known.broker_id])

    async def heartbeat(self, request: BrokerHeartbeatRequest, channel: Connection) -> BrokerHeartbeatResponse:
        """Returns where the broker, which says this on this connection, stands from now on."""
        standing = Standing.FENCED
        sweep: Sweep | None = None

        def decide(image: ClusterImage) -> Recorded:
            nonlocal standing, sweep
            broker = check_epoch(image, request.broker_id, request.broker_epoch)
            self._sessions.hear(request, self._now_ms())
            self._channels[broker.broker_id] = broker.broker_epoch, channel
            serving = [other.broker_id for other in image.live_brokers]
            leads = has_leaderships(image, broker.broker_id)
            standing = self._sessions.standing_after(broker, request, leads=leads, serving=serving)
            sweep = self._sweep_for(image, broker, standing)
            if sweep is None:  # a directory that has failed, too, comes with the next heartbeat
                sweep = failing_directories(image, broker, request.offline_log_dirs, self._controller.rules)
            return _NOTHING if sweep is None else sweep.step(image)

        try:
            [result] = await self._controller.decide([decide], is_followed=False)
            if isinstance(result, KafkaError):
                return BrokerHeartbeatResponse(error_code=result.code)
            if standing in (Standing.FENCED, Standing.SHUTDOWN_NOW) and sweep is not None and not sweep.is_done:
                await self._controller.sweep(sweep)
        except KafkaError as error:
            return BrokerHeartbeatResponse(error_code=error.code)
        if sweep is not None and not sweep.is_done:  # others get its present standing
            self._run(sweep)
        if standing is Standing.SHUTDOWN_NOW:  # its next process need not wait for the session's end
            self._sessions.end(request.broker_id)
        self._watch()
        return BrokerHeartbeatResponse(
            is_caught_up=self._sessions.has_caught_up(request),
            is_fenced=standing in (Standing.FENCED, Standing.SHUTDOWN_NOW),
            should_shut_down=standing is Standing.SHUTDOWN_NOW,
        )

    async def unregister(self, broker_id: int) -> list[Recorded | KafkaError]:
        """Removes a broker that does not serve from the cluster."""

        if not self._controller.is_active:
            raise not_controller()
        image = self._controller.replica.draft
        known = image.brokers.get(broker_id)
        try:
            if known is not None and not known.is_fenced:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {broker_id} is running; stop it before you unregister it")
            refused = await self._controller.sweep(unregistering(image, broker_id, self._controller.rules), is_followed=True)
        except KafkaError as error:
            if error.code == ErrorCode.NOT_CONTROLLER:
                raise
            refused = error
        return [_NOTHING if refused is None else refused]

    def _sweep_for(self, image: ClusterImage, broker: BrokerImage, standing: Standing) -> Sweep | None:
        """Returns what follows for the broker's partitions; None where that is under way, or nothing follows."""
        under_way = self._sweeps.get(broker.broker_id)
        if under_way is not None and under_way[0] is standing and not under_way[1].is_done:
            return None
        sweep = self._new_sweep(image, broker, standing)
        if sweep is not None:
            self._sweeps[broker.broker_id] = standing, sweep
        return sweep

    def _new_sweep(self, image: ClusterImage, broker: BrokerImage, standing: Standing) -> Sweep | None:
        broker_id, rules = broker.broker_id, self._controller.rules
        match standing:
            case Standing.UNFENCED if broker.is_fenced:
                log.info("broker_unfenced", broker_id=broker.broker_id)
                if self._false_alarms.on_unfenced(broker.broker_id, broker.broker_epoch, self._now_ms()):
                    log.warning("broker_judged_by_timeout_alone", broker_id=broker.broker_id, reason="it was taken for dead three times")
                    self._evidence.distrust(self._false_alarms.untrusted)
                return unfencing(image, broker_id, rules)
            case Standing.FENCED | Standing.SHUTDOWN_NOW if not broker.is_fenced:
                log.info("broker_fenced", broker_id=broker.broker_id, reason="it asked for it")
                return fencing(image, broker_id, rules)
            case Standing.CONTROLLED_SHUTDOWN if not broker.in_controlled_shutdown or has_leaderships(image, broker_id):
                return stopping(
                    image, broker_id, rules, on_step=lambda end_offset: self._sessions.begin_shutdown(broker_id, end_offset - 1)
                )  # fmt: skip
        return None

    def _run(self, sweep: Sweep) -> None:
        eager.run(self._controller.sweep(sweep), self._swept)

    def _swept(self, refused: KafkaError | None, error: BaseException | None) -> None:
        _note("partitions_not_followed", error or refused)

    def _registered_at(self, broker_id: int, epoch: int) -> int:
        """Returns the offset that the broker has to follow to before it may serve."""
        return epoch

    # -- sessions that end

    def _now_ms(self) -> int:
        return self._world.clock.monotonic_ms()

    def _watch(self) -> None:
        end_ms = self._sessions.next_end_ms
        if self._timer is None and end_ms is not None and self._controller.is_active:
            self._due_ms = max(end_ms, self._now_ms())
            self._timer = self._world.timers.call_later_ms(max(0, end_ms - self._now_ms()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._controller.is_active:
            return
        was_late, self._is_late = self._is_late, (now_ms := self._now_ms()) - self._due_ms >= STOOD_STILL_MS
        if self._is_late and not was_late:  # twice in a row it is too slow for its brokers, and not one that was stopped
            log.warning("controller_stood_still", late_ms=now_ms - self._due_ms, hint="brokers have time for a heartbeat; another may lead")
            self._sessions.outlast(now_ms + self._heartbeats_ms)
            self._watch()
            return
        silent = self._sessions.expired(now_ms)
        for broker_id in silent:
            self._sessions.end(broker_id)
        brokers = self._controller.replica.draft.brokers
        unfenced = [brokers[broker_id] for broker_id in silent if broker_id in brokers and not brokers[broker_id].is_fenced]
        self._leaving |= {broker.broker_id for broker in unfenced}
        for broker in unfenced:
            self._fence(broker, _SILENT)
        self._watch()

    def _fence(self, broker: BrokerImage, reason: str, ended: Callable[[], None] = lambda: None) -> None:
        """Fences the broker, unless it is heard from before that is done."""
        broker_id, epoch = broker.broker_id, broker.broker_epoch
        log.warning("broker_fenced", broker_id=broker_id, broker_epoch=epoch, reason=reason)
        self.fenced_counts[reason] += 1
        self._leaving.add(broker_id)

        def is_silent() -> bool:
            return not self._sessions.is_live(broker_id, epoch, self._now_ms())

        def swept(refused: KafkaError | None, error: BaseException | None) -> None:
            self._leaving.discard(broker_id)
            if error is None and is_silent():
                log.info("broker_left_partitions", broker_id=broker_id, broker_epoch=epoch, partitions=sweep.changed_count)
            elif error is None:
                log.info("broker_heard_again", broker_id=broker_id, broker_epoch=epoch)
            _note("brokers_not_fenced", error or refused)
            ended()

        image = self._controller.replica.draft
        sweep = fencing(image, broker_id, self._controller.rules, is_wanted=is_silent, suspected=self._suspected)
        eager.run(self._controller.sweep(sweep), swept)

    def _suspected(self) -> frozenset[int]:
        """Returns the brokers that should lead only what no other broker can."""
        return self._evidence.suspected | self._leaving

    # -- processes that have died

    def is_heard(self, broker_id: int, epoch: int) -> bool:
        """True when a connection is open that the broker has made.

        To a new controller it may not have sent a heartbeat yet: it has a moment for it, and one whose node has fetched metadata from here
        is about to send it.
        """
        if self._evidence.hears(broker_id):
            return True
        of_epoch, channel = self._channels.get(broker_id, (-1, None))
        if channel is None or of_epoch != epoch:
            return self._controller.replica.has_fetched(broker_id) or self._now_ms() - self._began_ms < HELLO_MS
        return not channel.is_closed

    def on_dead(self, broker_id: int, epoch: int) -> None:
        """Takes the proof of a death. It may come repeatedly, from each neighbour that is looked at: one decision at a time is enough."""
        process = broker_id, epoch
        if not self._is_at_work or process in self._dead:
            return
        if not self._controller.is_active:  # an image of long ago may be all that there is
            return
        broker = self._controller.replica.draft.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != epoch or broker.is_fenced:
            return
        self._dead.add(process)

        self._sessions.end(broker_id)
        self._false_alarms.on_fenced(broker_id, epoch)
        self._evidence.check(self._neighbours(broker_id))
        self._fence(broker, _ENDED, lambda: self._dead.discard(process))

    def _neighbours(self, broker_id: int) -> list[int]:
        """Returns the brokers that share a host or a rack with the broker, and with it perhaps its fate."""
        brokers = self._controller.replica.draft.brokers
        known = brokers.get(broker_id)
        if known is None:
            return []
        hosts = {end.host for end in known.endpoints.values()}
        return [
            other.broker_id
            for other in brokers.values()
            if other is not known and ((known.rack and other.rack == known.rack) or hosts & {end.host for end in other.endpoints.values()})
        ]


def _note(event: str, error: BaseException | None) -> None:
    if isinstance(error, KafkaError):  # another controller will notice
        log.info(event, reason=error.message)
    elif error is not None and not isinstance(error, asyncio.CancelledError):
        log.error(event, exc_info=error)

"""A broker among others: it registers with the active controller, says regularly that it lives, and hands over before it stops.

It is fenced until it has followed the metadata up to its own registration; then the controller lets it serve. When a heartbeat is refused
because the controller does not know this process (or no longer does), it registers again. Source: KIP-631.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ottla import __version__
from ottla.broker.metadata.publisher import Publisher
from ottla.broker.part import Part
from ottla.broker.peers.controller_channel import RETRY_MS, RETRY_MS_MAX, ControllerChannel
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.metadata.delta import ImageDelta
from ottla.ports import World
from ottla.storage.directory.directory import LogDirectory

log = get_logger(__name__)

_REFUSED_FOR_GOOD: Final = frozenset(
    {
        *(ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION, ErrorCode.UNSUPPORTED_VERSION),
        *(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    }
)
_UNKNOWN_TO_CONTROLLER: Final = frozenset({ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH})
_ABOUT: Final = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: " (another process is registered with this node.id: `ottla broker list` shows its address; "
    "if it has ended, its session ends after broker.session.timeout.ms, and if it runs, this one needs a node.id of its own)"
}
STOP_MS_MAX: Final = 5 * 60 * 1000
WITNESS_MS: Final = 2  # for each broker, between the heartbeats of all while one of them leaves: 500 heartbeats a second in all


class Lifecycle(Part):
    """A broker's way through its cluster. ``registration`` says who this process is, once its listeners are bound.

    With ``registering`` it registers elsewhere than at the controller, and has that epoch. ``on_duplicate``: the controller takes another
    process of the id, which may be this one's predecessor, for alive. ``failed_directories`` are this broker's log directories whose disks
    are no longer trusted.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        channel: ControllerChannel,
        publisher: Publisher,
        registration: Callable[[], BrokerRegistrationRequest],
        registering: Callable[[], Awaitable[int]] | None = None,
        *,
        on_registered: Callable[[int], None] = lambda epoch: None,
        on_failed: Callable[[str], None] = lambda reason: None,
        on_duplicate: Callable[[], None] = lambda: None,
        failed_directories: Callable[[], list[bytes]] = list,
    ) -> None:
        self._world = world
        self._interval_ms: int = config["broker.heartbeat.interval.ms"]
        self._registration_ms_max: int = config["initial.broker.registration.timeout.ms"]
        self._unreported_ms_max: int = config["log.dir.failure.timeout.ms"]
        self._hands_over: bool = config["controlled.shutdown.enable"]
        self._channel = channel
        self._publisher = publisher
        self._registration = registration
        self._registering = registering
        self._broker_id = config.node_id
        self._task: asyncio.Task[None] | None = None
        self._wakes = asyncio.Event()
        self._is_stopping = False
        self._leaving_ms: int | None = None  # between heartbeats while another broker leaves
        self._answered_ms = 0  # when a controller that knew it answered last
        self._reported: list[bytes] = []  # of failed log directories
        self._unreported_ms: int | None = None  # since when there are others
        self.broker_epoch = -1
        self.is_fenced = True
        self.refusal = ""
        """Why the controller has not registered this broker yet, as it said last."""
        self._on_registered = on_registered
        self._on_failed = on_failed
        self._on_duplicate = on_duplicate
        self._failed_directories = failed_directories
        self._unfenced = asyncio.Event()

    async def join(self) -> None:
        """Registers the broker, follows the metadata, and waits until it may serve: the controller has unfenced it.

        KafkaError when it is refused for good, or no controller answers within ``initial.broker.registration.timeout.ms``.
        """
        await self._register()
        self._task = asyncio.create_task(self._beat())
        self._task.add_done_callback(self._ended)
        await self._unfenced.wait()
        if self._task.done():
            self._task.result()
        await self._publisher.catch_up()

    def awaited(self, leader_id: int) -> str | None:
        """Returns what the broker waits for while ``leader_id`` is the active controller; None when it serves."""
        if self.broker_epoch < 0:
            return f"controller {leader_id} to register this broker" + (f": {self.refusal}" if self.refusal else "")
        return f"controller {leader_id} to unfence this broker, whose epoch is {self.broker_epoch}" if self.is_fenced else None

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Fails: without heartbeats the broker would be fenced, and not know why."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._unfenced.set()
            self._on_failed(error.message if isinstance(error, KafkaError) else repr(error))

    async def _register(self) -> None:
        if self._registering is not None:
            epoch = await self._registering()
            if epoch != self.broker_epoch:
                self.broker_epoch, self.is_fenced = epoch, True
                self._on_registered(epoch)
            return
        deadline_ms = self._world.clock.monotonic_ms() + self._registration_ms_max
        delay_ms, registration = RETRY_MS, self._registration()
        while True:
            answer = await self._channel.ask(registration, BrokerRegistrationResponse)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                self.broker_epoch = answer.broker_epoch
                self._on_registered(answer.broker_epoch)
                self.is_fenced = True
                return
            code = ErrorCode.NOT_CONTROLLER if answer is None else ErrorCode(answer.error_code)
            if code in _REFUSED_FOR_GOOD:
                lacking = await self._lacking(registration) if code == ErrorCode.UNSUPPORTED_VERSION else ""
                raise KafkaError(code, f"the controller refuses this broker{lacking}")
            if self._world.clock.monotonic_ms() >= deadline_ms:
                raise KafkaError(code, f"this broker could not register in {self._registration_ms_max} ms")
            if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self._on_duplicate()
            self.refusal = f"{code.name}{_ABOUT.get(code, '')}"
            log.debug("broker_registration_repeated", reason=code.name)
            await asyncio.sleep(delay_ms / 1000)
            delay_ms = min(delay_ms * 2, RETRY_MS_MAX)

    async def _lacking(self, registration: BrokerRegistrationRequest) -> str:
        """Returns which of the cluster's features this broker does not have, in words; empty when the controller does not say."""
        answer = await self._channel.ask(ApiVersionsRequest("ottla", __version__), ApiVersionsResponse)
        own = {feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in registration.features}
        lacking = [
            f"{found.name} at level {found.max_version_level}"
            for found in (() if answer is None else answer.finalized_features)
            if not own.get(found.name, (0, 0))[0] <= found.max_version_level <= own.get(found.name, (0, 0))[1]
        ]
        return f": the cluster has {', '.join(lacking)}, which this broker does not support" if lacking else ""

    async def _beat(self) -> None:
        while not (self._is_stopping and self._world.clock.monotonic_ms() - self._answered_ms > 2 * self._interval_ms):
            self._wakes.clear()
            failed = self._failed_directories()
            request = BrokerHeartbeatRequest(
                broker_id=self._broker_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=self._publisher.published.end_offset - 1,
                want_shut_down=self._is_stopping,
                offline_log_dirs=failed,
            )
            answer = await self._channel.ask(request, BrokerHeartbeatResponse)
            self._note_reported(failed, has_heard=answer is not None and answer.error_code == ErrorCode.NONE)
            is_unknown = answer is not None and answer.error_code in _UNKNOWN_TO_CONTROLLER
            if answer is not None and not is_unknown:  # one that does not know it has nothing that it leads
                self._answered_ms = self._world.clock.monotonic_ms()
            if answer is not None and answer.should_shut_down and answer.error_code == ErrorCode.NONE:
                return
            if answer is not None and is_unknown and not self._is_stopping:
                if self._registering is None:  # else the controller is about to find the broker's znode
                    log.warning("broker_registers_again", reason=ErrorCode(answer.error_code).name)
                await self._register()
            elif answer is not None and answer.error_code == ErrorCode.NONE:
                self._note(answer)
            is_settled = answer is not None and answer.error_code == ErrorCode.NONE and not self.is_fenced and not self._is_stopping
            await self._pause((self._leaving_ms or self._interval_ms) if is_settled else RETRY_MS)

    def _note_reported(self, failed: list[bytes], *, has_heard: bool) -> None:
        """Notes whether a controller knows the failed directories: if none learns of them, the broker ends soon (KIP-858)."""
        now_ms = self._world.clock.monotonic_ms()
        if has_heard:
            self._reported, self._unreported_ms = failed, None
        elif failed != self._reported:
            self._unreported_ms = now_ms if self._unreported_ms is None else self._unreported_ms
            if now_ms - self._unreported_ms > self._unreported_ms_max:
                text = f"no controller has heard of a failed log directory for {self._unreported_ms_max} ms (log.dir.failure.timeout.ms)"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)

    async def on_image(self, delta: ImageDelta) -> None:
        """Sends heartbeats often while another broker leaves: it may end once all others are known to have followed its last change."""
        brokers = delta.new.brokers
        if delta.old.brokers is brokers:
            return
        was_leaving, self._leaving_ms = self._leaving_ms is not None, None
        if any(broker.in_controlled_shutdown and not broker.is_fenced and node != self._broker_id for node, broker in brokers.items()):
            self._leaving_ms = min(self._interval_ms, max(RETRY_MS, WITNESS_MS * len(brokers)))
            if not was_leaving:
                self.beat_soon()

    def on_controller(self) -> None:
        """Sends a heartbeat at once: another controller learns that this broker lives."""
        self.beat_soon()

    def on_directory_failed(self, directory: LogDirectory) -> None:
        """Sends a heartbeat at once, which reports the directory."""
        self.beat_soon()

    def beat_soon(self) -> None:
        """Sends the next heartbeat without waiting."""
        self._wakes.set()

    def _note(self, answer: BrokerHeartbeatResponse) -> None:
        if answer.is_fenced != self.is_fenced:
            log.info("broker_fenced" if answer.is_fenced else "broker_unfenced", broker_epoch=self.broker_epoch)
        self.is_fenced = answer.is_fenced
        if not answer.is_fenced:
            self._unfenced.set()

    async def _pause(self, delay_ms: int) -> None:
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await self._wakes.wait()
        except TimeoutError:
            pass

    async def leave(self) -> None:
        """Asks the controller for leave to stop: others lead what they can. Where none knows this broker, or answers, it just stops.

        With ``controlled.shutdown.enable=false`` it just stops, too: others take over its partitions once it has ended.
        """
        if self._task is None:
            return
        if not self._hands_over:
            self._task.cancel()
            return
        self._is_stopping = True
        self._answered_ms = self._world.clock.monotonic_ms()
        self._wakes.set()
        try:
            async with asyncio.timeout(STOP_MS_MAX / 1000):
                await self._task
        except (TimeoutError, KafkaError):
            log.warning("broker_stops_without_leave")

"""Who the active controller has heard from: sessions of brokers, how far each has come, and what their heartbeats ask for.

Nothing of this is recorded: a controller that becomes active gives every registered broker a session that starts then. A session
belongs to one epoch of a broker. Source: KIP-631.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

from msgspec import Struct

from ottla.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.metadata.image import BrokerImage


class Standing(Enum):
    """The standing of a broker, before or after its heartbeat."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


class Session(Struct):
    """``shutdown_offset`` is that of the last record that makes the broker stop; -1 while it does not."""

    broker_epoch: int
    heard_ms: int
    metadata_offset: int = -1
    shutdown_offset: int = -1


class Sessions:
    """Sessions end ``timeout_ms`` after the last heartbeat (``broker.session.timeout.ms``).

    ``registered_at`` gives the offset of the record that registered a broker of that epoch: the epoch itself by default.
    """

    def __init__(self, timeout_ms: int, registered_at: Callable[[int, int], int] = lambda broker_id, epoch: epoch) -> None:
        self._timeout_ms = timeout_ms
        self._registered_at = registered_at
        self._sessions: dict[int, Session] = {}

    def begin(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Starts a session: the broker has just registered, or this controller has just become active."""
        self._sessions[broker_id] = Session(epoch, now_ms)

    def end(self, broker_id: int) -> None:
        """Ends the session: the broker is not expected to be heard from."""
        self._sessions.pop(broker_id, None)

    def end_all(self) -> None:
        """Ends all sessions: this controller is no longer the active one."""
        self._sessions.clear()

    def outlast(self, until_ms: int) -> None:
        """Lets no session end before that time."""
        for session in self._sessions.values():
            session.heard_ms = max(session.heard_ms, until_ms - self._timeout_ms)

    def is_live(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """True when that process has been heard from of late."""
        session = self._sessions.get(broker_id)
        return session is not None and session.broker_epoch == epoch and now_ms - session.heard_ms < self._timeout_ms

    def expired(self, now_ms: int) -> list[int]:
        """Returns brokers whose sessions have ended, the longest silent first. They stay expired until heard from, or ``end``."""
        silent = [(session.heard_ms, broker) for broker, session in self._sessions.items() if now_ms - session.heard_ms >= self._timeout_ms]
        return [broker for _, broker in sorted(silent)]

    @property
    def next_end_ms(self) -> int | None:
        """When the first session ends if nothing is heard; None without sessions."""
        return min((session.heard_ms + self._timeout_ms for session in self._sessions.values()), default=None)

    def hear(self, request: BrokerHeartbeatRequest, now_ms: int) -> None:
        """Takes a heartbeat of the registered epoch."""
        session = self._sessions.get(request.broker_id)
        if session is None or session.broker_epoch != request.broker_epoch:
            session = self._sessions[request.broker_id] = Session(request.broker_epoch, now_ms)
        session.heard_ms = now_ms
        session.metadata_offset = request.current_metadata_offset

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """Lets the broker stop once the others know what the metadata log says at ``offset``; a later one takes its place."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.shutdown_offset = max(session.shutdown_offset, offset)

    def standing_after(self, broker: BrokerImage, request: BrokerHeartbeatRequest, *, leads: bool, serving: Collection[int]) -> Standing:
        """Returns the broker's standing after the heartbeat. ``leads``: it leads a partition; ``serving`` are the unfenced brokers."""
        session = self._sessions[broker.broker_id]
        if broker.is_fenced:
            session.shutdown_offset = -1
            if request.want_shut_down:
                return Standing.SHUTDOWN_NOW
            has_caught_up = self.has_caught_up(request)
            return Standing.UNFENCED if has_caught_up and not request.want_fence else Standing.FENCED
        if session.shutdown_offset >= 0:
            others_know = all(self._knows(other, session.shutdown_offset) for other in serving if other != broker.broker_id)
            return Standing.SHUTDOWN_NOW if not leads and others_know else Standing.CONTROLLED_SHUTDOWN
        if request.want_shut_down:
            return Standing.CONTROLLED_SHUTDOWN if leads and not request.want_fence else Standing.SHUTDOWN_NOW
        return Standing.FENCED if request.want_fence else Standing.UNFENCED

    def has_caught_up(self, request: BrokerHeartbeatRequest) -> bool:
        """True when the broker knows at least its registration. One that has followed nothing yet has no replica in its image."""
        offset = request.current_metadata_offset
        return offset >= 0 and offset >= self._registered_at(request.broker_id, request.broker_epoch)

    def _knows(self, broker_id: int, offset: int) -> bool:
        """True when the broker has followed the metadata log up to there, or need not: it stops, too."""
        session = self._sessions.get(broker_id)
        return session is None or session.shutdown_offset >= 0 or session.metadata_offset >= offset

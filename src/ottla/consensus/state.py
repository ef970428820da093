"""What all roles share: the election's state, the log's shape, the high watermark; and the transitions between roles.

A transition changes state and notes what must be persisted and announced. What a role then sends is up to its own module, which looks at
what is due (``elections``, ``leading``, ``following``).
"""

from __future__ import annotations

from typing import Any

from ottla.consensus.calls import Request
from ottla.consensus.effects import (
    AppendLeaderChange,
    BecameLeader,
    Effect,
    Fatal,
    FollowsLeader,
    HighWatermark,
    LostLeadership,
    PersistElection,
    SecondLeader,
    SendRequest,
)
from ottla.consensus.election_state import NO_VOTE, ElectionState
from ottla.consensus.epoch_trust import EPOCH_JUMP_MAX, EPOCH_LAST, EpochTrust
from ottla.consensus.log_shape import LogShape
from ottla.consensus.roles import (
    TRANSITIONS,
    AnyRole,
    Candidate,
    Follower,
    Leader,
    LeaderLoss,
    Parked,
    Progress,
    Prospective,
    Resigned,
    Unattached,
    copied,
    key_of,
)
from ottla.consensus.settings import NEVER, QuorumSettings
from ottla.types import NO_LEADER
from ottla.wire.schema import ZERO_UUID


class QuorumState:
    """The state of one replica. Modules of this package change it; the shell sees it through ``Quorum``."""

    __slots__ = (
        "election", "fetch_count", "high_watermark", "is_fatal", "is_stopping", "is_voter", "log", "loss", "lost_elections", "orphans",
        "out", "role", "search_count", "settings", "trust",
    )  # fmt: skip

    def __init__(self, settings: QuorumSettings, election: ElectionState, log: LogShape) -> None:
        self.settings = settings
        self.is_voter = settings.is_voter
        self.election = election
        self.trust = EpochTrust(election.epoch)
        self.log = log
        # What a snapshot has is committed. It never goes back, and never beyond the log's end.
        self.high_watermark = log.snapshots[-1][0].end_offset if log.snapshots else -1
        self.role: AnyRole = Unattached()
        self.loss = LeaderLoss.NONE  # of the leader of this epoch
        self.lost_elections = 0  # since a leader was known
        self.fetch_count = 0  # requests sent
        self.search_count = 0  # requests in search of a leader, since one answered
        self.is_stopping = False  # from then on it starts no election
        self.is_fatal = False
        self.orphans: dict[Any, Parked] = {}  # fetches that were parked when leadership was lost: answered before the input is done
        self.out: list[Effect] = []

    def copy(self) -> QuorumState:
        made = QuorumState(self.settings, self.election, self.log.copy())
        made.high_watermark, made.role, made.loss = self.high_watermark, copied(self.role), self.loss
        made.lost_elections, made.search_count, made.fetch_count = self.lost_elections, self.search_count, self.fetch_count
        made.is_stopping, made.is_fatal = self.is_stopping, self.is_fatal
        made.trust = self.trust.copy()
        return made

    def key(self) -> tuple[Any, ...]:
        flags = (self.loss, self.lost_elections, self.is_stopping, self.is_fatal)
        return self.election, self.log.key(), self.high_watermark, key_of(self.role), flags

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def leader_id(self) -> int:
        """The leader of this epoch, -1 if it is not known or has resigned."""
        role = self.role
        if type(role) is Follower or type(role) is Prospective:
            return role.leader_id
        return self.settings.node_id if type(role) is Leader else NO_LEADER

    # -- transitions

    def become_unattached(self, epoch: int, now_ms: int, *, voted_id: int = NO_VOTE, voted_directory: bytes = ZERO_UUID) -> None:
        """Becomes unattached in an epoch without a known leader. In the epoch that it already has, a replica keeps its vote."""
        assert epoch >= self.epoch, "epochs never go back"
        if epoch == self.epoch and voted_id == NO_VOTE:
            voted_id, voted_directory = self.election.voted_id, self.election.voted_directory
        assert epoch > self.epoch or self.election.voted_id in (NO_VOTE, voted_id), "one vote an epoch"
        self.persist(ElectionState(epoch, NO_LEADER, voted_id, voted_directory))
        deadline_ms = now_ms + self.election_timeout_ms(now_ms) if self.is_voter else NEVER
        self._move(Unattached(deadline_ms, now_ms + self.search_delay_ms()))
        self.emit(FollowsLeader(epoch, NO_LEADER))

    def become_prospective(self, now_ms: int) -> None:
        assert self.is_voter, "an observer is never elected"
        leader_id, settings = self.leader_id, self.settings
        if settings.voters.majority == 1:
            self.become_candidate(now_ms)
            return
        asks = dict.fromkeys(settings.voters.others(settings.node_id), now_ms)
        self._move(Prospective(leader_id, now_ms + self.election_timeout_ms(now_ms), ask_ms=asks, since_ms=now_ms))

    def become_candidate(self, now_ms: int) -> None:
        """Raises the epoch and votes for itself. After the last epoch there is none to be elected in."""
        settings = self.settings
        if self.epoch >= EPOCH_LAST:
            self.become_unattached(self.epoch, now_ms)
            return
        self.persist(ElectionState(self.epoch + 1, NO_LEADER, settings.node_id, settings.directory_id))
        asks = dict.fromkeys(settings.voters.others(settings.node_id), now_ms)
        self._move(Candidate(now_ms + self.election_timeout_ms(now_ms), ask_ms=asks, since_ms=now_ms))
        if settings.voters.majority == 1:
            self.become_leader(now_ms)

    def become_leader(self, now_ms: int) -> None:
        """Becomes leader, elected: the first record of the epoch is appended."""
        candidate, node_id, voters = self.role, self.settings.node_id, self.settings.voters
        assert type(candidate) is Candidate, "only candidates are elected"
        assert len(candidate.granted) + 1 >= voters.majority, "a majority has voted for the leader"
        granting = tuple(sorted({node_id, *candidate.granted}))
        start_offset = self.log.end_offset
        progress = Progress(fetched_ms=now_ms, begin_ms=now_ms)
        self.persist(ElectionState(self.epoch, node_id, self.election.voted_id, self.election.voted_directory))
        self._move(Leader(self.epoch, start_offset, granting, dict.fromkeys(voters.others(node_id), progress)))
        self.lost_elections = 0
        self.emit(BecameLeader(self.epoch, start_offset))
        self.log.append(self.epoch, start_offset + 1)
        self.emit(AppendLeaderChange(self.epoch, start_offset, start_offset + 1, node_id, voters.ids, granting, self.log.version))

    def become_follower(self, leader_id: int, epoch: int, now_ms: int) -> None:
        assert epoch >= self.epoch, "epochs never go back"
        assert leader_id != self.settings.node_id, "no replica follows itself"
        voted = (self.election.voted_id, self.election.voted_directory) if epoch == self.epoch else (NO_VOTE, ZERO_UUID)
        self.persist(ElectionState(epoch, leader_id, *voted))
        self._move(Follower(leader_id, self.fetch_deadline_ms(leader_id, now_ms), fetch_ms=now_ms))
        self.lost_elections = 0
        self.emit(FollowsLeader(epoch, leader_id))

    def become_resigned(self, now_ms: int) -> None:
        """Resigns from the epoch that this replica leads or has led."""
        role, node_id = self.role, self.settings.node_id
        others = self.settings.voters.others(node_id)
        ends = {voter: role.voters[voter].end_offset for voter in others} if type(role) is Leader else dict.fromkeys(others, -1)
        successors = tuple(sorted(others, key=lambda voter: (-ends[voter], voter)))
        self._move(Resigned(now_ms + self.election_timeout_ms(now_ms), successors, dict.fromkeys(others, now_ms), now_ms))

    def _move(self, role: AnyRole) -> None:
        before = self.role
        assert type(role) in TRANSITIONS[type(before)], f"{type(before).__name__} never becomes {type(role).__name__}"
        if type(before) is Leader:
            self.orphans |= before.parked
            self.emit(LostLeadership(before.epoch))
        self.role = role

    def is_believed(self, epoch: int, now_ms: int) -> bool:
        """True when a request may bring that epoch: its sender may be any process (see ``epoch_trust``)."""
        return epoch <= self.epoch or self.trust.allows(epoch, self.epoch, now_ms)

    def contradicts(self, leader_id: int, epoch: int) -> bool:
        """True when another replica leads the epoch, as this one knows at first hand: the claim is reported, and never believed."""
        if epoch != self.epoch or leader_id < 0:
            return False
        known = self.settings.node_id if type(self.role) is Resigned else self.leader_id
        if known in (NO_LEADER, leader_id):
            return False
        self.emit(SecondLeader(epoch, known, leader_id))
        return True

    def learn(self, leader_id: int, epoch: int, now_ms: int) -> bool:
        """Learns what a voter answered about the election. True when it was news and the role has changed.

        An epoch that no quorum can have reached is not believed, nor that the epoch has another leader than the known one.
        """
        if leader_id == self.settings.node_id or leader_id not in self.settings.voters:
            leader_id = NO_LEADER
        if epoch > (EPOCH_LAST if self.epoch == 0 else min(EPOCH_LAST, self.epoch + EPOCH_JUMP_MAX)):
            return False
        if epoch > self.epoch:
            self.loss = LeaderLoss.NONE
            if leader_id >= 0:
                self.become_follower(leader_id, epoch, now_ms)
            else:
                self.become_unattached(epoch, now_ms)
            return True
        if epoch < self.epoch or leader_id < 0:
            return False
        if self.contradicts(leader_id, epoch) or self.leader_id >= 0:
            return False
        self.become_follower(leader_id, epoch, now_ms)
        return True

    # -- what is noted

    def emit(self, effect: Effect) -> None:
        self.out.append(effect)

    def send(self, peer: int, request: Request) -> None:
        self.out.append(SendRequest(peer, request))

    def persist(self, election: ElectionState) -> None:
        """Persists epochs and votes before what follows; who leads need not be durable. One input persists once, where it first does."""
        before = self.election
        if election == before:
            return
        if election.epoch > before.epoch:
            self.loss = LeaderLoss.NONE
        self.election = election
        is_binding = (election.epoch, election.voted_id) != (before.epoch, before.voted_id)
        for index, effect in enumerate(self.out):
            if type(effect) is PersistElection:
                self.out[index] = PersistElection(election, is_binding or effect.is_binding)
                return
        self.emit(PersistElection(election, is_binding))

    def advance_high_watermark(self, offset: int) -> bool:
        """Commits everything below ``offset``. It never goes back."""
        if offset <= self.high_watermark:
            return False
        assert offset <= self.log.end_offset, "what is committed is in the log"
        self.high_watermark = offset
        self.emit(HighWatermark(offset))
        return True

    def fail(self, reason: str) -> None:
        self.is_fatal = True
        self.emit(Fatal(reason))

    def next_number(self) -> int:
        self.fetch_count += 1
        return self.fetch_count

    # -- times

    def election_timeout_ms(self, now_ms: int) -> int:
        timeout_ms = self.settings.election_timeout_ms
        return timeout_ms + self.settings.jitter(timeout_ms, self.epoch, now_ms)

    def retry_ms(self, since_ms: int, now_ms: int) -> int:
        """Returns when to try again what has not succeeded since ``since_ms``: less and less often."""
        return now_ms + min(max(self.settings.retry_backoff_ms, (now_ms - since_ms) // 2), self.settings.fetch_timeout_ms // 2)

    def search_delay_ms(self) -> int:
        """Returns how long until a voter is asked who leads: an observer asks at once, then less and less often; voters learn it anyway."""
        if self.search_count == 0 and not self.is_voter:
            return 0
        first = 4 if self.is_voter else 0
        return self.settings.retry_backoff_ms << min(self.search_count + first, 5)

    def fetch_deadline_ms(self, leader_id: int, now_ms: int) -> int:
        """Returns when the leader counts as lost if it answers no fetch until then. Voters take turns, so that one of them is first."""
        settings = self.settings
        if not self.is_voter:
            return now_ms + settings.fetch_timeout_ms
        turn = settings.voters.rank(settings.node_id, without=leader_id, epoch=self.epoch)
        return now_ms + settings.fetch_timeout_ms + turn * settings.stagger_ms + settings.jitter(5, self.epoch, now_ms)

"""The promises of the quorum, checked when something happens that could break one.

=======================  ===========================================================================================================
one leader an epoch      two nodes never become leader of one epoch
one vote an epoch        a voter never grants its vote of one epoch to two candidates, over crashes too
durable first            no message leaves with an epoch, or a vote, that its sender does not have on disk
epochs rise              what a node has on disk never goes to an earlier epoch
log matching             whatever node has an offset of an epoch, it is the same entry, after an entry of the same epoch
leader completeness      who becomes leader has everything that is committed
committed by a majority  when an offset is first known to be committed, a majority of the voters has it on disk
one committed prefix     all nodes know the same entries as committed; a high watermark never goes back while the process lives
none said goes back      no leader says a high watermark below one that a leader of an earlier epoch has said
nothing cut              no node cuts below its high watermark, nor installs a snapshot that is older than its log
first the LeaderChange   nothing is decided by a leader before a record of its epoch is committed
a pre-vote changes       neither epoch nor vote of the node that is asked
nothing
no needless election     see ``world``: none while enough voters hear the leader, and it hears them
no leader without        one that has heard from no majority for 1.5 x fetch.timeout has resigned
followers
=======================  ===========================================================================================================
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ottla.consensus.calls import Fetch, FetchAnswer, SnapshotId, Vote, VoteAnswer
from ottla.consensus.effects import BecameLeader, LeadershipEstablished
from ottla.consensus.election_state import ElectionState
from ottla.sim.machines.store import EMPTY_DIGEST, Entry

if TYPE_CHECKING:
    from ottla.sim.machines.member import Member


class Checker:
    def __init__(self, members: dict[int, Member], majority: int) -> None:
        self.members = members
        self.majority = majority
        self.findings: list[str] = []
        self.met: Counter[str] = Counter()
        self.committed: list[Entry] = []
        self.digests = [EMPTY_DIGEST]  # of the committed prefixes, by length
        self.leaders: dict[int, int] = {}  # by epoch
        self.established: dict[int, int] = {}  # by epoch, the leader
        self.votes: dict[tuple[int, int], int] = {}  # by voter and epoch
        self.said: dict[int, int] = {}  # by epoch, the highest high watermark that its leader has said
        self.entries: dict[tuple[int, int], tuple[int, int]] = {}  # by offset and epoch: the value, and the epoch before

    def found(self, what: str) -> None:
        self.findings.append(what)

    def on_persist(self, member: Member, election: ElectionState) -> None:
        before = member.store.election
        if election.epoch < before.epoch:
            self.found(f"node {member.settings.node_id} goes back from epoch {before.epoch} to {election.epoch}")
        if election.voted_id >= 0:
            self._vote(member.settings.node_id, election.epoch, election.voted_id)
        elif election.epoch == before.epoch and before.voted_id >= 0:
            self.found(f"node {member.settings.node_id} forgets its vote in epoch {election.epoch}")

    def _vote(self, voter: int, epoch: int, candidate: int) -> None:
        if self.votes.setdefault((voter, epoch), candidate) != candidate:
            self.found(f"node {voter} votes for {self.votes[voter, epoch]} and {candidate} in epoch {epoch}")

    def on_message(self, member: Member, message: Any) -> None:
        """Checks a message that is about to leave: what it says of its sender is durable."""
        node_id, durable = member.settings.node_id, member.store.election
        if message.epoch > durable.epoch:
            self.found(f"node {node_id} reports epoch {message.epoch}, and has {durable.epoch} on disk")
        kind = type(message)
        if kind is Fetch:
            if member.settings.is_voter and message.fetch_offset > member.store.durable_offset:
                self.found(f"node {node_id} reports offset {message.fetch_offset}, and has {member.store.durable_offset} on disk")
        elif kind is Vote:
            if not member.settings.is_voter:
                self.found(f"node {node_id} asks for votes, and does not vote")
            if not message.is_pre and durable.voted_id != node_id and durable.epoch == message.epoch:
                self.found(f"node {node_id} asks for votes in epoch {message.epoch} without one of its own")
        elif kind is FetchAnswer:
            self.met["snapshot offered"] += message.snapshot_id is not None
            if message.error == 0 and message.high_watermark >= 0:
                self._high_watermark_said(node_id, message.epoch, message.high_watermark)

    def _high_watermark_said(self, node_id: int, epoch: int, high_watermark: int) -> None:
        """Checks an answer's high watermark. Within an epoch an answer that waited for its records may say less than a later one."""
        before = max((said for earlier, said in self.said.items() if earlier < epoch), default=-1)
        if high_watermark < before:
            self.found(f"node {node_id} says the high watermark {high_watermark} in epoch {epoch}, and {before} was said before")
        self.said[epoch] = max(high_watermark, self.said.get(epoch, -1))

    def on_granted(self, member: Member, request: Vote, answer: VoteAnswer) -> None:
        """Checks a vote that is about to leave."""
        node_id, durable = member.settings.node_id, member.store.election
        self._vote(node_id, request.epoch, request.candidate_id)
        if durable.epoch == request.epoch and durable.voted_id != request.candidate_id:
            self.found(
                f"node {node_id} reports a vote for {request.candidate_id} in epoch {request.epoch}, and has {durable.voted_id} on disk"
            )
        if not member.settings.is_voter:
            self.found(f"node {node_id} grants a vote, and is an observer")

    def on_append(self, member: Member, base_offset: int) -> None:
        store = member.store
        before = store.epoch_before(base_offset)
        for offset in range(base_offset, store.end_offset):
            epoch, value = store.entry(offset)
            if self.entries.setdefault((offset, epoch), (value, before)) != (value, before):
                self.found(f"node {member.settings.node_id} has another entry at offset {offset} of epoch {epoch}")
            before = epoch

    def on_truncate(self, member: Member, end_offset: int) -> None:
        store = member.store
        self.met["truncations"] += 1
        if end_offset < member.high_watermark:
            self.found(f"node {member.settings.node_id} cuts at {end_offset}, below its high watermark {member.high_watermark}")
        if store.epoch_before(store.end_offset) != store.entry(end_offset)[0]:
            self.met["truncations over several epochs"] += 1
        entry = store.entry(end_offset)
        holders = sum(self._has_durable(other, end_offset, entry) for other in self.members.values())
        self.met["entries of a majority cut (figure 8)"] += holders >= self.majority

    def _has_durable(self, member: Member, offset: int, entry: Entry) -> bool:
        """True when the member is a voter that has the entry on disk, in its log or in a snapshot."""
        store = member.store
        if not member.settings.is_voter or offset >= store.durable_offset:
            return False
        return offset < store.start_offset or store.entry(offset) == entry

    def on_install(self, member: Member, snapshot_id: SnapshotId, digest: int) -> None:
        node_id, store = member.settings.node_id, member.store
        self.met["snapshots installed"] += 1
        if (snapshot_id.epoch, snapshot_id.end_offset) <= (store.epoch_before(store.end_offset), store.end_offset):
            self.found(f"node {node_id} installs a snapshot of {snapshot_id}, which is older than its log")
        if snapshot_id.end_offset < member.high_watermark:
            self.found(f"node {node_id} installs a snapshot of {snapshot_id} below its high watermark {member.high_watermark}")
        if snapshot_id.end_offset >= len(self.digests) or self.digests[snapshot_id.end_offset] != digest:
            self.found(f"node {node_id} installs a snapshot of {snapshot_id} that is not what was committed")

    def on_became_leader(self, member: Member, effect: BecameLeader) -> None:
        node_id, store, epoch = member.settings.node_id, member.store, effect.epoch
        self.met["elections"] += 1
        if self.leaders.setdefault(epoch, node_id) != node_id:
            self.found(f"epoch {epoch} has two leaders, {self.leaders[epoch]} and {node_id}")
        if any(other is not member and other.is_leader for other in self.members.values() if other.is_up):
            self.met["two leaders of different epochs"] += 1
        end = len(self.committed)
        if self.committed and self.committed[-1][0] >= epoch:  # one that is elected late has no part in what was committed since
            self.met["leaders elected late"] += 1
        elif store.end_offset < end or store.between(store.start_offset, end) != self.committed[store.start_offset :]:
            self.found(
                f"node {node_id} leads epoch {epoch} and lacks committed entries; it ends at {store.end_offset}, committed are {end}"
            )

    def on_established(self, member: Member, effect: LeadershipEstablished) -> None:
        node_id = member.settings.node_id
        self.established[effect.epoch] = node_id
        if not any(epoch == effect.epoch for epoch, _ in self.committed[-50:]):
            self.found(f"node {node_id} acts as leader of epoch {effect.epoch} before a record of it is committed")

    def on_lost(self, member: Member, epoch: int) -> None:
        self.met["leaders deposed"] += self.leaders.get(epoch) == member.settings.node_id
        self.met["leaders resigned for want of a majority"] += member.quorum.epoch == epoch and not member.is_stopping

    def on_high_watermark(self, member: Member, offset: int) -> None:
        """Checks a high watermark: everything below ``offset`` is committed, and is what all other nodes know."""
        node_id, store = member.settings.node_id, member.store
        if offset <= member.high_watermark:
            self.found(f"the high watermark of node {node_id} goes back from {member.high_watermark} to {offset}")
        if offset > store.end_offset:
            self.found(f"node {node_id} knows of commits up to {offset}, and its log ends at {store.end_offset}")
            return
        member.high_watermark = offset
        if offset > len(self.committed):
            self._commit(member, offset)
        for at in range(max(member.applied_offset, store.start_offset), offset):
            if store.entry(at) != self.committed[at]:
                self.found(f"node {node_id} has {store.entry(at)} committed at {at}, others {self.committed[at]}")
                return
        if offset > member.applied_offset:
            member.applied_offset, member.applied_digest = offset, self.digests[offset]

    def _commit(self, member: Member, offset: int) -> None:
        known = len(self.committed)
        if known < member.store.start_offset:
            self.found(f"node {member.settings.node_id} has a snapshot of more than was ever committed")
            return
        last = member.store.entry(offset - 1)
        holders = sum(self._has_durable(other, offset - 1, last) for other in self.members.values())
        if holders < self.majority:
            self.found(f"node {member.settings.node_id} commits up to {offset}, and {holders} voters have that on disk")
        new = member.store.between(known, offset)
        self.committed += new
        for entry in new:
            self.digests.append(hash((self.digests[-1], entry)))
        self.met["commits"] += 1
        self.met["entries of earlier epochs committed"] += new[0][0] < last[0]

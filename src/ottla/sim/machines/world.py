"""The quorum in a world of its own: a heap of events, messages that are late, lost or doubled, links that are cut one way, crashes, pauses,
slow disks.

What is modelled of a connection is what the machine's rules rest on: a peer whose process has died is heard of within milliseconds where
the link is whole, and a probe then finds it dead; a cut link and a paused process are silent, and prove nothing. A link on which a firewall
refuses looks, from one side, like a dead process.

*No needless election*: a leader is supported while a majority of the voters, itself among them, is up, not paused, and joined to it both
ways without loss. Once it has been for ``SETTLED_MS``, no voter may raise the epoch, whatever happens to the others.
"""

from __future__ import annotations

import heapq
from random import Random
from typing import Any, Final

from ottla.consensus.calls import Fetch, FetchSnapshot, Vote, VoteAnswer
from ottla.consensus.roles import Resigned
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet
from ottla.errors import KafkaError
from ottla.sim.machines.checker import Checker
from ottla.sim.machines.member import Member
from ottla.sim.machines.plan import ALL, CHAOS_MS, LEADER, Plan
from ottla.sim.schedule.fault import Kind, ScheduledFault
from ottla.wire.schema import ZERO_UUID

REQUEST, ANSWER, TICK, DISK, SYNC, LOST, PROBED, FAULT, MEND, APPEND, SECOND = range(11)
SETTLED_MS: Final = 1500
SLACK_MS: Final = 250
CLOCKS_MS: Final = (0, 1, 999_983, 86_400_000)


class QuorumWorld:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = Random(plan.seed)
        self.now_ms = 0
        self.heap: list[tuple[int, int, int, Any, Any, Any]] = []
        self.sequence = 0
        self.digest = plan.seed
        self.events = 0
        voters = VoterSet(dict.fromkeys(range(1, plan.voters + 1), ZERO_UUID))
        self.voters = voters
        self.members = {node: self._member(node, voters) for node in range(1, plan.voters + plan.observers + 1)}
        self.checker = Checker(self.members, voters.majority)
        self.cuts: dict[tuple[int, int], int] = {}  # by source and target: how many faults cut the link
        self.refused: dict[tuple[int, int], int] = {}  # by source and target: how many faults have the target's host refuse the source
        self.loss = 0.0
        self.slow_ms = 0
        self.fetch_entries_max = self.rng.choice((2, 5, 100))
        self.next_value = 1
        self.supported_since = 2**62
        self.supported_epoch = -1

    def _member(self, node: int, voters: VoterSet) -> Member:
        settings = QuorumSettings(
            node,
            voters,
            fetch_timeout_ms=600,
            election_timeout_ms=300,
            election_backoff_max_ms=300,
            request_timeout_ms=350,
            fetch_max_wait_ms=180,
            seed=self.rng.getrandbits(32),
        )
        return Member(self, settings, self.rng.choice(CLOCKS_MS))

    # -- events

    def run(self, until_ms: int) -> None:
        """Runs every event that is due by then, or up to the first broken promise."""
        heap, findings = self.heap, self.checker.findings
        while heap and heap[0][0] <= until_ms and not findings:
            self.now_ms, _, kind, node, a, b = heapq.heappop(heap)
            self.events += 1
            self._happen(kind, node, a, b)
        if not findings:
            self.now_ms = until_ms

    def push(self, at_ms: int, kind: int, node: int, a: Any = None, b: Any = None) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (at_ms, self.sequence, kind, node, a, b))

    def _happen(self, kind: int, node: int, a: Any, b: Any) -> None:
        if kind >= FAULT:
            self._happen_to_the_world(kind, node, a, b)
            return
        member = self.members[node]
        if member.paused_until > self.now_ms:
            self.push(member.paused_until, kind, node, a, b)
            return
        if kind == TICK:
            if a == member.incarnation and member.is_up and b == member.armed_ms:  # else an earlier one has taken its place
                member.armed_ms = 2**62
                if member.quorum.next_deadline_ms() <= member.now_ms:
                    member.take(member.quorum.on_tick(member.now_ms))
                self.arm(member)
            return
        if kind == ANSWER:
            source, incarnation, request, answer = a
            self.digest = hash((self.digest, self.now_ms, kind, node, source, answer.epoch, answer.error))
            if member.is_up and incarnation == member.incarnation and (source, node) not in self.cuts:
                member.take(member.quorum.on_answer(source, request, answer, member.now_ms))
        elif kind == REQUEST:
            self._on_request(member, a, b)
        elif not member.is_up or a != member.incarnation:
            return
        elif kind == DISK:
            member.on_disk_done()
        elif kind == SYNC:
            member.on_sync_done(*b)
        elif kind == LOST:
            member.take(member.quorum.on_connection_lost(b, member.now_ms))
        else:
            self._probed(member, b)
        if member.is_up:
            self.arm(member)

    def _on_request(self, member: Member, origin: tuple[int, int], request: Any) -> None:
        source, incarnation = origin
        node = member.settings.node_id
        self.digest = hash((self.digest, self.now_ms, node, source, request.epoch))
        if (source, node) in self.cuts:
            return
        if not member.is_up or (source, node) in self.refused:
            if (node, source) not in self.cuts:
                self.push(self.now_ms + 1, LOST, source, incarnation, node)
            return
        if isinstance(request, Fetch | FetchSnapshot):
            member.heard[source] = self.now_ms
        before = member.quorum.election
        effects = member.quorum.on_request((source, incarnation, request), request, member.now_ms)
        if type(request) is Vote and request.is_pre:
            if member.quorum.election != before:
                self.checker.found(f"a pre-vote changes the election of node {node}")
            self.checker.met["pre-votes"] += 1
        member.take(effects)

    def arm(self, member: Member) -> None:
        due_ms = member.quorum.next_deadline_ms() - member.clock_ms
        if due_ms < member.armed_ms:
            member.armed_ms = max(due_ms, self.now_ms)
            self.push(member.armed_ms, TICK, member.settings.node_id, member.incarnation, member.armed_ms)

    # -- the network and the disk

    def send_request(self, member: Member, peer: int, request: Any) -> None:
        if type(request) is Vote and not request.is_pre:
            self.on_candidate(member)
        self._send(REQUEST, peer, (member.settings.node_id, member.incarnation), request)

    def send_answer(self, member: Member, token: Any, answer: Any) -> None:
        source, incarnation, request = token
        if type(answer) is VoteAnswer and answer.is_granted and not request.is_pre:
            self.checker.on_granted(member, request, answer)
        elif type(answer) is VoteAnswer and request.is_pre and not answer.is_granted:
            self.checker.met["pre-votes refused"] += 1
        self._send(ANSWER, source, (member.settings.node_id, incarnation, request, answer), None)

    def _send(self, kind: int, target: int, a: Any, b: Any) -> None:
        random = self.rng.random
        if self.loss and random() < self.loss:
            return
        delay_ms = 1 + int(random() * 4) + (int(random() * self.slow_ms) if self.slow_ms else 0)
        self.push(self.now_ms + delay_ms, kind, target, a, b)
        if self.plan.duplicates and random() < 0.1:
            self.push(self.now_ms + delay_ms + int(random() * 50), kind, target, a, b)

    def after_disk(self, member: Member) -> None:
        self.push(self.now_ms + 1 + int(self.rng.random() * member.disk_ms), DISK, member.settings.node_id, member.incarnation)

    def after_sync(self, member: Member, end_offset: int, version: int) -> None:
        """Schedules the end of an fsync that has started. Several may be under way, and end in any order."""
        delay_ms = 1 + int(self.rng.random() * member.disk_ms)
        self.push(self.now_ms + delay_ms, SYNC, member.settings.node_id, member.incarnation, (end_offset, version))

    def probe(self, member: Member, peer: int) -> None:
        self.push(self.now_ms + 6 + int(self.rng.random() * 12), PROBED, member.settings.node_id, member.incarnation, peer)

    def _probed(self, member: Member, peer: int) -> None:
        """Answers a probe: a dead process refuses, as a host may; a paused or unreachable one does not answer."""
        node, other = member.settings.node_id, self.members[peer]
        is_refused = (node, peer) in self.refused
        if (node, peer) in self.cuts or (peer, node) in self.cuts or (other.paused_until > self.now_ms and not is_refused):
            return
        if other.is_up and not is_refused:
            member.take(member.quorum.on_peer_alive(peer, member.now_ms))
        else:
            self.checker.met["leaders found dead"] += 1
            member.take(member.quorum.on_peer_dead(peer, member.now_ms, rtt_ms=4))

    # -- faults

    def _happen_to_the_world(self, kind: int, node: int, a: Any, b: Any) -> None:
        if kind == APPEND:
            if self.now_ms < CHAOS_MS:
                self.append(a)
                self.push(self.now_ms + 1 + int(self.rng.expovariate(1 / self.plan.append_ms)), APPEND, 0, self.rng.choice((1, 1, 1, 2, 5)))
        elif kind == SECOND:
            self._look_at_leaders()
            self.push(self.now_ms + 200, SECOND, 0)
        elif kind == FAULT:
            self._begin(a)
            self._judge_support()
        else:
            self._end(node, a, b)
            self._judge_support()

    def append(self, count: int) -> None:
        for member in self.members.values():
            if member.is_up and member.is_leader and member.paused_until <= self.now_ms:
                values = range(self.next_value, self.next_value + count)
                self.next_value += count
                try:
                    member.take(member.quorum.append(member.quorum.epoch, count, tuple(values), member.now_ms))
                except KafkaError:
                    continue
                if self.checker.established.get(member.quorum.epoch) != member.settings.node_id and not member.queue:
                    self.checker.found(f"node {member.settings.node_id} decides before it may")
                self.arm(member)

    def _begin(self, fault: ScheduledFault) -> None:
        node, until_ms = self._target(fault), min(self.now_ms + fault.for_ms, CHAOS_MS)
        member = self.members[node]
        self.checker.met[fault.kind.value] += 1
        match fault.kind:
            case Kind.KILL | Kind.POWER | Kind.RESTART:
                if member.is_up and member.paused_until <= self.now_ms:
                    if fault.kind is Kind.RESTART:
                        self._stop(member)
                        until_ms += 300
                        self.push(self.now_ms + 200, MEND, node, "halt", member.incarnation)
                    else:
                        self._crash(member, power_cut=fault.kind is Kind.POWER)
                    self.push(until_ms, MEND, node, "boot", None)
            case Kind.PAUSE:
                member.paused_until = max(member.paused_until, until_ms)
                self.push(until_ms, MEND, node, "resumed", None)
            case Kind.BLACKOUT:
                for other, victim in self.members.items():
                    if victim.is_up and victim.paused_until <= self.now_ms:
                        self._crash(victim, power_cut=True)
                        self.push(self.now_ms + 1 + int(self.rng.random() * fault.for_ms), MEND, other, "boot", None)
            case Kind.CUT | Kind.DARK | Kind.SPLIT:
                links = self._links(fault, node)
                for link in links:
                    self.cuts[link] = self.cuts.get(link, 0) + 1
                self.push(until_ms, MEND, node, "links", links)
            case Kind.REFUSE:
                for link in self._links(fault, node):
                    self.refused[link] = self.refused.get(link, 0) + 1
                    self.push(until_ms, MEND, node, "refused", link)
                    self.push(self.now_ms + 1, LOST, link[0], self.members[link[0]].incarnation, link[1])
            case Kind.LOSS:
                self.loss = fault.by
                self.push(until_ms, MEND, 0, "loss", None)
            case Kind.SLOW:
                self.slow_ms = int(fault.by)
                self.push(until_ms, MEND, 0, "slow-net", None)
            case Kind.DISK_SLOW:
                member.disk_ms = int(fault.by)
                self.push(until_ms, MEND, node, "disk", None)
            case Kind.SNAPSHOT:
                if member.is_up and member.paused_until <= self.now_ms:
                    self.checker.met["snapshots taken"] += member.take_snapshot()
                    self.arm(member)
            case Kind.BREAK:
                peer = _node_of(fault.peer)
                for one, other in ((node, peer), (peer, node)) if node != peer else ():
                    self.push(self.now_ms + 1, LOST, one, self.members[one].incarnation, other)
            case _:
                raise ValueError(f"nothing here carries out: {fault}")

    def _target(self, fault: ScheduledFault) -> int:
        """Returns the node that the fault befalls: any node, where the leader is meant and there is none."""
        if fault.host == ALL:
            return 1
        if fault.host != LEADER:
            return _node_of(fault.host)
        leader = self._leader()
        return 1 + fault.at_ms % len(self.members) if leader is None else leader.settings.node_id

    def _links(self, fault: ScheduledFault, node: int) -> list[tuple[int, int]]:
        """Returns the links to cut: one way to one node, all ways from and to a node, or all between two halves."""
        if fault.kind in (Kind.CUT, Kind.REFUSE):
            peer = _node_of(fault.peer)
            return [(node, peer)] if node != peer else []
        half = {node} if fault.kind is Kind.DARK else {node, *(other for other in self.members if self.rng.random() < 0.4)}
        return [(one, other) for one in self.members for other in self.members if (one in half) != (other in half)]

    def _end(self, node: int, what: str, detail: Any) -> None:
        if what == "boot":
            if not self.members[node].is_up:
                self.members[node].boot(self.now_ms)
                self.arm(self.members[node])
        elif what == "halt":
            if self.members[node].incarnation == detail and self.members[node].is_up:
                self._crash(self.members[node], power_cut=False)
        elif what == "links":
            for link in detail:
                self.cuts[link] -= 1
                if self.cuts[link] == 0:
                    del self.cuts[link]
        elif what == "refused":
            self.refused[detail] -= 1
            if self.refused[detail] == 0:
                del self.refused[detail]
        elif what == "loss":
            self.loss = 0.0
        elif what == "slow-net":
            self.slow_ms = 0
        elif what == "disk":
            self.members[node].disk_ms = 3

    def _stop(self, member: Member) -> None:
        self.checker.met["hand-overs"] += member.is_leader
        member.is_stopping = True
        member.take(member.quorum.stop(member.now_ms))
        self.arm(member)

    def _crash(self, member: Member, *, power_cut: bool) -> None:
        node = member.settings.node_id
        if member.is_leader:
            self.checker.met["leaders killed"] += 1
        if member.store.crash(self.rng, power_cut=power_cut):
            self.checker.met["entries lost by a power cut"] += 1
        member.is_up = False
        member.reset()
        for other, peer in self.members.items():
            if other != node and (node, other) not in self.cuts and (other, node) not in self.cuts:
                self.push(self.now_ms + 1 + int(self.rng.random() * 5), LOST, other, peer.incarnation, node)

    # -- needless elections, leaders without followers

    def on_candidate(self, member: Member) -> None:
        """Checks that a voter has raised the epoch with reason."""
        if self.now_ms - self.supported_since > SETTLED_MS and member.quorum.epoch == self.supported_epoch + 1:
            self.checker.found(f"node {member.settings.node_id} begins epoch {member.quorum.epoch} without need")

    def _judge_support(self) -> None:
        """Judges whether the leader, if there is one, is connected to enough voters that an election must not happen."""
        leader = self._leader()
        if leader is None or not self._is_supported(leader):
            self.supported_since = 2**62
        elif self.supported_since > self.now_ms or self.supported_epoch != leader.quorum.epoch:
            self.supported_since, self.supported_epoch = self.now_ms, leader.quorum.epoch

    def _leader(self) -> Member | None:
        leaders = [member for member in self.members.values() if member.is_up and member.is_leader]
        return max(leaders, key=lambda member: member.quorum.epoch, default=None)

    def _is_supported(self, leader: Member) -> bool:
        node, epoch = leader.settings.node_id, leader.quorum.epoch
        if self.loss or self.slow_ms or not self._is_well(leader):
            return False
        if any(self.members[voter].store.election.epoch > epoch for voter in self.voters.ids):
            return False
        joined = [
            voter
            for voter in self.voters.ids
            if self._is_well(self.members[voter])
            and not any(link in links for link in ((node, voter), (voter, node)) for links in (self.cuts, self.refused))
        ]
        return len(joined) >= self.voters.majority

    def _is_well(self, member: Member) -> bool:
        return member.is_up and member.paused_until <= self.now_ms and member.disk_ms <= 20 and not isinstance(member.quorum.role, Resigned)

    def _look_at_leaders(self) -> None:
        self._judge_support()
        for node, member in self.members.items():
            if not member.is_up or not member.is_leader or member.paused_until > self.now_ms - 1500:
                continue
            heard = sorted((member.heard.get(voter, 0) for voter in self.voters.others(node)), reverse=True)
            needed = self.voters.majority - 1
            silent_ms = member.settings.check_quorum_ms + SLACK_MS
            if needed and self.now_ms - heard[needed - 1] > silent_ms and self.now_ms - member.led_since_ms > silent_ms:
                self.checker.found(f"node {node} leads epoch {member.quorum.epoch}, and no majority has fetched for {silent_ms} ms")


def _node_of(host: str) -> int:
    return int(host.removeprefix("node-"))

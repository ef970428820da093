"""Quorum machines behind a transcript: ``ottla.sim.machines`` without luck. Everything takes 1 ms: a message, an fsync; a probe takes 6 ms.

==================================  =============================================================================================
``cluster VOTERS [OBSERVERS]``      so many nodes, from 1 on, that start; fetch.timeout is 600 ms, election.timeout 300 ms
``run MS``                          time passes
``append COUNT``                    every node that leads is given so many records
``kill NODE`` ``cut-power NODE``    the process dies; with a power cut, what was not fsynced is lost
``start NODE...``                   the processes of nodes that are down start again
``stop NODE``                       an orderly end: the process ends once the others have been told
``cut A B`` ``join A B``            the way from A to B is silent, or back; ``isolate NODE...`` cuts these nodes from the others
``heal``                            all ways are there again
``expire NODE``                     the node's election or fetch timeout is over
``dead A B`` ``alive A B``          what A's probe of B has found
``pre-vote A B EPOCH``              A asks B for its pre-vote, with the log that it has
``snapshot NODE``                   the node replaces what is committed by a snapshot
``entries COUNT``                   so many entries fit into one answer to a fetch
``logs``                            epochs of each node's entries, and its high watermark
==================================  =============================================================================================

An answer begins with the time since the command and the node. Fetches are left out, unless their answer is more than records.
"""

from __future__ import annotations

from random import Random
from typing import Any

from ottla.consensus.calls import BeginEpoch, EndEpoch, Fetch, FetchAnswer, FetchSnapshot, Vote
from ottla.consensus.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendRecords,
    Effect,
    Fatal,
    HighWatermark,
    InstallSnapshot,
    LeadershipEstablished,
    LostLeadership,
    PersistElection,
    Probe,
    SecondLeader,
    TruncateLog,
)
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet
from ottla.errors import ErrorCode
from ottla.sim.machines.member import Member
from ottla.sim.machines.plan import Plan
from ottla.sim.machines.world import QuorumWorld


class Still(Random):
    """Every draw is the smallest."""

    def random(self) -> float:
        return 0.0


class ToldMember(Member):
    __slots__ = ()

    def _carry_out(self, effect: Effect) -> None:
        text = _effect_text(effect)
        assert isinstance(self.world, ToldWorld), "members of a transcript"
        if text:
            self.world.say(self.settings.node_id, text)
        super()._carry_out(effect)


class ToldWorld(QuorumWorld):
    def __init__(self, plan: Plan) -> None:
        self.lines: list[str] = []
        self.since_ms = 0
        super().__init__(plan)
        self.rng = Still(plan.seed)

    def _member(self, node: int, voters: VoterSet) -> Member:
        settings = QuorumSettings(node, voters, fetch_timeout_ms=600, election_timeout_ms=300, request_timeout_ms=350, seed=node)
        return ToldMember(self, settings, clock_ms=0)

    def say(self, node: int, text: str) -> None:
        self.lines.append(f"{self.now_ms - self.since_ms:>4} {node} {text}")

    def send_request(self, member: Member, peer: int, request: Any) -> None:
        text = _request_text(request)
        if text:
            self.say(member.settings.node_id, f"-> {peer} {text}")
        super().send_request(member, peer, request)

    def send_answer(self, member: Member, token: Any, answer: Any) -> None:
        source, _, request = token
        text = _answer_text(request, answer)
        if text:
            self.say(member.settings.node_id, f"-> {source} {text}")
        super().send_answer(member, token, answer)


def _request_text(request: Any) -> str:
    if isinstance(request, Vote):
        return f"{'PreVote' if request.is_pre else 'Vote'} epoch={request.epoch} log={request.end_offset}@{request.last_epoch}"
    if isinstance(request, BeginEpoch):
        return f"BeginQuorumEpoch epoch={request.epoch}"
    if isinstance(request, EndEpoch):
        return f"EndQuorumEpoch epoch={request.epoch} successors={','.join(map(str, request.successors))}"
    if isinstance(request, FetchSnapshot):
        return f"FetchSnapshot {request.snapshot_id.end_offset}@{request.snapshot_id.epoch} position={request.position}"
    return ""


def _answer_text(request: Any, answer: Any) -> str:
    error = "" if answer.error == 0 else f"{ErrorCode(answer.error).name} epoch={answer.epoch} leader={answer.leader_id}"
    if isinstance(request, Vote):
        return error or f"{'granted' if answer.is_granted else 'refused'} epoch={answer.epoch} leader={answer.leader_id}"
    if isinstance(request, Fetch) and not error:
        assert isinstance(answer, FetchAnswer), "a fetch is answered as one"
        if answer.diverging is not None:
            return f"Fetch {request.fetch_offset}@{request.last_epoch}: diverging, {answer.diverging.end_offset}@{answer.diverging.epoch}"
        if answer.snapshot_id is not None:
            return f"Fetch {request.fetch_offset}@{request.last_epoch}: snapshot {answer.snapshot_id.end_offset}@{answer.snapshot_id.epoch}"
        return ""
    return error


def _effect_text(effect: Effect) -> str:
    match effect:
        case PersistElection(election=election, is_binding=True):
            return f"persists epoch={election.epoch} vote={election.voted_id}"
        case AppendLeaderChange():
            votes = ",".join(map(str, effect.granting_voters))
            return f"leads epoch {effect.epoch} by the votes of {votes}, LeaderChange at {effect.base_offset}"
        case AppendRecords() | AppendFetched():
            return f"appends {effect.base_offset}-{effect.end_offset - 1}"
        case LeadershipEstablished():
            return f"may act as controller of epoch {effect.epoch}"
        case LostLeadership():
            return f"leads epoch {effect.epoch} no more"
        case HighWatermark():
            return f"high watermark {effect.offset}"
        case TruncateLog():
            return f"truncates to {effect.end_offset}"
        case InstallSnapshot():
            return f"installs the snapshot {effect.snapshot_id.end_offset}@{effect.snapshot_id.epoch}"
        case Probe():
            return f"probes {effect.peer}"
        case SecondLeader():
            return f"hears that {effect.leader_id} leads epoch {effect.epoch}, which {effect.known_id} leads"
        case Fatal():
            return f"FATAL {effect.reason}"
        case _:
            return ""


class QuorumPlayer:
    def __init__(self) -> None:
        self._world = ToldWorld(Plan(0, 1, 0, (), duplicates=False, append_ms=1))

    def __call__(self, line: str) -> list[str]:
        name, *arguments = line.split()
        world = self._world
        world.since_ms = world.now_ms
        told: list[str] | None = getattr(self, "_" + name.replace("-", "_"))(*arguments)
        world = self._world
        for member in world.members.values():
            if member.is_up:
                world.arm(member)
        out, world.lines = world.lines, []
        assert not world.checker.findings, world.checker.findings
        return [*out, *(told or [])]

    def _cluster(self, voters: str, observers: str = "0") -> None:
        self._world = ToldWorld(Plan(0, int(voters), int(observers), (), duplicates=False, append_ms=1))
        self._world.fetch_entries_max = 100
        for member in self._world.members.values():
            member.boot(0)

    def _run(self, ms: str) -> None:
        self._world.run(self._world.now_ms + int(ms))

    def _append(self, count: str) -> None:
        self._world.append(int(count))

    def _kill(self, *nodes: str) -> None:
        for node in nodes:
            self._world._crash(self._world.members[int(node)], power_cut=False)

    def _cut_power(self, *nodes: str) -> None:
        for node in nodes:
            self._world._crash(self._world.members[int(node)], power_cut=True)

    def _start(self, *nodes: str) -> None:
        for node in nodes:
            self._world.members[int(node)].boot(self._world.now_ms)

    def _stop(self, node: str) -> None:
        member = self._world.members[int(node)]
        member.take(member.quorum.stop(member.now_ms))
        while not member.quorum.has_handed_over:
            self._world.run(self._world.now_ms + 1)
        self._world._crash(member, power_cut=False)

    def _cut(self, source: str, target: str) -> None:
        self._world.cuts[int(source), int(target)] = 1

    def _join(self, source: str, target: str) -> None:
        self._world.cuts.pop((int(source), int(target)), None)

    def _isolate(self, *nodes: str) -> None:
        apart = {int(node) for node in nodes}
        for one in self._world.members:
            for other in self._world.members:
                if (one in apart) != (other in apart):
                    self._world.cuts[one, other] = 1

    def _heal(self) -> None:
        self._world.cuts.clear()

    def _expire(self, node: str) -> None:
        member = self._world.members[int(node)]
        member.quorum.role.deadline_ms = member.now_ms  # type: ignore[union-attr]
        member.take(member.quorum.on_tick(member.now_ms))

    def _dead(self, node: str, peer: str) -> None:
        member = self._world.members[int(node)]
        member.take(member.quorum.on_peer_dead(int(peer), member.now_ms, rtt_ms=2))

    def _alive(self, node: str, peer: str) -> None:
        member = self._world.members[int(node)]
        member.take(member.quorum.on_peer_alive(int(peer), member.now_ms))

    def _pre_vote(self, node: str, peer: str, epoch: str) -> None:
        log = self._world.members[int(node)].quorum.log
        request = Vote(int(epoch), int(node), log.last_epoch, log.end_offset, is_pre=True)
        self._world.send_request(self._world.members[int(node)], int(peer), request)
        self._world.run(self._world.now_ms + 2)

    def _snapshot(self, node: str) -> list[str]:
        member = self._world.members[int(node)]
        member.take_snapshot()
        return [f"     {node} log from {member.store.start_offset} on"]

    def _entries(self, count: str) -> None:
        self._world.fetch_entries_max = int(count)

    def _logs(self) -> list[str]:
        out = []
        for node, member in self._world.members.items():
            store = member.store
            before = f"[{store.start_offset}@{store.start_epoch}] " if store.start_offset else ""
            entries = " ".join(str(epoch) for epoch, _ in store.entries)
            state = f"{type(member.quorum.role).__name__} epoch={member.quorum.epoch}" if member.is_up else "down"
            out.append(f"{node} {before}{entries} hw={member.high_watermark} {state}")
        return out

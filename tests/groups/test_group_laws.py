"""What holds of a group whatever its members do, and when (mechanisms 54, 55, 58).

Random members join, sync, send heartbeats, commit, leave, fall silent and come back, and the coordinator is lost and rebuilt
from its records in between. After every step:

- a partition has at most one owner in a generation, and owners are members;
- every request is answered once, or is still parked in the group: none is lost;
- committed offsets are those that were acknowledged last;
- the records of the log give the durable state, no more and no less.

In the end the members that live settle: every partition has an owner, and the load is even.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from tests.groups.coordinator_runner import DELAY_MS, METADATA, SESSION_MS, Runner, subscription

from ottla.client.assignors import Subscription, assign
from ottla.errors import ErrorCode
from ottla.groups.commands import DeleteGroup, JoinResult, SyncResult
from ottla.groups.coordinator import GroupCoordinator, GroupSettings
from ottla.groups.records import decode_record, encode_record
from ottla.messages.group_records import GroupMetadataValue

PARTITIONS = 6
OTHER = subscription("orders", "payments")
REBALANCE_MS = 25_000
SETTLED_MS = 4 * REBALANCE_MS


@dataclass
class Client:
    """An honest consumer: it follows the coordinator's answers, or falls silent."""

    name: str
    instance: str | None = None
    asks_for_id: bool = True  # JoinGroup v4 or later
    metadata: bytes = METADATA
    member_id: str = ""
    generation_id: int = -1
    token: int | None = None  # a request that has not been answered
    leads: tuple[str, ...] = ()  # the members to assign to
    is_joined: bool = False
    is_member: bool = False
    incarnation: int = 0

    def forget(self) -> None:
        self.generation_id, self.is_joined, self.is_member, self.leads = -1, False, False, ()


class Group(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = Runner(GroupSettings(group_max_size=5))
        self.clients: list[Client] = []
        self.claims: dict[tuple[int, int], str] = {}  # (generation, partition) -> the member that it was assigned to
        self.committed: dict[tuple[str, int], int] = {}
        self.names = 0

    @initialize()
    def begin(self) -> None:
        self.add(instance=None, asks_for_id=True)

    # -- what happens -------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < 6)
    @rule(instance=st.sampled_from([None, None, "i1", "i2"]), asks_for_id=st.booleans())
    def add(self, instance: str | None, asks_for_id: bool) -> None:
        if instance is not None and any(client.instance == instance for client in self.clients):
            return
        self.names += 1
        self.clients.append(Client(f"n{self.names}", instance, asks_for_id))
        self.step(self.clients[-1])

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5), count=st.integers(1, 3))
    def act(self, at: int, count: int) -> None:
        for _ in range(count):
            self.step(self.clients[at % len(self.clients)])

    @rule()
    def all_act(self) -> None:
        for client in self.clients:
            self.step(client)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5))
    def rejoin(self, at: int) -> None:
        """A client asks for a rebalance without being asked to; also while an earlier request waits."""
        client = self.clients[at % len(self.clients)]
        if client.member_id:
            client.metadata = OTHER if client.metadata == METADATA else METADATA
            client.is_joined = client.is_member = False
            self.join(client)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5))
    def sync_again(self, at: int) -> None:
        client = self.clients[at % len(self.clients)]
        if client.is_joined:
            self.sync(client)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5))
    def fall_silent(self, at: int) -> None:
        """The client is gone without a word."""
        self.clients.pop(at % len(self.clients))

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5))
    def start_again(self, at: int) -> None:
        """The process restarts: it remembers its instance id, and nothing else."""
        client = self.clients[at % len(self.clients)]
        client.forget()
        client.member_id, client.token = "", None
        self.step(client)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5))
    def leave(self, at: int) -> None:
        client = self.clients.pop(at % len(self.clients))
        if client.member_id:
            self.runner.leave((client.member_id, client.instance))

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5), partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 99))
    def commit(self, at: int, partition: int, offset: int) -> None:
        client = self.clients[at % len(self.clients)]
        if not client.is_member:
            return
        [code] = self.runner.commit(
            {("orders", partition): offset}, member_id=client.member_id, generation_id=client.generation_id, instance=client.instance
        )
        if code == ErrorCode.NONE:
            self.committed["orders", partition] = offset
        else:
            self.hear(client, code)

    @rule(partition=st.integers(0, PARTITIONS - 1), offset=st.integers(100, 199))
    def commit_from_outside(self, partition: int, offset: int) -> None:
        is_free = self.runner.state() in ("Empty", "Dead")
        [code] = self.runner.commit({("orders", partition): offset})
        assert (code == ErrorCode.NONE) == is_free
        if is_free:
            self.committed["orders", partition] = offset

    @rule()
    def delete(self) -> None:
        state = self.runner.state()
        code = self.runner.ask(DeleteGroup(self.runner.token(), "g")).error_code
        assert code == {"Dead": ErrorCode.GROUP_ID_NOT_FOUND, "Empty": ErrorCode.NONE}.get(state, ErrorCode.NON_EMPTY_GROUP)
        if code == ErrorCode.NONE:
            self.committed.clear()
            self.claims.clear()  # the next group of this name counts its generations from 1 again

    @rule(ms=st.sampled_from([1, 500, DELAY_MS, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, ms: int) -> None:
        self.runner.advance(ms)

    @rule()
    def lose_the_coordinator(self) -> None:
        self.runner.restart()

    # -- what clients do ----------------------------------------------------------------------------------------------

    def step(self, client: Client) -> None:
        """The client looks for its answer, or asks the next thing."""
        if client.token is None:
            if client.is_member:
                self.hear(client, self.runner.heartbeat(client.member_id, client.generation_id, instance=client.instance))
            elif client.is_joined:
                self.sync(client)
            else:
                self.join(client)
        self.listen(client)

    def join(self, client: Client) -> None:
        client.incarnation += 1
        client.token = self.runner.join(
            client.member_id,
            fresh=f"{client.name}-{client.incarnation}",
            instance=client.instance,
            protocols=(("range", client.metadata),),
            rebalance_ms=REBALANCE_MS,
            known_id=client.asks_for_id,
        )

    def sync(self, client: Client) -> None:
        shares: dict[str, bytes] = {}
        if client.leads:
            members = {member_id: Subscription(("orders",)) for member_id in client.leads}
            divided = assign("range", members, {"orders": PARTITIONS})
            shares = {member_id: bytes(partition.partition for partition in mine) for member_id, mine in divided.items()}
        client.token = self.runner.sync(client.member_id, client.generation_id, shares, instance=client.instance)

    def listen(self, client: Client) -> None:
        if client.token in self.runner.failed:
            client.token = None
        if client.token is None or client.token not in self.runner.answers:
            return
        answer = self.runner.answers[client.token]
        client.token = None
        if isinstance(answer, JoinResult):
            if answer.error_code:
                client.member_id = answer.member_id if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else client.member_id
                self.hear(client, answer.error_code)
                return
            client.member_id, client.generation_id, client.is_joined = answer.member_id, answer.generation_id, True
            is_leader = answer.leader == answer.member_id and not answer.skip_assignment
            client.leads = tuple(member.member_id for member in answer.members) if is_leader else ()
            assert not is_leader or client.member_id in client.leads
        else:
            assert isinstance(answer, SyncResult)
            if answer.error_code:
                self.hear(client, answer.error_code)
                return
            client.is_member = True
            for partition in answer.assignment:
                owner = self.claims.setdefault((client.generation_id, partition), client.instance or client.member_id)
                assert owner == (client.instance or client.member_id), "a partition has one owner in a generation"

    def hear(self, client: Client, code: int) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
            client.forget()
            client.member_id = ""
        elif code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            client.forget()
        else:
            assert code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED), ErrorCode(code)

    # -- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def no_request_is_lost(self) -> None:
        members = [member for group in self.runner.machine._groups.values() for member in group.members.values()]
        held = [token for member in members for token in (member.join_token, member.sync_token) if token is not None]
        assert sorted(held) == sorted(self.runner.parked)

    @invariant()
    def whoever_waits_will_be_answered(self) -> None:
        names = {name[0] for name in self.runner.timers if name[1:2] == ("g",)}
        state = self.runner.state()
        assert "rebalance" in names or state != "PreparingRebalance"
        assert "sync" in names or state != "CompletingRebalance"
        for group in self.runner.machine._groups.values():
            for member in group.members.values():
                assert member.is_waiting or ("session", "g", member.member_id) in self.runner.timers

    @invariant()
    def committed_offsets_are_those_acknowledged_last(self) -> None:
        assert self.runner.fetch() == self.committed

    @invariant()
    def assignments_of_a_stable_group_do_not_overlap(self) -> None:
        shares = [partition for member in self.runner.describe().members for partition in member.assignment]
        assert len(set(shares)) == len(shares)

    @invariant()
    def the_records_are_the_durable_state(self) -> None:
        replayed = GroupCoordinator(self.runner.settings)
        for key, value in self.runner.log:
            record = decode_record(key, value)
            assert record is not None
            replayed.apply(record)
        assert sorted(map(encode_record, replayed.snapshot())) == sorted(map(encode_record, self.runner.machine.snapshot()))
        stored = replayed._stored.get("g")
        if self.runner.state() == "Stable":
            now = self.runner.machine._groups["g"].to_record().value
            assert isinstance(now, GroupMetadataValue)
            assert stored is not None
            assert stored.members == now.members

    def teardown(self) -> None:
        """Left alone, those that live divide the partitions evenly."""
        for _ in range(SETTLED_MS // 1_000):
            for client in self.clients[:5]:  # the group takes five
                for _ in range(4):
                    self.step(client)
            self.runner.advance(1_000)
        if not self.clients:
            return
        living = self.clients[:5]
        assert self.runner.state() == "Stable"
        shares = [len(member.assignment) for member in self.runner.describe().members]
        assert {member.member_id for member in self.runner.describe().members} == {client.member_id for client in living}
        assert all(client.is_member for client in living)
        assert sum(shares) == PARTITIONS
        assert max(shares) - min(shares) <= 1


@pytest.mark.slow
def test_a_group_keeps_its_laws_whatever_its_members_do() -> None:
    run_state_machine_as_test(Group, settings=settings(max_examples=max(150, settings().max_examples), stateful_step_count=40))


def test_scaling_from_one_to_four_to_two_members_is_balanced_each_time() -> None:
    """Mechanism 55, and 54 at every step."""
    group = Group()
    group.begin()
    for count in (1, 4, 2):
        while len(group.clients) < count:
            group.add(instance=None, asks_for_id=True)
        while len(group.clients) > count:
            group.leave(at=0)
        group.teardown()
        shares = [len(member.assignment) for member in group.runner.describe().members]
        assert len(shares) == count
        group.no_request_is_lost()


def test_one_member_owns_all_partitions() -> None:
    """Mechanism 56."""
    group = Group()
    group.begin()
    group.teardown()
    [member] = group.runner.describe().members
    assert member.assignment == bytes(range(PARTITIONS))

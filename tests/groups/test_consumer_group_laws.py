"""What holds of a consumer group whatever its members do, and when (mechanism 54, KIP-848).

Members join, leave, fall silent, lose answers, take their time to give up partitions, and come back; topics are made, grow and are
deleted; the coordinator is lost and built again from its records. After every step:

- no two members own a partition, as they see it themselves;
- what a member owns the coordinator knows as its own, or as what it has to give up;
- the target gives each partition of a subscribed topic to one member that subscribes to it;
- a commit of a member that was fenced is refused;
- the records rebuild the group.

In the end the members that live settle: each partition has an owner, who has what the target says, and the load is even.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from tests.groups.consumer_runner import GROUP, HEARTBEAT_MS, ClassicClient, Client, ConsumerRunner, Place, image_of, topic_id

from ottla.errors import ErrorCode
from ottla.groups.consumer.group import ConsumerGroupState
from ottla.groups.coordinator import GroupCoordinator
from ottla.groups.records import decode_record, encode_record

SUBSCRIPTIONS = [("orders",), ("orders",), ("orders", "payments"), ("payments",), ("orders", "none")]
ROUNDS = 16
"""Heartbeats of each member until the group has settled: revocations and assignments follow each other."""


class Group(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.counts = {"orders": 6, "payments": 3}
        self.runner = ConsumerRunner(self.counts, group_max_size=5, may_downgrade=False)  # it stays one
        self.clients: list[Client] = []
        self.names = 0

    @initialize()
    def begin(self) -> None:
        self.add(topics=("orders",), instance=None, assignor=None)

    # -- what happens -------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < 6)
    @rule(
        topics=st.sampled_from(SUBSCRIPTIONS),
        instance=st.sampled_from([None, None, "i1", "i2"]),
        assignor=st.sampled_from([None, None, "range", "uniform"]),
    )
    def add(self, topics: tuple[str, ...], instance: str | None, assignor: str | None) -> None:
        if instance is not None and any(client.instance == instance for client in self.clients):
            return
        self.names += 1
        self.clients.append(Client(f"m{self.names}", topics, instance, assignor))
        self.clients[-1].beat(self.runner)

    @precondition(lambda self: len(self.clients) < 6)
    @rule(topics=st.sampled_from(SUBSCRIPTIONS), is_eager=st.booleans())
    def add_classic(self, topics: tuple[str, ...], is_eager: bool) -> None:
        """While a group is moved from one protocol to the other it has members of both."""
        self.names += 1
        self.clients.append(ClassicClient(f"c{self.names}", topics, is_eager=is_eager))
        self.clients[-1].beat(self.runner)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5), is_lost=st.sampled_from([False, False, False, True]))
    def beat(self, at: int, is_lost: bool) -> None:
        self.clients[at % len(self.clients)].beat(self.runner, is_lost=is_lost)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5), only_gives_up=st.booleans())
    def follow(self, at: int, only_gives_up: bool) -> None:
        client = self.clients[at % len(self.clients)]
        client.revoke() if only_gives_up else client.follow()

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5), topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, at: int, topics: tuple[str, ...]) -> None:
        client = self.clients[at % len(self.clients)]
        client.topics, client.is_full = topics, True

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5))
    def leave(self, at: int) -> None:
        client = self.clients.pop(at % len(self.clients))
        if client.is_classic:
            self.runner.leave((client.member_id, None), group=GROUP)
            return
        code = self.runner.beat(client.member_id, -1, instance_id=client.instance).error_code
        assert code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND)

    @precondition(lambda self: any(client.instance for client in self.clients))
    @rule()
    def restart_static(self) -> None:
        """It leaves for a while, and comes back under another id."""
        client = next(client for client in self.clients if client.instance)
        self.runner.beat(client.member_id, -2, instance_id=client.instance)
        client.forget()
        self.names += 1
        client.member_id = f"m{self.names}"

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5))
    def die(self, at: int) -> None:
        """It is never seen again, and reads nothing."""
        self.clients.pop(at % len(self.clients))

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 5), age=st.integers(0, 2))
    def commit(self, at: int, age: int) -> None:
        client = self.clients[at % len(self.clients)]
        if not client.owned or client.epoch <= age or client.is_classic:
            return
        codes = client.commit(self.runner, client.owned, epoch=client.epoch - age)
        member = self.runner.group.members.get(client.member_id)
        if member is None:
            assert set(codes) == {ErrorCode.UNKNOWN_MEMBER_ID}
        elif client.epoch - age > member.epoch or not client.owned <= held_by(self.runner, client.member_id):
            assert set(codes) == {ErrorCode.STALE_MEMBER_EPOCH} or client.epoch - age == member.epoch
        if age == 0 and self.is_member(client):
            assert set(codes) == {ErrorCode.NONE}, "who owns a partition commits for it, until the coordinator knows that it lost it"

    @rule(step=st.sampled_from([Client.follow, Client.revoke, None]))
    def live(self, step: Callable[[Client], None] | None) -> None:
        """Time passes, in which each sends a heartbeat, and does what it has to, or takes its time."""
        for client in self.clients:
            client.beat(self.runner)
            if step is not None:
                step(client)
        self.runner.advance(HEARTBEAT_MS)

    @rule(ms=st.sampled_from([100, 1_000, HEARTBEAT_MS, HEARTBEAT_MS, HEARTBEAT_MS, 31_000, 46_000]))
    def wait(self, ms: int) -> None:
        self.runner.advance(ms)

    @rule(name=st.sampled_from(["orders", "payments", "none"]), count=st.integers(0, 8))
    def change_topics(self, name: str, count: int) -> None:
        """A topic is made, grows, or is deleted."""
        known = self.counts.get(name, 0)
        if count == 0:
            self.counts.pop(name, None)
        else:
            self.counts[name] = max(known, count)
        self.runner.image = image_of(self.counts)

    @rule()
    def lose_coordinator(self) -> None:
        self.runner.restart()

    # -- what holds ---------------------------------------------------------------------------------------------------

    def is_member(self, client: Client) -> bool:
        """The coordinator would take its next heartbeat."""
        group = self.runner.machine._consumer.table.get(GROUP)
        member = None if group is None else group.members.get(client.member_id)
        return member is not None and client.epoch in (member.epoch, member.previous_epoch) and client.epoch > 0

    @invariant()
    def no_two_members_own_a_partition(self) -> None:
        owners: dict[Place, str] = {}
        for client in self.clients:
            if not self.is_member(client):
                continue
            assert client.owned <= held_by(self.runner, client.member_id), "the coordinator knows what a member owns"
            for place in client.owned:
                assert owners.setdefault(place, client.member_id) == client.member_id, "a partition has one owner"

    @invariant()
    def the_coordinator_gives_a_partition_to_one_member(self) -> None:
        group = self.runner.machine._consumer.table.get(GROUP)
        if group is None:
            return
        held = [place for member_id in group.members for place in held_by(self.runner, member_id)]
        assert len(set(held)) == len(held)
        assert group.owners == {place: member_id for member_id in group.members for place in held_by(self.runner, member_id)}

    @invariant()
    def targets_do_not_overlap(self) -> None:
        group = self.runner.machine._consumer.table.get(GROUP)
        targets = [(topic, index) for target in (group.targets.values() if group else ()) for topic in target for index in target[topic]]
        assert len(set(targets)) == len(targets)

    @invariant()
    def members_have_a_session(self) -> None:
        group = self.runner.machine._consumer.table.get(GROUP)
        for member_id in group.members if group else ():
            assert ("session", GROUP, member_id) in self.runner.timers

    @invariant()
    def the_records_are_the_state(self) -> None:
        replayed = GroupCoordinator(self.runner.settings)
        for key, value in self.runner.log:
            record = decode_record(key, value)
            assert record is not None
            replayed.apply(record)
        assert sorted(map(encode_record, replayed.snapshot()), key=repr) == sorted(
            map(encode_record, self.runner.machine.snapshot()), key=repr
        )
        again = GroupCoordinator(self.runner.settings)
        for record in replayed.snapshot():
            again.apply(record)
        assert sorted(map(repr, again.snapshot())) == sorted(map(repr, replayed.snapshot()))

    def teardown(self) -> None:
        """Left alone, those that live divide the partitions evenly."""
        if self.clients and all(client.is_classic for client in self.clients[:5]):
            self.clients.insert(0, Client("last"))
        for _ in range(2 * 46_000 // HEARTBEAT_MS + ROUNDS):
            for client in self.clients[:5]:  # the group takes five
                client.beat(self.runner)
                client.follow()
            self.runner.advance(HEARTBEAT_MS)
        living = self.clients[:5]
        if not living:
            return
        group = self.runner.group
        assert group.state is ConsumerGroupState.STABLE
        assert set(group.members) == {client.member_id for client in living}
        wanted = {
            (topic_id(name), index)
            for client in living
            for name in client.topics
            if name in self.counts
            for index in range(self.counts[name])
        }
        assert sorted(place for client in living for place in client.owned) == sorted(wanted)
        for client in living:
            target = group.targets[client.member_id]
            assert client.owned == {(topic, index) for topic, indexes in target.items() for index in indexes}
        loads = {client.member_id: len(client.owned) for client in living}
        if all(client.topics == living[0].topics for client in living) and not any(client.assignor == "range" for client in living):
            assert max(loads.values()) - min(loads.values()) <= 1


def held_by(runner: ConsumerRunner, member_id: str) -> set[Place]:
    member = runner.group.members[member_id]
    return {(topic, index) for owned in (member.assigned, member.revoking) for topic, indexes in owned.items() for index in indexes}


def test_a_consumer_group_keeps_its_laws_whatever_its_members_do() -> None:
    run_state_machine_as_test(Group, settings=settings(max_examples=max(200, settings().max_examples), stateful_step_count=40))

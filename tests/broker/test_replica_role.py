"""The roles of a replica: from any to any other that the table has, and at rest what the image says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.replicas.replica_role import LEADING, TRANSITIONS, ReplicaRole, Role
from ottla.broker.replicas.replication import Replication
from ottla.broker.replicas.unread import Unread
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import PartitionImage
from ottla.replication.high_watermark import HighWatermark
from ottla.types import TopicPartition

OWN, OTHERS, NOBODY = 1, (2, 3), -1


class Replica:
    """Of broker 1, with a log whose writes and cuts end when the test says so."""

    topic, topic_id, index = "t", bytes(16), 0
    key = TopicPartition("t", 0)

    def __init__(self) -> None:
        self.tail: Any = SimpleNamespace(is_flushing=False, drop_count=0, has_unwritten=False, drop_unwritten=self._drop)
        self.log: Any = SimpleNamespace(
            tail=self.tail, log_start_offset=0, log_end_offset=5, enter_epoch=self._enter, config=SimpleNamespace(min_insync_replicas=1),
            durability=SimpleNamespace(owes_sync=False), epochs=SimpleNamespace(start_of=lambda epoch: 5),
        )  # fmt: skip
        self.committed = HighWatermark(3)
        self.unread = Unread()
        self.entered: list[int] = []
        self._after: list[Callable[[], Coroutine[Any, Any, None]]] = []
        clock: Any = SimpleNamespace(monotonic_ms=lambda: 0)
        self.role = ReplicaRole(self, Replication(OWN, BrokerConfig({"node.id": "1"}), clock), self._after_writes)
        self.image: PartitionImage | None = None
        self.is_failed = False

    def _drop(self) -> None:
        self.tail.drop_count += 1

    def _enter(self, epoch: int) -> None:
        self.entered.append(epoch)

    async def _after_writes(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self.tail.is_flushing:
            self._after.append(work)
        else:
            await work()

    async def sync(self) -> None: ...

    def not_leader(self) -> KafkaError:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no")

    def tell_followers(self, size_bytes: int = 0) -> None: ...

    def wake(self, size_bytes: int) -> None: ...

    # -- what happens

    def show(self, leader: int, *, is_alone: bool) -> None:
        replicas = (OWN, *OTHERS) if not is_alone else OTHERS if leader in OTHERS else (OWN,)
        epoch = 0 if self.image is None else self.image.leader_epoch + 1
        self.image = PartitionImage(replicas, replicas, leader, epoch, epoch)
        self.role.take(self.image)

    def write(self) -> None:
        self.tail.is_flushing = self.tail.has_unwritten = True

    async def end_write(self) -> None:
        self.tail.is_flushing = self.tail.has_unwritten = False
        waiting, self._after = self._after, []
        for work in waiting:
            await work()

    def begin_cut(self) -> None:
        if self.role.kind is Role.FOLLOWS:
            self.role.begin_cut()

    def end_cut(self) -> None:
        if self.role.cutting is not None:
            self.role.end_cut()

    def fail(self) -> None:
        self.is_failed = True
        self.role.go_offline(self.not_leader())


STEPS = st.one_of(
    st.tuples(st.just("show"), st.sampled_from([OWN, OWN, 2, 3, NOBODY]), st.booleans()),
    st.sampled_from([("write",), ("end_write",), ("begin_cut",), ("end_cut",), ("end_cut",)]),
    st.just(("fail",)),
)


@given(st.lists(STEPS, max_size=30))
def test_a_replica_at_rest_has_the_role_that_the_image_says(steps: list[tuple[Any, ...]]) -> None:
    """The assertions of ``ReplicaRole`` hold after each step, too."""

    async def body() -> None:
        replica = Replica()
        role = replica.role
        for name, *given_ in steps:
            if name == "show":
                leader, is_alone = given_
                replica.show(leader, is_alone=is_alone)
            elif name == "end_write":
                await replica.end_write()
            else:
                getattr(replica, name)()
            assert (role.led_epoch >= 0) == (role.kind in LEADING)
            if role.kind in LEADING:
                assert replica.entered[-1] == role.led_epoch == role.leader_epoch, "a leader has entered its epoch"
                assert role.cutting is None
        await replica.end_write()
        replica.end_cut()
        image = replica.image
        if replica.is_failed:
            assert role.kind is Role.OFFLINE
        elif image is None or image.leader == NOBODY or OWN not in image.replicas:
            assert role.kind is Role.IDLE
        elif image.leader != OWN:
            assert role.kind is Role.FOLLOWS
            assert role.followed is not None
            assert role.followed.leader_id == image.leader
        else:
            assert role.kind is (Role.LEADS_ALONE if len(image.replicas) == 1 else Role.LEADS)

    asyncio.run(body())


def test_a_replica_that_is_removed_follows_no_broker_until_it_is_added_again() -> None:
    """Its log is about to be deleted. What it fetched until then would make it, once it is added again, in sync with records to lose."""
    replica = Replica()
    replica.show(2, is_alone=False)
    role = replica.role
    replica.show(2, is_alone=True)
    assert (role.kind, role.followed) == (Role.IDLE, None)
    assert replica.image is not None
    role.take(replace(replica.image, replicas=(*OTHERS, OWN), adding=(OWN,)))  # the leader's epoch stays
    assert role.kind is Role.FOLLOWS


def test_every_role_is_in_the_table_and_only_offline_is_for_good() -> None:
    assert TRANSITIONS.keys() == set(Role)
    assert [role for role, next_ones in TRANSITIONS.items() if not next_ones] == [Role.OFFLINE]
    assert all(Role.OFFLINE in next_ones for role, next_ones in TRANSITIONS.items() if role is not Role.OFFLINE)

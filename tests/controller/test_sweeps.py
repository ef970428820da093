"""Decisions over thousands of partitions are taken in slices, and whatever comes between two of them, they end as one decision would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.controller.test_brokers import Cluster, process, refused

from ottla.controller.brokers import Registering, fencing, has_leaderships, stopping, unfencing, unregistering
from ottla.controller.isr_changes import WantedIsr, alter_isr
from ottla.controller.replica_directories import failing_directories
from ottla.controller.sweeps import CHANGED_MAX, LOOKED_AT_MAX, Completing, Sweep
from ottla.controller.topic_rules import TopicRules
from ottla.errors import ErrorCode
from ottla.messages.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord, RemoveTopicRecord
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.types import NO_LEADER

COUNT = 3 * CHANGED_MAX + 7


def cluster(*, has_elr: bool = True, replicas: tuple[int, ...] = (1, 2, 3), min_isr: int = 1, count: int = COUNT) -> Cluster:
    """All partitions of one topic are on all of these, which lead in turn."""
    made = Cluster(has_elr=has_elr, min_isr=min_isr)
    for broker in (1, 2, 3):
        made.serve(broker)
    orders = [[first, *(node for node in replicas if node != first)] for first in replicas]
    made.create(*(orders[at % len(orders)] for at in range(count)))
    return made


def rules_of(made: Cluster) -> Callable[[ClusterImage], TopicRules]:
    return lambda image: replace(made.rules, image=image)


def run(made: Cluster, sweep: Sweep, *, steps: int = -1, between: Callable[[], None] = lambda: None) -> int:
    """So many steps, or all: how many there were. No step is large."""
    count = 0
    while not sweep.is_done and count != steps:
        decided = made.carry_out(sweep.step(made.image))
        assert len(decided.records) <= CHANGED_MAX + 2
        count += 1
        between()
    return count


def partitions(made: Cluster) -> list[PartitionImage]:
    return list(made.image.topics["t"].partitions.values())


def fence(made: Cluster, broker: int = 1) -> Sweep:
    return fencing(made.image, broker, rules_of(made))


def is_fenced_and_gone(made: Cluster, broker: int = 1) -> bool:
    known = made.image.brokers[broker]
    return known.is_fenced and not any(broker in found.isr or found.leader == broker for found in partitions(made))


def test_a_fence_comes_in_slices_and_its_record_with_the_last_one() -> None:
    made = cluster()
    sweep = fence(made)
    assert run(made, sweep, steps=3) == 3
    assert not made.image.brokers[1].is_fenced
    assert CHANGED_MAX < sum(1 not in found.isr for found in partitions(made)) < COUNT
    run(made, sweep)
    assert is_fenced_and_gone(made)
    assert not has_leaderships(made.image, 1)
    assert {found.leader for found in partitions(made)} == {2, 3}
    assert max(found.partition_epoch for found in partitions(made)) == 1, "no partition was decided on twice"


def test_partitions_that_the_fenced_broker_leads_are_swept_first() -> None:
    made = cluster()
    sweep = fence(made)
    led = sum(found.leader == 1 for found in partitions(made))
    while has_leaderships(made.image, 1):
        assert run(made, sweep, steps=1) == 1
    assert sum(1 not in found.isr for found in partitions(made)) == led


@pytest.mark.parametrize("has_elr", [True, False])
@pytest.mark.parametrize("replicas", [(1,), (1, 2), (1, 2, 3)])
def test_in_slices_all_brokers_are_fenced_as_at_once(has_elr: bool, replicas: tuple[int, ...]) -> None:
    made = cluster(has_elr=has_elr, replicas=replicas, min_isr=2)
    small = cluster(has_elr=has_elr, replicas=replicas, min_isr=2, count=6)
    for broker in (1, 2, 3):
        run(made, fence(made, broker))
        run(small, fence(small, broker))
        assert made.image.brokers[broker].is_fenced
        assert partitions(made)[:6] == partitions(small)
    for broker in (2, 1, 3):
        for one in (made, small):
            run(one, unfencing(one.image, broker, rules_of(one)))
        assert partitions(made)[:6] == partitions(small)


def test_a_broker_that_joins_an_isr_between_two_slices_leaves_it_again() -> None:
    made = cluster()
    joins = 0

    def between() -> None:
        nonlocal joins
        for number, found in enumerate(partitions(made)):
            if joins < 3 and 1 not in found.isr and not made.image.brokers[1].is_fenced:
                members = [(node, -1) for node in (*found.isr, 1)]
                wanted = WantedIsr(
                    found.leader, made.image.topics["t"].topic_id, number, found.leader_epoch, found.partition_epoch, members
                )
                made.carry_out(alter_isr(made.image, wanted, rules=made.rules))
                joins += 1
                return

    run(made, fence(made), between=between)
    assert joins == 3
    assert is_fenced_and_gone(made)


def test_a_partition_that_the_broker_leads_again_between_two_slices_is_led_by_another() -> None:
    """Without eligible leader replicas it stays in the ISR where it is alone, and could be elected there."""
    made = cluster(has_elr=False, replicas=(1,))
    sweep = fence(made)
    run(made, sweep, steps=2)
    topic_id = made.image.topics["t"].topic_id
    assert partitions(made)[0].leader == NO_LEADER
    made.carry_out(type("Decided", (), {"records": (PartitionChangeRecord(0, topic_id, leader=1),)}))
    run(made, sweep)
    assert made.image.brokers[1].is_fenced
    assert {(found.leader, found.isr) for found in partitions(made)} == {(NO_LEADER, (1,))}


def test_a_topic_that_is_deleted_between_two_slices_is_left_out() -> None:
    for has_elr, replicas in ((True, (1, 2, 3)), (False, (1,))):
        made = cluster(has_elr=has_elr, replicas=replicas)
        sweep = fence(made)
        run(made, sweep, steps=1)
        made.carry_out(type("Decided", (), {"records": (RemoveTopicRecord(made.image.topics["t"].topic_id),)}))
        run(made, sweep)
        assert made.image.brokers[1].is_fenced


def test_a_broker_that_is_heard_again_is_not_fenced_and_every_partition_is_sound() -> None:
    made = cluster()
    is_silent = True
    sweep = fencing(made.image, 1, rules_of(made), is_wanted=lambda: is_silent)
    run(made, sweep, steps=1)
    is_silent = False
    run(made, sweep)
    assert not made.image.brokers[1].is_fenced
    assert sum(1 not in found.isr for found in partitions(made)) == CHANGED_MAX
    assert all(found.leader in found.isr for found in partitions(made))


def test_a_process_that_registers_during_the_fence_of_the_one_before_takes_its_place() -> None:
    made = cluster()
    fence_of_old = fence(made)
    run(made, fence_of_old, steps=1)
    registering = Registering(process(1, 2), rules_of(made), has_session=lambda known: False, previous_epoch=-1)
    while not (fence_of_old.is_done and registering.is_done):
        for sweep in (registering, fence_of_old):
            if not sweep.is_done:
                made.carry_out(sweep.step(made.image))
    known = made.image.brokers[1]
    assert (known.incarnation_id, known.is_fenced, known.broker_epoch) == (bytes([2]) * 16, True, registering.broker_epoch)
    assert is_fenced_and_gone(made)


def test_a_registration_in_slices_is_refused_when_the_process_before_is_heard_meanwhile() -> None:
    made = cluster()
    is_heard = False
    registering = Registering(process(1, 2), rules_of(made), has_session=lambda known: is_heard, previous_epoch=-1)
    run(made, registering, steps=1)
    is_heard = True
    assert refused(registering.step, made.image) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert registering.is_done
    assert made.image.brokers[1].incarnation_id == bytes([1]) * 16


def test_an_unclean_registration_in_slices_is_eligible_nowhere() -> None:
    made = cluster(min_isr=3)
    run(made, fence(made))
    assert all(1 in found.elr for found in partitions(made))
    registering = Registering(process(1, 2), rules_of(made), has_session=lambda known: False, previous_epoch=-1)
    assert run(made, registering) > 3
    assert not any(1 in found.elr for found in partitions(made))
    assert made.image.brokers[1].broker_epoch == registering.broker_epoch == made.image.end_offset - 1


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_the_next_controller_completes_a_fence_that_was_half_done(steps: int) -> None:
    """The broker is not fenced in its image, and not heard: it is fenced by the next controller's session, as if nothing had been done."""
    made = cluster()
    run(made, fence(made), steps=steps)
    assert not made.image.brokers[1].is_fenced
    run(made, Completing(rules_of(made)))
    assert not made.image.brokers[1].is_fenced, "it may live"
    run(made, fence(made))
    assert is_fenced_and_gone(made)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_next_controller_completes_the_leaderships_of_an_unfenced_broker(steps: int) -> None:
    made = cluster(replicas=(1,))
    run(made, fence(made))
    assert {found.leader for found in partitions(made)} == {NO_LEADER}
    run(made, unfencing(made.image, 1, rules_of(made)), steps=steps)
    assert not made.image.brokers[1].is_fenced, "it is said first"
    assert sum(found.leader == 1 for found in partitions(made)) == steps * CHANGED_MAX
    run(made, Completing(rules_of(made)))
    assert {found.leader for found in partitions(made)} == {1}
    assert run(made, Completing(rules_of(made))) <= COUNT // LOOKED_AT_MAX + 1, "nothing is left to be changed"


def test_no_leader_that_may_lack_records_is_elected_to_complete_something() -> None:
    made = cluster(replicas=(1, 2))
    made.is_unclean = True
    for broker in (2, 1):
        run(made, fence(made, broker))
    made.carry_out(type("Decided", (), {"records": (BrokerRegistrationChangeRecord(2, made.image.brokers[2].broker_epoch, fenced=-1),)}))
    run(made, Completing(rules_of(made)))
    assert {found.leader for found in partitions(made)} == {NO_LEADER}


def test_a_broker_that_is_fenced_again_while_it_is_unfenced_leads_nothing() -> None:
    made = cluster(replicas=(1,))
    run(made, fence(made))
    returning = unfencing(made.image, 1, rules_of(made))
    run(made, returning, steps=1)
    run(made, fence(made))
    assert run(made, returning) == 1, "it ends"
    assert {found.leader for found in partitions(made)} == {NO_LEADER}


def test_a_stop_comes_in_slices_and_the_next_controller_goes_on_with_it() -> None:
    made = cluster()
    ends: list[int] = []
    sweep = stopping(made.image, 1, rules_of(made), on_step=ends.append)
    run(made, sweep, steps=1)
    assert made.image.brokers[1].in_controlled_shutdown, "it is said first: nothing more is led there"
    assert ends == sorted(ends)
    assert ends[-1] == made.image.end_offset
    assert has_leaderships(made.image, 1)
    again = stopping(made.image, 1, rules_of(made))
    run(made, again)
    assert not has_leaderships(made.image, 1)
    assert not any(1 in found.isr for found in partitions(made))


def test_a_broker_leaves_the_cluster_in_slices_and_is_eligible_nowhere() -> None:
    made = cluster(min_isr=3)
    run(made, fence(made))
    sweep = unregistering(made.image, 1, rules_of(made))
    run(made, sweep, steps=2)
    assert 1 in made.image.brokers
    run(made, unregistering(made.image, 1, rules_of(made)))  # asked for again, of the next controller
    assert 1 not in made.image.brokers
    assert not any(1 in found.elr for found in partitions(made))
    assert run(made, sweep) == 1, "there is nobody any more"


def test_a_directory_that_fails_is_left_in_slices_and_the_next_controller_goes_on_with_it() -> None:
    made = Cluster(has_elr=True)
    first, second = bytes([201]) * 16, bytes([202]) * 16
    for node in (1, 2):
        made.serve(node)
    made.create(*([1, 2] for _ in range(COUNT)))
    broker = made.image.brokers[1]
    made.carry_out(
        type("Decided", (), {"records": (BrokerRegistrationChangeRecord(1, broker.broker_epoch, log_dirs=[first, second]),)})
    )  # fmt: skip
    topic_id, other = made.image.topics["t"].topic_id, made.image.brokers[2].directories[0]
    placed = [PartitionChangeRecord(number, topic_id, directories=[(first, second)[number % 2], other]) for number in range(COUNT)]
    made.carry_out(type("Decided", (), {"records": tuple(placed)}))
    sweep = failing_directories(made.image, made.image.brokers[1], [first], rules_of(made))
    assert sweep is not None
    run(made, sweep, steps=1)
    assert made.image.brokers[1].directories == (second,), "it is said first: nothing there leads or joins an ISR any more"
    assert failing_directories(made.image, made.image.brokers[1], [first], rules_of(made)) is None
    run(made, Completing(rules_of(made)))
    for number, found in enumerate(partitions(made)):
        assert (1 in found.isr) is bool(number % 2), number
        assert found.leader == (1 if number % 2 else 2)


def test_a_sweep_looks_at_the_partitions_of_its_broker_alone() -> None:
    made = Cluster(has_elr=True)
    for broker in (1, 2, 3):
        made.serve(broker)
    made.create(*([2, 3] for _ in range(COUNT)), [1, 2])
    assert run(made, fence(made)) == 1
    assert run(made, stopping(made.image, 3, rules_of(made))) == 4

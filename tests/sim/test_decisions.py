"""A checker of what controllers decide: each planted mistake is found and named, and what is sound is not."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from ottla.metadata.image import EMPTY_IMAGE, RESOURCE_TOPIC, BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.sim.decisions import unsound
from ottla.types import NO_LEADER

ID = bytes(range(16))
LED = PartitionImage((1, 2, 3), (1, 2), 1, 5, 9)


def image(
    partition: PartitionImage | None, *, fenced: tuple[int, ...] = (), stopping: tuple[int, ...] = (), **configs: str
) -> ClusterImage:
    """Brokers 1 to 4, and that partition of topic t; dots of a configuration are underscores."""
    brokers = {
        node: BrokerImage(node, 10 + node, {}, None, is_fenced=node in fenced, in_controlled_shutdown=node in stopping)
        for node in range(1, 5)
    }
    topics = {} if partition is None else {"t": TopicImage("t", ID, {0: partition})}
    given = {(RESOURCE_TOPIC, "t"): {key.replace("_", "."): value for key, value in configs.items()}}
    return replace(EMPTY_IMAGE, brokers=brokers, topics=topics, configs=given, end_offset=100, epoch=3)


def led_by(leader: int, isr: tuple[int, ...], before: PartitionImage = LED, **changes: object) -> PartitionImage:
    epochs = {"leader_epoch": before.leader_epoch + 1, "partition_epoch": before.partition_epoch + 1}
    return replace(before, leader=leader, isr=isr, **(epochs | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (image(None), image(LED)),
        (image(LED), image(led_by(2, (2,)), fenced=(1,))),
        (image(LED), image(replace(LED, isr=(1, 2, 3), partition_epoch=10))),
        (image(replace(LED, isr=(), leader=NO_LEADER, elr=(3,))), image(led_by(3, (3,), elr=()))),
        (image(replace(LED, isr=(1,))), image(led_by(NO_LEADER, (1,)), fenced=(1,))),
        (image(LED), image(led_by(NO_LEADER, (3,), leader_epoch=7, partition_epoch=11, is_recovering=True), fenced=(1, 2, 3))),
        (image(LED), image(led_by(3, (1, 2, 3), partition_epoch=11))),
        (
            image(replace(LED, isr=(1,), leader=NO_LEADER)),
            image(led_by(2, (2,), is_recovering=True), unclean_leader_election_enable="true"),
        ),
        (
            image(PartitionImage((1, 2, 3), (1, 2), 1, 5, 9, adding=(3,), removing=(1,))),
            image(PartitionImage((2, 3), (2, 3), 2, 6, 10)),
        ),
        (  # the move is done, and another one back begins, in one step
            image(PartitionImage((3, 1, 2), (2,), 2, 13, 38, adding=(1,), removing=(2,))),
            image(PartitionImage((2, 1, 3), (1,), 1, 14, 40, adding=(2,), removing=(3,))),
        ),
    ],
)
def test_what_is_sound_is_not_found(before: ClusterImage, after: ClusterImage) -> None:
    assert unsound(before, after) == []


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (image(LED), replace(image(LED), epoch=2), "controller epoch goes back"),
        (replace(image(LED), next_producer_id=2000), replace(image(LED), next_producer_id=1000), "producer ids are given again"),
        (image(None), image(LED, fenced=(1,)), "leads, and is fenced"),
        (image(LED), image(replace(LED, partition_epoch=10), fenced=(2,)), "are in the ISR, and fenced"),
        (image(LED), image(led_by(NO_LEADER, ()), fenced=(1, 2)), "no broker can ever lead"),
        (image(LED), image(replace(LED, isr=(1, 2, 3))), "without a new partition epoch"),
        (image(LED), image(led_by(2, (1, 2), leader_epoch=5)), "another leader in the same epoch"),
        (image(LED), image(replace(LED, leader_epoch=4, partition_epoch=10)), "leader epoch goes back"),
        (image(LED), image(led_by(3, (3,), is_recovering=True), fenced=(1, 2)), "neither in sync nor eligible"),
        (image(LED), image(led_by(3, (3,), partition_epoch=11, is_recovering=True), fenced=(1, 2)), "neither in sync nor eligible"),
        (image(LED), image(led_by(3, (1, 2, 3), is_recovering=True)), "neither in sync nor eligible"),
        (
            image(replace(LED, isr=(1,), leader=NO_LEADER)),
            image(led_by(2, (2,)), unclean_leader_election_enable="true"),
            "counts as one that has them all",
        ),
        (image(LED), image(led_by(2, (1, 2)), stopping=(2,)), "elected while it stops"),
        (image(LED), image(replace(LED, isr=(1, 2, 3), partition_epoch=10), stopping=(3,)), "joins the ISR, and is fenced or stops"),
        (
            image(PartitionImage((1, 2, 3), (1, 2), 1, 5, 9, adding=(3,), removing=(2,))),
            image(PartitionImage((1, 3), (1, 3), 1, 5, 10)),
            "no replicas any more, in the same epoch",
        ),
        (
            image(PartitionImage((1, 2, 3), (1, 2), 1, 5, 9, adding=(3,), removing=(2,))),
            image(PartitionImage((1, 3), (1,), 1, 6, 10)),
            "are in sync",
        ),
        (
            image(PartitionImage((3, 1, 2), (2,), 2, 13, 38, adding=(1,), removing=(2,))),
            image(PartitionImage((2, 1, 3), (1,), 1, 14, 39, adding=(2,), removing=(3,), is_recovering=True)),
            "neither in sync nor eligible",
        ),
    ],
)
def test_a_mistake_is_found_and_named(before: ClusterImage, after: ClusterImage, problem: str) -> None:
    first, *others = unsound(before, after)
    assert problem in first
    assert first.startswith("at 100: ")
    assert len(others) <= 1, "a leader that is fenced is in the ISR, too"


def test_two_processes_with_one_epoch_are_found() -> None:
    before = image(None)
    twice = replace(before, brokers={**before.brokers, 2: msgspec.structs.replace(before.brokers[2], broker_epoch=11)})
    assert "two brokers have one epoch" in unsound(before, twice)[0]
    same = replace(before, brokers={**before.brokers, 2: msgspec.structs.replace(before.brokers[2], incarnation_id=ID)})
    assert unsound(before, same) == ["at 100: another process of broker 2 has no newer epoch"]

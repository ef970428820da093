"""What becomes of one partition when replicas go or come: its ISR, who is eligible, who leads.

The rules, in this order: whoever goes leaves the ISR. While the ISR is smaller than min.insync.replicas, those who left it since
are eligible to lead (KIP-966): they have everything that was committed; one that went down uncleanly is not. The leader stays
while it is in the ISR and up; else it is the first replica, in their order, that is in the ISR and up; with an empty ISR, the first
that is eligible and up; else nobody, and the last leader is remembered, who may lead again when nobody else can. Without eligible leader
replicas the last member stays in the ISR: it alone has everything. Source: KIP-631, KIP-704, KIP-966.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence

from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.image import PartitionImage
from ottla.types import NO_LEADER

IsUp = Callable[[int], bool]
"""Whether the broker may lead now."""


def without_replicas(
    topic_id: bytes,
    index: int,
    partition: PartitionImage,
    gone: Collection[int],
    *,
    is_up: IsUp,
    min_isr: int,
    has_elr: bool,
    is_clean: bool = True,
    suspected: Container[int] = (),
) -> PartitionChangeRecord | None:
    """The change when these replicas no longer serve, and nobody new does; None when nothing changes.

    ``is_clean`` is False for those who may have lost what they had: they are not eligible. Of those who are up, one that is ``suspected``
    to be dead becomes the leader only when nobody else can.
    """
    isr = [node for node in partition.isr if node not in gone]
    elr: list[int] = []
    if not has_elr:
        isr = isr or list(partition.isr)
    elif len(isr) < min_isr:
        left = [node for node in partition.replicas if node in (*partition.elr, *partition.isr) and node not in isr]
        elr = left if is_clean else [node for node in left if node not in gone]

    def may_lead(node: int) -> bool:
        return node not in gone and is_up(node)

    return _change(topic_id, index, partition, isr, elr, is_up=may_lead, has_elr=has_elr, suspected=suspected)


def with_leader(topic_id: bytes, index: int, partition: PartitionImage, *, is_up: IsUp, has_elr: bool) -> PartitionChangeRecord | None:
    """The change that gives a partition without a leader one; None when there is still nobody, or it has one."""
    if partition.leader != NO_LEADER:
        return None
    return _change(topic_id, index, partition, list(partition.isr), list(partition.elr), is_up=is_up, has_elr=has_elr)


def _change(
    topic_id: bytes,
    index: int,
    partition: PartitionImage,
    isr: list[int],
    elr: list[int],
    *,
    is_up: IsUp,
    has_elr: bool,
    suspected: Container[int] = (),
) -> PartitionChangeRecord | None:
    leader, is_unclean = _leader(partition, isr, elr, is_up, has_elr, suspected)
    if is_unclean:
        isr, elr = [leader], []
    elif leader in elr:
        isr, elr = [leader], [node for node in elr if node != leader]
    record = PartitionChangeRecord(index, topic_id)
    if leader != partition.leader:
        record.leader = leader
    if is_unclean and not partition.is_recovering:
        record.leader_recovery_state = 1
    record.isr = _if_changed(partition.isr, isr)
    record.eligible_leader_replicas = _if_changed(partition.elr, elr)
    record.last_known_elr = _if_changed(partition.last_known_elr, _last_known(partition, leader, has_elr))
    return None if record == PartitionChangeRecord(index, topic_id) else record


def _leader(
    partition: PartitionImage, isr: Sequence[int], elr: Sequence[int], is_up: IsUp, has_elr: bool, suspected: Container[int]
) -> tuple[int, bool]:
    """Who leads, and whether that may lose records."""
    candidates = isr or elr
    if partition.leader in candidates and is_up(partition.leader):
        return partition.leader, False
    for node in sorted(partition.replicas, key=lambda node: node in suspected):
        if node in candidates and is_up(node):
            return node, False
    if has_elr and not candidates and len(partition.last_known_elr) == 1 and is_up(partition.last_known_elr[0]):
        return partition.last_known_elr[0], True
    return NO_LEADER, False


def _last_known(partition: PartitionImage, leader: int, has_elr: bool) -> Sequence[int]:
    if not has_elr or leader != NO_LEADER:
        return ()
    return partition.last_known_elr or ((partition.leader,) if partition.leader != NO_LEADER else ())


def _if_changed(old: Sequence[int], new: Sequence[int]) -> list[int] | None:
    return None if list(old) == list(new) else list(new)

"""The next state of one partition when replicas leave or come: its ISR, its eligible replicas, its leader, and whether a reassignment is
complete.

The rules, in this order: Replicas that stop serving leave the ISR. A reassignment is complete once all replicas that it adds are in sync;
then the replicas that it removes are removed (KIP-455). While the ISR is smaller than min.insync.replicas, replicas that have left it since
are eligible to lead (KIP-966), for they have everything that was committed; a replica that went down uncleanly is not. Where none is in
sync they stay eligible even if the feature is off: no other replica could ever lead. The leader stays while it is in the ISR and up.
Otherwise the first replica, in their order, that is in the ISR and up leads. With an empty ISR, the first replica that is eligible and up
leads. Otherwise no replica leads; the last leader is remembered, and may lead again when no other can. Where unclean elections are allowed,
any replica that is up may lead: it is then alone in sync, and recovering (KIP-704). Without eligible leader replicas the last member stays
in the ISR, for only that replica has everything.

Source: KIP-455, KIP-631, KIP-704, KIP-966.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.image import PartitionImage
from ottla.types import NO_LEADER

IsUp = Callable[[int], bool]
"""Whether the broker may lead now."""

SAME_LEADER: Final = -2
"""In a record: the leader stays, and its epoch."""
UNASSIGNED: Final = (1).to_bytes(16, "big")
"""The log directory of a replica that its broker has not placed yet (KIP-858)."""


class Rules(Struct, frozen=True, kw_only=True):
    """The rules that hold for a partition, apart from its own state.

    Among the brokers that are up, one that is ``suspected`` to be dead becomes the leader only when no other can. A ``young`` broker (each
    has a number; the highest came last) becomes it only when no older broker can.
    """

    is_up: IsUp
    min_isr: int
    has_elr: bool
    may_be_unclean: bool = False
    suspected: Container[int] = ()
    young: Mapping[int, int] = field(default_factory=dict)


class Target(Struct, frozen=True):
    """The state that a partition is to take, before its leader is chosen. ``elr`` is None where it follows from the ISR."""

    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int] | None = None
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()

    @classmethod
    def of(cls, partition: PartitionImage, isr: Sequence[int], elr: Sequence[int] | None = None) -> Target:
        """Returns a target with another ISR, and else as the partition is."""
        return cls(partition.replicas, isr, elr, partition.adding, partition.removing)


def without_replicas(
    topic_id: bytes, index: int, partition: PartitionImage, gone: Collection[int], rules: Rules, *, is_clean: bool = True
) -> PartitionChangeRecord | None:
    """Returns the change when these replicas no longer serve, and no new one does; None when nothing changes.

    ``is_clean`` is False for replicas that may have lost records: they are not eligible.
    """
    isr = [node for node in partition.isr if node not in gone]
    if _only_leave(partition, isr, rules):
        return None if len(isr) == len(partition.isr) else PartitionChangeRecord(index, topic_id, isr=isr)
    if not rules.has_elr:
        isr = isr or list(partition.isr)

    def may_lead(node: int) -> bool:
        return node not in gone and rules.is_up(node)

    known = Rules(  # ``replace`` costs as much as all the rest, and there may be very many partitions
        is_up=may_lead, min_isr=rules.min_isr, has_elr=rules.has_elr, may_be_unclean=rules.may_be_unclean, suspected=rules.suspected,
        young=rules.young,
    )  # fmt: skip
    return change(topic_id, index, partition, Target.of(partition, isr), known, ineligible=() if is_clean else gone)


def _only_leave(partition: PartitionImage, isr: Sequence[int], rules: Rules) -> bool:
    """True when nothing but the ISR can change: so it is with most partitions of a broker that leaves."""
    leader = partition.leader
    return (
        leader in isr
        and not (partition.adding or partition.removing or partition.elr or partition.last_known_elr)
        and not _is_too_small(isr, partition.replicas, rules)
        and rules.is_up(leader)
    )


def with_isr(
    topic_id: bytes, index: int, partition: PartitionImage, isr: list[int], rules: Rules, *, has_recovered: bool = False
) -> PartitionChangeRecord | None:
    """Returns the change when the leader has found these to be in sync; None when nothing changes. It stays, unless it is removed now."""
    assert partition.leader in isr, "the leader is in the ISR"
    record = change(topic_id, index, partition, Target.of(partition, isr), rules)
    if has_recovered:
        record = record or PartitionChangeRecord(index, topic_id)
        record.leader_recovery_state = 0
    return record


def with_leader(topic_id: bytes, index: int, partition: PartitionImage, rules: Rules) -> PartitionChangeRecord | None:
    """Returns the change that gives a partition without a leader one; None when none can lead, or one does."""
    if partition.leader != NO_LEADER:
        return None
    return change(topic_id, index, partition, Target.of(partition, partition.isr, partition.elr), rules)


def with_preferred_leader(topic_id: bytes, index: int, partition: PartitionImage, rules: Rules) -> PartitionChangeRecord | None:
    """Returns the change that gives the partition to the first of its replicas; None where it cannot lead, or already does."""
    preferred = partition.replicas[0]
    if partition.leader == preferred or preferred in rules.suspected:
        return None
    if preferred not in (partition.isr or partition.elr) or not rules.is_up(preferred):
        return None
    return change(topic_id, index, partition, Target.of(partition, partition.isr, partition.elr), rules, wanted=preferred)


def change(
    topic_id: bytes,
    index: int,
    partition: PartitionImage,
    target: Target,
    rules: Rules,
    *,
    ineligible: Container[int] = (),
    wanted: int = NO_LEADER,
) -> PartitionChangeRecord | None:
    """Returns the change to the target, completed if possible, with its leader, ``wanted`` if it can lead; None when nothing changes."""
    target = completed(target)
    isr, elr = list(target.isr), _eligible(partition, target, rules, ineligible)
    leader, is_unclean = _leader(partition, target.replicas, isr, elr, rules, wanted)
    if is_unclean:
        isr, elr = [leader], []
    elif leader in elr:
        isr = [leader]
        elr = [node for node in elr if node != leader] if _is_too_small(isr, target.replicas, rules) else []
    record = PartitionChangeRecord(index, topic_id)
    has_lost_replicas = not set(partition.replicas) <= set(target.replicas)
    if leader != partition.leader or has_lost_replicas:  # a broker that is no longer a replica is fenced by the epoch
        record.leader = leader
    if is_unclean and not partition.is_recovering:
        record.leader_recovery_state = 1
    record.isr = _if_changed(partition.isr, isr)
    record.eligible_leader_replicas = _if_changed(partition.elr, elr)
    record.last_known_elr = _if_changed(partition.last_known_elr, _last_known(partition, leader, may_be_empty=rules.has_elr or not isr))
    record.replicas = _if_changed(partition.replicas, target.replicas)
    record.adding_replicas = _if_changed(partition.adding, target.adding)
    record.removing_replicas = _if_changed(partition.removing, target.removing)
    if record.replicas is not None and partition.directories:
        known = dict(zip(partition.replicas, partition.directories, strict=True))
        record.directories = [known.get(node, UNASSIGNED) for node in target.replicas]
    return None if record == PartitionChangeRecord(index, topic_id) else record


def completed(target: Target) -> Target:
    """Returns the target without the replicas that the reassignment removes, once all that it adds are in sync; unchanged before.

    Where it removes more than it adds, all that stay must be in sync, or the ISR would shrink for nothing.
    """
    if not target.adding and not target.removing:
        return target
    isr = [node for node in target.isr if node not in target.removing]
    replicas = [node for node in target.replicas if node not in target.removing]
    awaited = replicas if len(target.adding) < len(target.removing) else target.adding
    if not isr or not set(awaited) <= set(isr):
        return target
    return Target(replicas, isr, target.elr)


def _eligible(partition: PartitionImage, target: Target, rules: Rules, ineligible: Container[int]) -> list[int]:
    """Returns the replicas that are not in sync and have all committed records: they left an ISR that was too small to commit more."""
    if not _is_too_small(target.isr, target.replicas, rules):
        return []
    if target.elr is not None:
        return [node for node in target.elr if node in target.replicas]
    known = [node for node in target.replicas if node in (*partition.elr, *partition.isr) and node not in target.isr]
    return [node for node in known if node not in ineligible]


def _is_too_small(isr: Sequence[int], replicas: Sequence[int], rules: Rules) -> bool:
    """True when nothing is committed under this ISR, so that a replica that has everything now keeps it."""
    return not isr or (rules.has_elr and len(isr) < min(rules.min_isr, len(replicas)))


def _leader(
    partition: PartitionImage, replicas: Sequence[int], isr: Sequence[int], elr: Sequence[int], rules: Rules, wanted: int
) -> tuple[int, bool]:
    """Returns who leads, and whether that may lose records."""
    candidates = isr or elr
    for node in (wanted, partition.leader):
        if node in candidates and rules.is_up(node):
            return node, False
    in_order = sorted(replicas, key=lambda node: (node in rules.suspected, rules.young.get(node, -1)))
    for node in in_order:
        if node in candidates and rules.is_up(node):
            return node, False
    last = partition.last_known_elr
    if not candidates and len(last) == 1 and last[0] in replicas and rules.is_up(last[0]):
        return last[0], True
    if rules.may_be_unclean:
        for node in in_order:
            if rules.is_up(node):
                return node, True
    return NO_LEADER, False


def _last_known(partition: PartitionImage, leader: int, *, may_be_empty: bool) -> Sequence[int]:
    """Returns the last leader, while there is none; ``may_be_empty``: remember it, for the ISR, or the next one, may be empty."""
    if leader != NO_LEADER or not may_be_empty:
        return ()
    return partition.last_known_elr or ((partition.leader,) if partition.leader != NO_LEADER else ())


def _if_changed(old: Sequence[int], new: Sequence[int]) -> list[int] | None:
    return None if list(old) == list(new) else list(new)

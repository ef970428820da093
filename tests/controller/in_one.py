"""Sweeps of few partitions, which are one decision: for tests of what they decide, and not of how they are cut."""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass
from typing import Any

from ottla.controller.brokers import Registering, fencing, stopping, unfencing, unregistering
from ottla.controller.decided import Recorded
from ottla.controller.replica_directories import failing_directories
from ottla.controller.sweeps import Sweep
from ottla.controller.topic_rules import TopicRules
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.wire.schema import Stored


@dataclass(frozen=True, slots=True)
class Registered:
    records: tuple[Stored, ...]
    broker_epoch: int


def in_one(sweep: Sweep, image: ClusterImage) -> Recorded:
    """What it decides, which is not more than a slice."""
    decided = sweep.step(image)
    assert sweep.is_done
    return decided


def register_broker(image: ClusterImage, wanted: BrokerImage, *, has_session: bool, rules: TopicRules, **named: Any) -> Registered:
    sweep = Registering(wanted, lambda _: rules, has_session=lambda known: has_session, **named)
    return Registered(in_one(sweep, image).records, sweep.broker_epoch)


def fence_broker(image: ClusterImage, broker_id: int, *, rules: TopicRules, suspected: Container[int] = ()) -> Recorded:
    return in_one(fencing(image, broker_id, lambda _: rules, suspected=lambda: suspected), image)


def unfence_broker(image: ClusterImage, broker_id: int, *, rules: TopicRules) -> Recorded:
    def rules_of(judged: ClusterImage) -> TopicRules:
        return TopicRules(judged, rules.static_min_isr, rules.is_static_unclean)

    return in_one(unfencing(image, broker_id, rules_of), image)


def begin_shutdown(image: ClusterImage, broker_id: int, *, rules: TopicRules) -> Recorded:
    return in_one(stopping(image, broker_id, lambda _: rules), image)


def unregister_broker(image: ClusterImage, broker_id: int, *, rules: TopicRules) -> Recorded:
    return in_one(unregistering(image, broker_id, lambda _: rules), image)


def directories_failed(image: ClusterImage, broker: BrokerImage, failed: Collection[bytes], *, rules: TopicRules) -> Recorded:
    sweep = failing_directories(image, broker, failed, lambda _: rules)
    return Recorded(()) if sweep is None else in_one(sweep, image)

"""The ways out that several findings of ``ottla cluster health`` share: what brings replicas back in sync, by what keeps them from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from ottla.cli.health_seen import Health
from ottla.cli.unanswered_health import named

NAMES_MAX: Final = 5


class Ways:
    """The brokers that keep replicas out of sync, by cause. A cause is a finding of its own, and comes before what it causes."""

    def __init__(self, health: Health) -> None:
        states = health.partitions
        self._health = health
        self.absent = sorted(states.missing.keys() - set(health.brokers))
        self.down = sorted({*health.fenced, *self.absent})
        self.full = sorted({broker for broker, _ in health.full_log_dirs} & states.missing.keys())
        self.shut = sorted(health.unanswered.keys() - {*health.silent})
        self.diskless = sorted({broker for broker, _ in health.offline_log_dirs} & (states.unopened.keys() | states.missing.keys()))
        given_up = {*self.full} - health.unopened_reasons.keys()  # others are to serve what they have there; nothing else is known
        self.unopened = sorted(states.unopened.keys() - {*self.diskless, *health.silent} - health.unanswered.keys() - given_up)
        self.lagging = {broker: count for broker, count in sorted(states.missing.items()) if broker not in self.down}
        self.first = f"; where it runs, first mend what is wrong with {named(self.shut)}, as above" if self.shut else ""

    def opening(self, brokers: Collection[int] | None = None) -> str:
        """Returns what to do about replicas that brokers which serve, of these or of all, cannot open; empty where there are none."""
        diskless, unopened = ([one for one in found if brokers is None or one in brokers] for found in (self.diskless, self.unopened))
        ways = [f"mend the log directories of {named(diskless)}, as above"] * bool(diskless)
        if unopened and (brokers is not None or not diskless):
            ways.append(f"{named(unopened)} cannot open replicas there: mend that, as above")
        return "; ".join(ways)

    def into_sync(self, partitions: Iterable[str]) -> str:
        """Returns what brings replicas of these partitions back in sync: each cause, with the brokers that have replicas of them."""
        health = self._health
        brokers = set[int]().union(*(health.partitions.lacking.get(name, ()) for name in partitions))
        ways = []
        if down := [broker for broker in self.down if broker in brokers]:
            ways.append(f"{health.back(down)}{self.first}")
        if full := [broker for broker in self.full if broker in brokers]:
            ways.append(f"make room on {named(full)}: a log directory there is full, as above")
        if opening := self.opening(brokers):
            ways.append(opening)
        others = brokers - {*down, *full, *self.diskless, *self.unopened}
        if silent := sorted(broker for broker in others if broker in health.silent or broker in health.unanswered):
            ways.append(answered(silent))
        if lagging := sorted(others - {*silent}):
            catch = "catches" if len(lagging) == 1 else "catch"
            ways.append(
                f"take off the throttle that may hold {named(lagging)} back, as above: `ottla partition unthrottle --yes`"
                if health.throttles is not None
                else f"{named(lagging)} {catch} up, as above: `ottla topic describe --under-replicated` lists what is left"
            )
        return "; ".join(ways) or "see that all brokers run and reach each other: `ottla cluster status`"


def answered(brokers: Iterable[int]) -> str:
    """Returns the way out of what waits for these brokers to answer."""
    return f"bring {named(sorted(brokers))} back, as above: `ottla cluster status` says what others see"


def counted(names: Iterable[str], verbs: tuple[str, str] = ("has", "have")) -> str:
    """Returns the subject of a sentence with its verb, for one and for several."""
    found = list(names)
    shown = ", ".join(found[:NAMES_MAX]) + (", ..." if len(found) > NAMES_MAX else "")
    return f"{len(found)} partition{'s'[: len(found) != 1]} ({shown}) {verbs[len(found) != 1]}"

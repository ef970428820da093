"""The ways out that several findings of ``ottla cluster health`` share: what brings replicas back in sync, by what keeps them from it."""

from __future__ import annotations

from collections.abc import Iterable
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

    @property
    def opening(self) -> str:
        """What to do about replicas that brokers which serve cannot open; empty where there are none."""
        if self.diskless:
            return f"mend the log directories of {named(self.diskless)}, as above"
        return f"{named(self.unopened)} cannot open replicas there: mend that, as above" if self.unopened else ""

    @property
    def into_sync(self) -> str:
        """What brings replicas back in sync."""
        health, lagging = self._health, [*self.lagging]
        if self.down:
            return f"{health.back(self.down)}{self.first}"
        if self.full:
            return f"make room on {named(self.full)}: a log directory there is full, as above"
        if self.opening:
            return self.opening
        if silent := [broker for broker in lagging if broker in health.silent or broker in health.unanswered]:
            return answered(silent)
        if lagging and health.throttles is not None:
            return f"take off the throttle that may hold {named(lagging)} back, as above: `ottla partition unthrottle --yes`"
        if lagging:
            catch = "catches" if len(lagging) == 1 else "catch"
            return f"{named(lagging)} {catch} up, as above: `ottla topic describe --under-replicated` lists what is left"
        return "see that all brokers run and reach each other: `ottla cluster status`"


def answered(brokers: Iterable[int]) -> str:
    """Returns the way out of what waits for these brokers to answer."""
    return f"bring {named(sorted(brokers))} back, as above: `ottla cluster status` says what others see"


def counted(names: Iterable[str], verbs: tuple[str, str] = ("has", "have")) -> str:
    """Returns the subject of a sentence with its verb, for one and for several."""
    found = list(names)
    shown = ", ".join(found[:NAMES_MAX]) + (", ..." if len(found) > NAMES_MAX else "")
    return f"{len(found)} partition{'s'[: len(found) != 1]} ({shown}) {verbs[len(found) != 1]}"

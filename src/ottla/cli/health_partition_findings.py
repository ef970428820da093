"""What partitions of a cluster cannot do, and what mends that: effects, whose causes ``ottla cluster health`` names before."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.cli.health_seen import Finding, Health
from ottla.cli.health_ways import NAMES_MAX, Ways, answered, counted
from ottla.cli.unanswered_health import named


def partition_findings(health: Health, ways: Ways) -> Iterator[Finding]:
    """Yields what is wrong with partitions, the worst first."""
    states = health.partitions
    if states.offline:
        yield Finding(
            f"{counted(states.offline)} no leader and cannot be read or written", _led_again(health, ways), kind="partitions_offline"
        )
    if states.unanswered:
        yield Finding(*_unanswered(health), kind="leaders_silent")
    if states.under_min_isr:
        yield Finding(
            f"{counted(states.under_min_isr)} too few replicas in sync: acks=all is refused",
            ways.into_sync(states.under_min_isr),
            kind="partitions_under_min_isr",
        )
    if states.full:
        full_on = tuple(sorted(states.full_leaders))
        room = f"make room there, as above: {named(list(full_on))}"
        yield Finding(
            f"{counted(states.full, ('is', 'are'))} led from a full log directory: what is produced is refused",
            room,
            full_on,
            kind="partitions_full",
        )
    if states.waiting:
        goes_on = (
            "it is out of sync after replica.lag.time.max.ms"
            if health.can_decide
            else "only a majority of the controllers takes it out of the replicas in sync"
        )
        waits = f"{counted(states.waiting)} a replica in sync that does not answer: acks=all waits for it, and {goes_on}"
        yield Finding(waits, answered(health.silent) if health.silent else ways.into_sync(states.waiting), kind="acks_all_waits")
    if states.held:
        yield Finding(
            f"{counted(states.held)} a transaction that is open for longer than any may be: readers of committed records wait for its end",
            "`ottla txn find-hanging` says how it ended, and ends it there with --yes",
            kind="transactions_late",
        )
    under_replicated, said = {*states.under_replicated}, {*states.unanswered, *states.waiting}
    at_risk = [name for name in states.at_min_isr if name in under_replicated and name not in said]
    if at_risk:
        yield Finding(
            f"{counted(at_risk)} no replica in sync to spare: one more failure stops acks=all there",
            ways.into_sync(at_risk),
            kind="partitions_at_risk",
        )


def _led_again(health: Health, ways: Ways) -> str:
    """Returns what gives partitions without a leader one."""
    states, opening = health.partitions, ways.opening()
    owners, alive = sorted(states.could_lead), sorted(states.silent_owners)
    does, it = ("does", "it leads") if len(alive) == 1 else ("do", "they lead")
    waits = f"{named(alive)} had everything, and {does} not answer, as above: {it} again once {it.split()[0]} {does}"
    unknown = opening or "start the brokers that have replicas: `ottla topic describe --unavailable`"
    lossless = f"{health.back(owners)}: {'it' if len(owners) == 1 else 'they'} had everything" if owners else waits if alive else unknown
    others = []
    if states.sole and (owners or ways.unopened):
        others.append(f"{counted(states.sole)} no other replica: without that one the records are lost")
    if states.electable and (owners or not (opening or alive)):
        partitions = " ".join(states.electable[:NAMES_MAX]) + " ..." * (len(states.electable) > NAMES_MAX)
        others.append(f"only if they never return: `ottla partition elect {partitions} --unclean`, which may lose records")
    return "; ".join([lossless, *others])


def _unanswered(health: Health) -> tuple[str, str]:
    """Returns what is wrong with partitions whose leaders do not answer: these are no leaders to the clients, whatever metadata says."""
    leaders = sorted(health.partitions.silent_leaders)
    which = f"{named(leaders)}, which do{'es' * (len(leaders) == 1)} not answer: not read, not written"
    goes_on = "until then, or until another leads" if health.can_decide else "there is no majority of the controllers to let others lead"
    return f"{counted(health.partitions.unanswered, ('is', 'are'))} led by {which}; {goes_on}", answered(leaders)

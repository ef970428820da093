"""What is wrong with a cluster, of what ``ottla cluster health`` has seen, and what mends each: causes, then what they cause."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ottla.cli.health_partition_findings import partition_findings
from ottla.cli.health_quorum_findings import quorum_findings, voter_findings
from ottla.cli.health_seen import Finding, Health
from ottla.cli.health_ways import NAMES_MAX, Ways
from ottla.cli.log_dirs import place_of
from ottla.cli.starting import HOW_TO_START
from ottla.cli.unanswered_health import brought_back, shut_by, unanswered_by


def findings(health: Health) -> Iterator[Finding]:
    """Yields what is wrong: controllers, brokers, their disks, and then partitions. Each remedy names a command."""
    ways = Ways(health)
    yield from quorum_findings(health)
    if health.unseen is not None:
        yield Finding(health.unseen.problem, health.unseen.remedy, kind="topics_not_visible")
    yield from _brokers(health, ways)
    yield from voter_findings(health)
    yield from _log_dirs(health)
    yield from _unopened(health, ways)
    yield from _lagging(health, ways)
    yield from partition_findings(health, ways)
    if (count := len(health.brokers)) < health.default_replicas:
        yield Finding(
            f"{count} broker{'s are' if count > 1 else ' is'} registered, and a topic has {health.default_replicas} replicas by default: "
            f"none can be created without -r",
            f"start the brokers that are missing ({HOW_TO_START.format('NODE')}), or lower default.replication.factor in the nodes' files",
            kind="too_few_brokers",
        )


def _brokers(health: Health, ways: Ways) -> Iterator[Finding]:
    """Yields the brokers that do not serve, or do not answer."""
    ran = "a controller last was active" if health.controller is None else "a majority of the controllers last ran"
    serves = "serves" if health.can_decide else f"served when {ran}"
    for broker in ways.shut:
        yield Finding(
            *shut_by(broker, serves, health.unanswered[broker], is_controller=broker == health.controller), (broker,), kind="broker_refuses"
        )
    for broker in health.fenced:
        forget = f" and forget it (`ottla broker unregister {broker} --yes`)"
        back = f"{health.back([broker])}{ways.first}{_or_move_away(broker, health, forget)}"
        yield Finding(f"broker {broker} is registered and does not serve", back, (broker,), kind="broker_fenced")
    for broker in ways.absent:
        back = f"{health.back([broker])}{_or_move_away(broker, health)}"
        yield Finding(f"broker {broker} holds replicas and is not registered", back, (broker,), kind="broker_not_registered")
    for broker in health.silent:
        yield Finding(
            *unanswered_by(broker, serves, health.unanswered.get(broker, ""), health.paused.get(broker)), (broker,), kind="broker_silent"
        )


def _log_dirs(health: Health) -> Iterator[Finding]:
    for broker, path in health.full_log_dirs:
        largest = health.largest.get(place_of(broker, path), "")
        yield Finding(
            f"log directory {path} of broker {broker} is full: nothing is written there",
            f"`ottla broker logdirs {broker} --replicas --directory {shlex.quote(path)}` lists what fills it, the largest first"
            f"{f' ({largest})' * bool(largest)}; lower `retention.ms` of that, delete topics that have replicas there, or add room; "
            "writing goes on by itself",
            (broker,),
            kind="log_dir_full",
        )
    for broker, path in health.offline_log_dirs:
        yield Finding(
            f"log directory {path} of broker {broker} is offline",
            f"mount its disk, or replace it and format the new one (`ottla storage format FILE --cluster-id {health.cluster_id} "
            f"--ignore-formatted`); then restart the broker ({HOW_TO_START.format(broker)}): its replicas are fetched again from their "
            f"leaders; what has no other replica is on the old disk alone",
            (broker,),
            kind="log_dir_offline",
        )


def _unopened(health: Health, ways: Ways) -> Iterator[Finding]:
    """Yields the brokers that serve and cannot open replicas, with their log directories well, and why, as far as they say."""
    limit = "raise the limit of open files (ulimit -n, or LimitNOFILE of the unit) and re"
    for broker in ways.unopened:
        reasons = health.unopened_reasons.get(broker, {})
        shown = ", ".join(f"{name} ({reason})" for name, reason in [*reasons.items()][:NAMES_MAX])
        more = ", ..." if len(reasons) > 0 and health.partitions.unopened[broker] > min(len(reasons), NAMES_MAX) else ""
        count = health.partitions.unopened[broker]
        ways_out = []
        if not reasons:
            verify = "`ottla storage verify DIR` finds it, too, while the broker is stopped"
            ways_out.append(f"the log says why: segment_damaged names a damaged file (docs/operating.md, A damaged log; {verify})")
        elif any("damaged" in reason for reason in reasons.values()):
            ways_out.append(
                "docs/operating.md, A damaged log, says what to do where no other replica has the records (`ottla dump-log FILE` shows "
                "what is whole)"
            )
        if not reasons or any("open files" in reason for reason in reasons.values()):
            others = "partition_offline has other causes: where that is too many open files, " * (not reasons)
            ways_out.append(f"{others}{limit}{brought_back([broker], {}, {})}")
        elif any(" was removed: " in reason or " is missing, " in reason for reason in reasons.values()):
            ways_out.append(
                f"put the directory back, from a backup, before you re{brought_back([broker], {}, {})}: what has no other replica begins "
                "again at a start, empty"
            )
        elif not ways_out:
            ways_out.append(f"mend that, and re{brought_back([broker], {}, {})}")
        problem = f"broker {broker} cannot open {count} of its replicas{': ' * bool(shown)}{shown}{more}"
        yield Finding(problem, "; ".join(ways_out), (broker,), kind="replicas_not_opened")


def _lagging(health: Health, ways: Ways) -> Iterator[Finding]:
    """Yields the brokers that serve and lack records; not where they cannot open just these replicas, which is said before."""
    for broker, count in ways.lagging.items():
        if broker in ways.unopened and health.partitions.unopened[broker] >= count:
            continue
        yield Finding(
            f"broker {broker} is not in sync for {count} partition{'s'[: count != 1]}{_lack(health.lags.get(broker, 0))}",
            "its log directory is full, as above: it catches up by itself once there is room"
            if broker in ways.full
            else "a log directory of it is offline, as above"
            if broker in ways.diskless
            else "it cannot open some of them, as above; `ottla topic describe --under-replicated` lists them"
            if broker in ways.unopened
            else "it does not answer, as above: `ottla cluster status` says what others see"
            if broker in health.silent or broker in health.unanswered
            else f"{_throttled(health)}it catches up by itself after a start: `ottla broker logdirs {broker}` has what it lacks (LAG); "
            "if that does not fall, look at its log, its disk and its network",
            (broker,),
            kind="replicas_out_of_sync",
        )


def _lack(lag: int) -> str:
    return f", and lacks {lag:,} record{'s'[: lag != 1]}" if lag else ""


def _throttled(health: Health) -> str:
    """Returns the cause of a lag that an operator has set."""
    return (
        ""
        if health.throttles is None
        else f"a throttle may hold it back ({health.throttles.text}: `ottla partition unthrottle --yes` takes it off); "
    )


def _or_move_away(broker: int, health: Health, then: str = "") -> str:
    """Returns the second way out, of a broker that will not return: nothing where no majority of controllers is there to move replicas."""
    if not health.can_decide:
        return ""
    way, states = f"move its replicas to others (`ottla broker drain {broker} --replicas --yes`){then}", health.partitions
    if moves := states.arriving.get(broker):
        names = " ".join(moves[:NAMES_MAX]) if len(moves) <= NAMES_MAX else "--all"
        back = f"take back what is being moved to it (`ottla partition cancel {names} --yes`)"
        if broker not in states.missing and broker not in states.could_lead:
            return f", or {back}{then}"
        way = f"{back}, and {way}"
    if broker in health.partitions.immovable:
        return f"; if it will not return, add a broker first, for every other one that serves has its replicas already, then {way}"
    return f", or {way}"

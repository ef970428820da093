"""What is wrong with a cluster, of what ``ottla cluster health`` has seen, the worst first; and what mends each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.cli.health_seen import Finding, Health
from ottla.cli.quorum_health import spare
from ottla.cli.starting import HOW_TO_START
from ottla.cli.unanswered_health import brought_back, named, shut_by, unanswered_by

NAMES_MAX: Final = 5
LAG_MS_MAX: Final = 10_000
"""For so long a controller that fetches may lack records: one that has just started may."""


def findings(health: Health) -> Iterator[Finding]:
    """Yields what is wrong, the worst first. Each remedy names a command."""
    states, fenced = health.partitions, health.fenced
    absent = sorted(states.missing.keys() - set(health.brokers))
    down = sorted({*fenced, *absent})
    full = sorted({broker for broker, _ in health.full_log_dirs} & states.missing.keys())
    shut = sorted(health.unanswered.keys() - {*health.silent})
    first = f"; where it runs, first mend what is wrong with {named(shut)}, as above" if shut else ""
    reach = f"{health.back(down)}{first}" if down else "see that all brokers run and reach each other: `ottla cluster status`"
    room = f"make room on {named(full)}: a log directory there is full, as below"
    diskless = sorted({broker for broker, _ in health.offline_log_dirs} & (states.unopened.keys() | states.missing.keys()))
    unopened = sorted(states.unopened.keys() - {*diskless} - health.unanswered.keys() - {*health.silent})
    cause = f"{named(unopened)} cannot open replicas there: {_open_again(unopened)}" if unopened else ""
    if diskless:
        cause = f"mend the log directories of {named(diskless)}, as below"
    restart = room if full and not down else cause if cause and not down else reach
    zookeeper = "see that ZooKeeper runs and the brokers reach it (zookeeper.connect): `ottla cluster status`"
    if health.controller is None:
        yield Finding(
            f"no controller is active: nothing can be created or changed, no leader elected, and what brokers and partitions show "
            f"may be old ({health.controller_problem})",
            zookeeper if health.is_in_zookeeper else _start_voters(health),
        )
    elif health.controller_silence is not None:
        yield Finding(
            f"controller {health.controller} does not answer: nothing can be created or changed, and no leader elected "
            f"({health.controller_silence})",
            zookeeper if health.is_in_zookeeper else "see whether a majority of the controllers runs and keeps up: `ottla quorum`",
        )
    serves = "serves" if health.controller is not None else "served when a controller last was active"
    if health.other_voters:
        yield Finding(*_other_voters(health))
    if health.unseen is not None:
        yield Finding(health.unseen.problem, health.unseen.remedy)
    for broker in shut:
        yield Finding(*shut_by(broker, serves, health.unanswered[broker], is_controller=broker == health.controller))
    if states.offline:
        owners = sorted(states.could_lead)
        alive = sorted(states.silent_owners)
        does, it = ("does", "it leads") if len(alive) == 1 else ("do", "they lead")
        waits = f"{named(alive)} had everything, and {does} not answer, as below: {it} again once {it.split()[0]} {does}"
        unknown = cause or "start the brokers that have replicas: `ottla topic describe --unavailable`"
        lossless = f"{health.back(owners)}: they had everything" if owners else waits if alive else unknown
        others = [f"{counted(states.sole)} no other replica: without that one the records are lost"] if states.sole and owners else []
        if states.electable and (owners or not (cause or alive)):
            partitions = " ".join(states.electable[:NAMES_MAX]) + " ..." * (len(states.electable) > NAMES_MAX)
            others.append(f"only if they never return: `ottla partition elect {partitions} --unclean`, which may lose records")
        yield Finding(
            f"{counted(states.offline)} no leader and cannot be read or written",
            "; ".join([lossless, *others]),
        )
    if states.under_min_isr:
        yield Finding(f"{counted(states.under_min_isr)} too few replicas in sync: acks=all is refused", restart)
    if states.waiting:
        goes_on = "it is out of sync after replica.lag.time.max.ms" if health.controller is not None else "only a controller takes it out"
        yield Finding(f"{counted(states.waiting)} a replica in sync that does not answer: acks=all waits for it, and {goes_on}", reach)
    if states.held:
        yield Finding(
            f"{counted(states.held)} a transaction that is open for longer than any may be: readers of committed records wait for its end",
            "`ottla txn find-hanging` says how it ended, and ends it there with --yes",
        )
    at_risk = sorted({*states.at_min_isr} & {*states.under_replicated} - {*states.waiting})
    if at_risk:
        yield Finding(f"{counted(at_risk)} no replica in sync to spare: one more failure stops acks=all there", restart)
    for broker in fenced:
        forget = f" and forget it (`ottla broker unregister {broker}`)"
        yield Finding(
            f"broker {broker} is registered and does not serve",
            f"{health.back([broker])}{first}{_or_move_away(broker, health, forget)}",
            (broker,),
        )
    for broker in absent:
        back = f"{health.back([broker])}{_or_move_away(broker, health)}"
        yield Finding(f"broker {broker} holds replicas and is not registered", back, (broker,))
    for broker in health.silent:
        yield Finding(*unanswered_by(broker, serves, health.unanswered.get(broker, ""), health.paused.get(broker)), (broker,))
    lagging = {broker: count for broker, count in sorted(states.missing.items()) if broker not in down}
    for broker, count in lagging.items():
        yield Finding(
            f"broker {broker} is not in sync for {count} partition{'s'[: count != 1]}",
            "its log directory is full, as below: it catches up by itself once there is room"
            if broker in full
            else "a log directory of it is offline, as below"
            if broker in diskless
            else f"it cannot open {states.unopened[broker]} of them: {_open_again([broker])}"
            if broker in unopened
            else "it does not answer, as above: `ottla cluster status` says what others see"
            if broker in health.silent or broker in health.unanswered
            else f"{_throttled(health)}it catches up by itself after a start; if `ottla topic describe --under-replicated` goes on to list "
            "them, look at its log, its disk and its network",
        )
    if (count := len(health.brokers)) < health.default_replicas:
        yield Finding(
            f"{count} broker{'s are' if count > 1 else ' is'} registered, and a topic has {health.default_replicas} replicas by default: "
            f"none can be created without -r",
            f"start the brokers that are missing ({HOW_TO_START.format('NODE')}), or lower default.replication.factor in the nodes' files",
        )
    for voter in health.voters:
        if voter.has_ended:
            where = health.configured_voters[voter.node_id]
            yield Finding(
                f"controller {voter.node_id} has ended: nothing listens at {where}, and it does not fetch the metadata log",
                f"start node {voter.node_id} ({HOW_TO_START.format(voter.node_id)}); {spare(health.voters)}",
                (voter.node_id,),
            )
        elif voter.is_silent:
            is_new = voter.fetched_ms_ago is None or voter.lag < 0
            last = (
                f"has not fetched since {health.controller} leads"
                if is_new
                else f"last fetched {(voter.fetched_ms_ago or 0) // 1000} s ago"
            )
            yield Finding(
                f"controller {voter.node_id} does not follow the metadata log: it {last}",
                f"{_return_of(voter.node_id, health)}; {spare(health.voters)}",
                (voter.node_id,),
            )
        elif voter.lags_for_ms is not None and voter.lags_for_ms > LAG_MS_MAX:
            yield Finding(
                f"controller {voter.node_id} lags: it lacks {voter.lag} records of the metadata log, and last had all "
                f"{voter.lags_for_ms // 1000} s ago",
                f"see whether its disk and its network keep up (`ottla quorum`); {spare(health.voters)}",
            )
    for broker, path in health.full_log_dirs:
        yield Finding(
            f"log directory {path} of broker {broker} is full: nothing is written there",
            "lower `retention.ms`, delete topics, or add room; writing goes on by itself",
        )
    for broker, path in health.offline_log_dirs:
        yield Finding(
            f"log directory {path} of broker {broker} is offline",
            f"mount its disk, or replace it and format the new one (`ottla storage format FILE --cluster-id {health.cluster_id} "
            f"--ignore-formatted`); then restart the broker ({HOW_TO_START.format(broker)}): its replicas are fetched again from their "
            f"leaders; what has no other replica is on the old disk alone",
        )


def _other_voters(health: Health) -> tuple[str, str]:
    """Returns what is wrong with the voters of some brokers, and the way out."""
    lists = "; ".join(f"{broker}: {voters}" for broker, voters in sorted(health.other_voters.items()))
    others = sorted(health.other_voters)
    has = "has" if len(others) == 1 else "have"
    problem = f"{named(others)} {has} other controllers in controller.quorum.voters than the rest ({lists}): they count another majority"
    way = "write the same list in the files of all nodes (`ottla config lint` compares them), and restart these one after the other"
    return problem, f"{way}; a list is changed only as docs/operating.md says (Replace a lost controller)"


def _throttled(health: Health) -> str:
    """Returns the cause of a lag that an operator has set."""
    return "" if health.throttles is None else f"a throttle may hold it back ({health.throttles.text}: `ottla partition unthrottle`); "


def _return_of(voter: int, health: Health) -> str:
    """Returns what brings a silent voter back: a start, or, where its process runs, a look at why it cannot join."""
    address = health.configured_voters.get(voter)
    if address is None or voter in health.unreachable_voters:
        return f"start node {voter} ({HOW_TO_START.format(voter)}), or see what cuts it off from controller {health.controller}"
    causes = f"it is stopped (SIGSTOP) or hangs, was turned away, or cannot reach controller {health.controller}"
    return f"its process takes connections at {address}: {causes}; its log says why, at node_waits and the warnings before it"


def _start_voters(health: Health) -> str:
    """Returns what to start where no controller is active, by name as far as the names are known."""
    voters, down = health.configured_voters, health.unreachable_voters
    if not voters:
        return f"start the voters of controller.quorum.voters that are down, of which a majority must run ({HOW_TO_START.format('NODE')})"
    count = f"of {len(voters)} controllers {len(voters) // 2 + 1} must run"
    if not down:
        return f"all controllers take connections from here, and {count}: look at their logs, and at the network between them"
    named = ", ".join(f"{node} ({voters[node]})" for node in down)
    numbers = "NODE" if len(down) > 1 else str(down[0])
    verb = "s" if len(down) == 1 else ""
    return f"start controller{'s'[: len(down) != 1]} {named}, which take{verb} no connection ({HOW_TO_START.format(numbers)}): {count}"


def _open_again(brokers: list[int]) -> str:
    """Returns what to do about replicas that brokers which serve cannot open, with their log directories well."""
    damage = "segment_damaged names a damaged file (docs/operating.md, A damaged log; `ottla storage verify DIR` finds it, too)"
    limit = "raise the limit (ulimit -n, or LimitNOFILE of the unit)"
    others = f"partition_offline has other causes: where that is too many open files, {limit} and re{brought_back(brokers, {}, {})}"
    return f"the log says why: {damage}; {others}"


def _or_move_away(broker: int, health: Health, then: str = "") -> str:
    """Returns the second way out, of a broker that will not return: nothing where no controller is active to move replicas."""
    if health.controller is None:
        return ""
    way = f"move its replicas to others (`ottla broker drain {broker} --replicas`){then}"
    if broker in health.partitions.immovable:
        return f"; if it will not return, add a broker first, for every other one that serves has its replicas already, then {way}"
    return f", or {way}"


def counted(names: Iterable[str]) -> str:
    """Returns the subject of a sentence, with "has" or "have"."""
    found = list(names)
    shown = ", ".join(found[:NAMES_MAX]) + (", ..." if len(found) > NAMES_MAX else "")
    return f"{len(found)} partition{'s'[: len(found) != 1]} ({shown}) {'has' if len(found) == 1 else 'have'}"

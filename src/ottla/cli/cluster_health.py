"""``ottla cluster health``: what is wrong with a cluster, as far as its answers say, and what to do about it.

``look`` asks, ``findings`` judges, ``summary`` is the screen. A partition counts in each state that it is in, as brokers see it:
``min.insync.replicas`` is capped at the number of replicas. A leader that is not the preferred one is no problem: leaders return by
themselves.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ottla.cli.health_partitions import PartitionStates
from ottla.cli.partition_states import default_replicas, min_isr_of, moves_known
from ottla.cli.quorum_health import Voter, ended_voters, spare, voters_of, without_fetch
from ottla.cli.quorum_states import NONE_IN_ZOOKEEPER, NOT_SHOWN, may_not_look
from ottla.cli.quorum_voters import configured_voters, listening, without_connection
from ottla.cli.starting import HOW_TO_START
from ottla.cli.unanswered_health import brought_back, is_login, named, shut_by, unanswered_by
from ottla.client.admin import Broker
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.types import LATE_TRANSACTION_MS, TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import LogDir, PartitionDescription
    from ottla.sync import Admin

NAMES_MAX: Final = 5
LAG_MS_MAX: Final = 10_000
"""For so long a controller that fetches may lack records: one that has just started may."""
MAX_TIMEOUT: Final = "transaction.max.timeout.ms"


@dataclass(slots=True)
class Health:
    """``controller`` is None where no controller is active; ``silent`` are brokers that serve, and did not answer for themselves.

    In ZooKeeper mode there are no voters and no epoch, and a broker that is down is not registered. Where no controller is active, or a
    voter is silent, ``configured_voters`` are what a broker's configuration names, and ``unreachable_voters`` take no connection.
    """

    cluster_id: str
    brokers: list[int]
    fenced: list[int]
    controller: int | None
    epoch: int
    voters: list[Voter]
    controller_problem: str | None
    partitions: PartitionStates
    log_dir_count: int
    offline_log_dirs: list[tuple[int, str]]
    silent: list[int]
    is_in_zookeeper: bool = False
    unanswered: dict[int, str] = field(default_factory=dict)  # why: of the silent ones, and of those that let the one who looks not in
    controller_silence: str | None = None  # of one that is active, as far as brokers know
    full_log_dirs: list[tuple[int, str]] = field(default_factory=list)
    configured_voters: dict[int, str] = field(default_factory=dict)
    unreachable_voters: list[int] = field(default_factory=list)
    default_replicas: int = 1  # of a topic that is created without a number
    hanging: dict[int, str] = field(default_factory=dict)  # fenced, and a process takes connections at the address
    paused: dict[int, int] = field(default_factory=dict)  # by SIGSTOP: the processes of brokers of this machine

    def back(self, brokers: list[int]) -> str:
        """Returns what brings brokers back that do not serve."""
        return brought_back(brokers, self.paused, self.hanging)


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, and the way out."""

    problem: str
    remedy: str


def look(admin: Admin, *, is_sure: bool = False) -> Health:
    """Returns the cluster's health by its present answers. KafkaError when no broker answers, or the user may not look.

    With ``is_sure`` controllers of their own count as well only once they have fetched meanwhile, which takes a second: what the leader
    knows of one that was restarted is the last fetch of the process before.
    """
    cluster = admin.describe_cluster(include_fenced=True)
    serving = {node.node_id for node in cluster.nodes} - cluster.fenced
    quorum, problem, is_in_zookeeper = None, None, False
    try:
        quorum = admin.describe_quorum()
    except OttlaError as error:
        if may_not_look(error):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{NOT_SHOWN}, as do the log directories") from error
        problem = str(error)
        is_in_zookeeper = isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_VERSION
    controller = None if quorum is None else quorum.leader_id
    if is_in_zookeeper:  # one of the brokers is the controller; there is no quorum to describe
        controller = cluster.controller_id if cluster.controller_id >= 0 else None
        problem = None if controller is not None else NONE_IN_ZOOKEEPER
    log_dirs: list[tuple[int, LogDir]] = []
    silent, unanswered = [], {}
    for broker in sorted(serving):
        try:
            [found] = admin.describe_log_dirs([broker], with_replicas=False).values()
        except OttlaError as error:
            unanswered[broker] = str(error)
            if not is_login(error):
                silent.append(broker)
        else:
            log_dirs += [(broker, log_dir) for log_dir in found]
    partitions = admin.describe_partitions()
    moving, silence = moves_known(admin) if controller is not None else ({}, None)
    min_isrs = min_isr_of(admin, {key.topic for key in partitions})
    states = PartitionStates()
    for key, partition in sorted(partitions.items(), key=lambda item: users_first(item[0])):
        move = moving.get(key)
        adding = () if move is None else move.adding
        states.add(key, partition, min_isr=min_isrs.get(key.topic, 1), adding=adding, serving=serving, silent=silent)
    states.held = list(_held(admin, partitions, serving))
    answering = sorted(serving - unanswered.keys())
    voters = [] if quorum is None else list(voters_of(quorum, cluster.fenced))
    unseen = [voter for voter in voters if voter.is_silent or voter.node_id not in answering]
    configured = configured_voters(admin, answering) if not is_in_zookeeper and (controller is None or unseen) else {}
    fetching = {voter.node_id: configured[voter.node_id] for voter in unseen if not voter.is_silent and voter.node_id in configured}
    ended = [] if quorum is None else ended_voters(admin, quorum.leader_id, fetching)
    following = [voter.node_id for voter in unseen if not voter.is_silent and voter.node_id not in (controller, *ended)]
    idle = without_fetch(admin, following) if is_sure else []
    voters = [replace(voter, has_ended=voter.node_id in ended, is_silent=voter.is_silent or voter.node_id in idle) for voter in voters]
    controllers = answering if is_in_zookeeper else [voter.node_id for voter in voters if voter.node_id in answering]
    is_one_silent = any(voter.is_silent for voter in voters)
    return Health(
        cluster_id=cluster.cluster_id,
        brokers=sorted(node.node_id for node in cluster.nodes),
        fenced=sorted(cluster.fenced),
        controller=controller,
        epoch=-1 if quorum is None else quorum.leader_epoch,
        voters=voters,
        controller_problem=problem,
        partitions=states,
        log_dir_count=len(log_dirs),
        offline_log_dirs=[(broker, log_dir.path) for broker, log_dir in log_dirs if log_dir.error is not None],
        full_log_dirs=[(broker, log_dir.path) for broker, log_dir in log_dirs if log_dir.is_full],
        silent=silent,
        unanswered=unanswered,
        is_in_zookeeper=is_in_zookeeper,
        controller_silence=None if silence is None else silence.message,
        configured_voters=configured,
        default_replicas=default_replicas(admin, controllers),
        hanging=listening({node.node_id: f"{node.host}:{node.port}" for node in cluster.nodes if node.node_id in cluster.fenced}),
        unreachable_voters=without_connection(configured) if controller is None or is_one_silent else ended,
    )


def users_first(key: TopicPartition) -> tuple[bool, TopicPartition]:
    """Returns by what partitions are sorted: the first few are named, and what users have matters most."""
    return key.topic.startswith("__"), key


def _held(admin: Admin, partitions: Mapping[TopicPartition, PartitionDescription], serving: Collection[int]) -> Iterator[str]:
    """Yields the partitions whose stable offset has not moved for longer than a transaction may last, and ``LATE_TRANSACTION_MS``."""
    led: dict[int, list[TopicPartition]] = {}
    for key, partition in sorted(partitions.items()):
        if partition.leader in serving:
            led.setdefault(partition.leader, []).append(key)
    for leader, keys in led.items():
        with contextlib.suppress(OttlaError):  # a broker that does not answer is a finding of its own
            configs = admin.describe_configs(Broker(leader))
            latest_ms = time.time() * 1000 - int(configs[MAX_TIMEOUT].value or 0) - LATE_TRANSACTION_MS
            for key, producers in admin.describe_producers(keys).items():
                states = () if isinstance(producers, KafkaError) else producers
                if any(state.transaction_start_offset >= 0 and state.last_timestamp_ms <= latest_ms for state in states):
                    yield f"{key.topic}-{key.partition}"


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
    for broker in shut:
        yield Finding(*shut_by(broker, serves, health.unanswered[broker], is_controller=broker == health.controller))
    if states.offline:
        owners = sorted(states.could_lead)
        alive = sorted(states.silent_owners)
        does, it = ("does", "it leads") if len(alive) == 1 else ("do", "they lead")
        waits = f"{named(alive)} had everything, and {does} not answer, as below: {it} again once {it.split()[0]} {does}"
        unknown = cause or "start the brokers that have replicas: `ottla topic describe --unavailable`"
        lossless = f"{health.back(owners)}: they had everything" if owners else waits if alive else unknown
        unclean = "`ottla config set --topic TOPIC unclean.leader.election.enable=true`, which may lose records"
        yield Finding(
            f"{_count(states.offline)} no leader and cannot be read or written",
            lossless if (cause or alive) and not owners else f"{lossless}; only if they never return: {unclean}",
        )
    if states.under_min_isr:
        yield Finding(f"{_count(states.under_min_isr)} too few replicas in sync: acks=all is refused", restart)
    if states.waiting:
        goes_on = "it is out of sync after replica.lag.time.max.ms" if health.controller is not None else "only a controller takes it out"
        yield Finding(f"{_count(states.waiting)} a replica in sync that does not answer: acks=all waits for it, and {goes_on}", reach)
    if states.held:
        yield Finding(
            f"{_count(states.held)} a transaction that is open for longer than any may be: readers of committed records wait for its end",
            "`ottla txn find-hanging` says how it ended, and ends it there with --yes",
        )
    at_risk = sorted({*states.at_min_isr} & {*states.under_replicated} - {*states.waiting})
    if at_risk:
        yield Finding(f"{_count(at_risk)} no replica in sync to spare: one more failure stops acks=all there", restart)
    for broker in fenced:
        forget = f" and forget it (`ottla broker unregister {broker}`)"
        yield Finding(
            f"broker {broker} is registered and does not serve", f"{health.back([broker])}{first}{_or_move_away(broker, health, forget)}"
        )
    for broker in absent:
        yield Finding(f"broker {broker} holds replicas and is not registered", f"{health.back([broker])}{_or_move_away(broker, health)}")
    for broker in health.silent:
        yield Finding(*unanswered_by(broker, serves, health.unanswered.get(broker, ""), health.paused.get(broker)))
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
            else "it catches up by itself after a start; if `ottla topic describe --under-replicated` goes on to list them, look at its "
            "log, its disk and its network",
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
    limit = "raise the limit (ulimit -n, or LimitNOFILE of the unit)"
    return f"the log says why, at partition_offline; where that is too many open files, {limit} and re{brought_back(brokers, {}, {})}"


def _or_move_away(broker: int, health: Health, then: str = "") -> str:
    """Returns the second way out, of a broker that will not return: nothing where no controller is active to move replicas."""
    if health.controller is None:
        return ""
    way = f"move its replicas to others (`ottla broker drain {broker} --replicas`){then}"
    if broker in health.partitions.immovable:
        return f"; if it will not return, add a broker first, for every other one that serves has its replicas already, then {way}"
    return f", or {way}"


def summary(health: Health, found: list[Finding]) -> Iterator[str]:
    """Yields the lines of the screen."""
    states = health.partitions
    verdict = "healthy" if not found else f"{len(found)} problem{'s'[: len(found) != 1]}"
    yield f"cluster {health.cluster_id}: {verdict}"
    fenced = f"{len(health.fenced)} fenced" + (f" ({', '.join(map(str, health.fenced))})" if health.fenced else "")
    yield f"brokers      {len(health.brokers)} registered, {fenced}"
    if health.controller is None:
        yield "controller   none is active: what follows, and who is fenced, is as brokers last knew it"
    else:
        where = "in ZooKeeper mode" + (", and does not answer" if health.controller_silence is not None else "")
        lags = ", ".join(f"{voter.node_id}: {voter.state or voter.lag}" for voter in health.voters)
        left = f"; {spare(health.voters)}" if len(health.voters) > 1 else ""
        quorum = f"in epoch {health.epoch}; lag of the voters: {lags}{left}"
        yield f"controller   {health.controller} is active {where if health.is_in_zookeeper else quorum}"
    yield (
        f"partitions   {states.count}: {len(states.offline)} offline, {len(states.under_min_isr)} below min ISR, "
        f"{len(states.at_min_isr)} at min ISR, {len(states.under_replicated)} under replicated"
    )
    yield (
        f"leaders      {len(states.without_preferred_leader)} not preferred; "
        f"eligible leader replicas in use: {len(states.eligible_in_use)} partition{'s'[: len(states.eligible_in_use) != 1]}; "
        f"held by a late transaction: {len(states.held)}"
    )
    yield f"log dirs     {health.log_dir_count}, {len(health.offline_log_dirs)} offline, {len(health.full_log_dirs)} full"
    if states.tight:
        yield ""
        yield f"NOTE     {_count(states.tight)} no more replicas than min.insync.replicas: acks=all is refused while one is not in sync"
        yield "         `ottla config set --topic TOPIC min.insync.replicas=N` lowers it, and `ottla partition reassign` adds replicas"
    for finding in found:
        yield ""
        yield f"PROBLEM  {finding.problem}"
        yield f"         {finding.remedy}"


def _count(names: Iterable[str]) -> str:
    """Returns the subject of a sentence, with "has" or "have"."""
    found = list(names)
    shown = ", ".join(found[:NAMES_MAX]) + (", ..." if len(found) > NAMES_MAX else "")
    return f"{len(found)} partition{'s'[: len(found) != 1]} ({shown}) {'has' if len(found) == 1 else 'have'}"

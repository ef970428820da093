"""``ottla cluster health``: what is wrong with a cluster, as far as its answers say, and what to do about it.

``look`` asks, ``health_findings`` judges, ``summary`` is the screen. A partition counts in each state that it is in, as brokers see it:
``min.insync.replicas`` is capped at the number of replicas. A leader that is not the preferred one is no problem: leaders return by
themselves.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.cli.health_partitions import PartitionStates
from ottla.cli.health_seen import Finding, Health
from ottla.cli.health_ways import counted
from ottla.cli.log_dirs import lags_of, largest_of, room_notes, without_room
from ottla.cli.node_configs import CONFIGS_UNSEEN, NodeConfigs, node_configs
from ottla.cli.partition_states import default_replicas, min_isr_of, moves_known
from ottla.cli.quorum_health import ended_voters, spare, voters_of, without_fetch
from ottla.cli.quorum_lists import OTHER_PORTS, addresses_of, dead_addresses, other_ports, other_voters
from ottla.cli.quorum_states import NONE_IN_ZOOKEEPER, NOT_SHOWN, may_not_look
from ottla.cli.quorum_voters import listening, refusing, without_connection
from ottla.cli.throttles import throttles_of
from ottla.cli.unanswered_health import is_login
from ottla.cli.unseen_topics import held_by, unseen_topics
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.types import LATE_TRANSACTION_MS, TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import LogDir, PartitionDescription
    from ottla.sync import Admin

MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
REASONS_MAX: Final = 10
TRANSACTIONS_UNSEEN: Final = "whether a transaction holds partitions was not looked at for all of them: that takes READ on topic '*'"


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
            [found] = admin.describe_log_dirs([broker]).values()
        except OttlaError as error:
            unanswered[broker] = str(error)
            if not is_login(error):
                silent.append(broker)
        else:
            log_dirs += [(broker, log_dir) for log_dir in found]
    partitions = admin.describe_partitions()
    moving, silence = moves_known(admin) if controller is not None else ({}, None)
    topics = {key.topic for key in partitions}
    hidden = unseen_topics(admin, topics, held_by([log_dir for _, log_dir in log_dirs]))
    min_isrs = min_isr_of(admin, topics)
    states, roomless = PartitionStates(), without_room(log_dirs)
    for key, partition in sorted(partitions.items(), key=lambda item: users_first(item[0])):
        move = moving.get(key)
        adding = () if move is None else move.adding
        full = roomless.get(key, ())
        states.add(key, partition, min_isr=min_isrs.get(key.topic, 1), adding=adding, serving=serving, silent=silent, without_room=full)
    answering = sorted(serving - unanswered.keys())
    nodes = node_configs(admin, answering)
    states.held, are_refused = _held(admin, partitions, nodes)
    lists = {} if is_in_zookeeper else nodes.lists()
    known = [] if quorum is None else [voter.node_id for voter in quorum.voters]
    others, dead = other_voters(lists, known), dead_addresses(lists, quorum)
    notes = [TRANSACTIONS_UNSEEN] * are_refused + [CONFIGS_UNSEEN] * nodes.are_refused
    notes += room_notes(log_dirs)
    notes += [OTHER_PORTS.format(broker, listed) for broker, listed in other_ports(lists).items() if broker not in {*others, *dead}]
    voters = [] if quorum is None else list(voters_of(quorum, cluster.fenced))
    unseen = [voter for voter in voters if voter.is_silent or voter.node_id not in answering]
    configured = addresses_of(lists, known, dead) if controller is None or unseen else {}
    silent_ones, fetching = (
        {voter.node_id: configured[voter.node_id] for voter in unseen if voter.is_silent is so and voter.node_id in configured}
        for so in (True, False)
    )
    ended = [] if quorum is None else [*refusing(silent_ones), *ended_voters(admin, quorum.leader_id, fetching)]
    following = [voter.node_id for voter in unseen if not voter.is_silent and voter.node_id not in (controller, *ended)]
    idle = without_fetch(admin, following) if is_sure else []
    voters = [
        replace(
            voter,
            has_ended=voter.node_id in ended,
            is_silent=voter.is_silent or voter.node_id in idle,
            cannot_reach=tuple(sorted(dead.get(voter.node_id, ()))),
        )
        for voter in voters
    ]
    controllers = answering if is_in_zookeeper else [voter.node_id for voter in voters if voter.node_id in answering]
    is_one_silent = any(voter.is_silent for voter in voters)
    return Health(
        cluster_id=cluster.cluster_id,
        brokers=sorted(node.node_id for node in cluster.nodes),
        fenced=sorted(cluster.fenced),
        controller=controller,
        epoch=-1 if quorum is None else quorum.leader_epoch,
        unclean_elections=0 if quorum is None else quorum.unclean_elections,
        voters=voters,
        controller_problem=problem,
        partitions=states,
        log_dir_count=len(log_dirs),
        offline_log_dirs=[(broker, log_dir.path) for broker, log_dir in log_dirs if log_dir.error is not None],
        full_log_dirs=[(broker, log_dir.path) for broker, log_dir in log_dirs if log_dir.is_full],
        largest=largest_of(log_dirs),
        lags=lags_of(log_dirs),
        silent=silent,
        unanswered=unanswered,
        is_in_zookeeper=is_in_zookeeper,
        controller_silence=None if silence is None else silence.message,
        configured_voters=configured,
        default_replicas=default_replicas(admin, controllers),
        hanging=listening({node.node_id: f"{node.host}:{node.port}" for node in cluster.nodes if node.node_id in cluster.fenced}),
        unreachable_voters=without_connection(configured) if controller is None or is_one_silent else ended,
        throttles=throttles_of(admin, nodes.values, topics),
        is_moving=bool(moving),
        other_voters=others,
        dead_addresses=dead,
        unopened_reasons=_reasons(admin, partitions, answering),
        unseen=hidden,
        notes=notes,
    )


def users_first(key: TopicPartition) -> tuple[bool, TopicPartition]:
    """Returns by what partitions are sorted: the first few are named, and what users have matters most."""
    return key.topic.startswith("__"), key


def _held(admin: Admin, partitions: Mapping[TopicPartition, PartitionDescription], nodes: NodeConfigs) -> tuple[list[str], bool]:
    """Returns the partitions whose stable offset has not moved for longer than a transaction may last, and ``LATE_TRANSACTION_MS``.

    Then comes whether the user may not see the producers of some.
    """
    led: dict[int, list[TopicPartition]] = {}
    for key, partition in sorted(partitions.items()):
        if partition.leader in nodes.values:  # one that does not answer is a finding of its own
            led.setdefault(partition.leader, []).append(key)
    held: list[TopicPartition] = []
    are_refused = False
    for leader, keys in led.items():
        latest_ms = time.time() * 1000 - int(nodes.values[leader].get(MAX_TIMEOUT) or 0) - LATE_TRANSACTION_MS
        with contextlib.suppress(OttlaError):
            for key, producers in admin.describe_producers(keys).items():
                states = () if isinstance(producers, KafkaError) else producers
                are_refused |= isinstance(producers, KafkaError) and producers.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                if any(state.transaction_start_offset >= 0 and state.last_timestamp_ms <= latest_ms for state in states):
                    held.append(key)
    return [f"{key.topic}-{key.partition}" for key in sorted(held, key=users_first)], are_refused


def _reasons(admin: Admin, partitions: Mapping[TopicPartition, PartitionDescription], brokers: list[int]) -> dict[int, dict[str, str]]:
    """Returns why these brokers cannot open replicas, as far as they say, and the user may ask: of some of the replicas of each."""
    found: dict[int, dict[str, str]] = {}
    for broker in brokers:
        keys = sorted((key for key, partition in partitions.items() if broker in partition.offline), key=users_first)[:REASONS_MAX]
        with contextlib.suppress(OttlaError):
            answers = admin.describe_producers(keys, broker_id=broker) if keys else {}
            for key in keys:
                if isinstance(error := answers.get(key), KafkaError) and error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                    found.setdefault(broker, {})[f"{key.topic}-{key.partition}"] = error.message.partition(" is offline: ")[2]
    return found


def notes_of(health: Health) -> Iterator[tuple[str, str]]:
    """Yields what is no problem and worth knowing, each with a command, or with an empty text."""
    if tight := health.partitions.tight:
        yield (
            f"{counted(tight)} no more replicas than min.insync.replicas: acks=all is refused while one is not in sync",
            "`ottla config set --topic TOPIC min.insync.replicas=N` lowers it, and `ottla partition reassign` adds replicas",
        )
    if health.throttles is not None:
        forgotten = "" if health.is_moving else ", and no replica is being moved"
        yield (
            f"replicas that catch up are throttled to {health.throttles.text}{forgotten}",
            f"`ottla partition unthrottle{' --wait' * health.is_moving} --yes` takes that off",
        )
    if count := health.unclean_elections:
        leaders = "1 leader that was" if count == 1 else f"{count} leaders that were"
        yield (
            f"controller {health.controller} has elected {leaders} not in sync since its start: records may be lost",
            "`unclean_leader_elected` in its log has the partitions",
        )
    for note in health.notes:
        yield note, ""


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
        left = f"; {spare(health.voters, health.silent)}" if len(health.voters) > 1 else ""
        quorum = f"in epoch {health.epoch}; lag of the voters: {lags}{left}"
        yield f"controller   {health.controller} is active {where if health.is_in_zookeeper else quorum}"
    unanswered = f"{len(states.unanswered)} led by brokers that do not answer, " if states.unanswered else ""
    yield (
        f"partitions   {states.count}: {len(states.offline)} offline, {unanswered}{len(states.under_min_isr)} below min ISR, "
        f"{len(states.at_min_isr)} at min ISR, {len(states.under_replicated)} under replicated"
    )
    yield (
        f"leaders      {len(states.without_preferred_leader)} not preferred; "
        f"eligible leader replicas in use: {len(states.eligible_in_use)} partition{'s'[: len(states.eligible_in_use) != 1]}; "
        f"held by a late transaction: {len(states.held)}"
    )
    yield f"log dirs     {health.log_dir_count}, {len(health.offline_log_dirs)} offline, {len(health.full_log_dirs)} full"
    for note, way in notes_of(health):
        yield ""
        yield f"NOTE     {note}"
        if way:
            yield f"         {way}"
    for finding in found:
        yield ""
        yield f"PROBLEM  {finding.problem}"
        yield f"         {finding.remedy}"

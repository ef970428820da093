"""All that the cluster simulator explores, by kind and home: which nodes, what clients do, what befalls them, what must hold."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from tests.simulation import lone_broker, moving_leaders
from tests.simulation.acl_changes import AclWork, guarded_content, known, nodes_with_acls, rights_are_enforced, znodes_have_them
from tests.simulation.acts import Damage, Disks, Service, first_of
from tests.simulation.consumer_members import SETTINGS, MembersAtWork
from tests.simulation.crash_points import (
    AFTER_MS,
    POINTS,
    POINTS_MS,
    VICTIMS,
    Applications,
    level_of_point,
    one_point,
    role,
    transactions_are_whole,
)
from tests.simulation.crowd.exploration import CROWD
from tests.simulation.draws import (
    ANY_NODES,
    DEADLY,
    FAILING_DISKS,
    MORE_MS,
    REPLICATED,
    Draw,
    Faults,
    all_die_at_once,
    at_a_moment,
    disks_of,
    disks_of_moved,
    is_damaged,
    lasting,
    no_faults,
    one_by_one,
    service_of,
)
from tests.simulation.explorer import WORK_MS, Exploration
from tests.simulation.failing_disks import FailingDisks, unexpected_errors
from tests.simulation.following_nodes import HEAL_SECONDS, FollowingWork, all_is_kept
from tests.simulation.hard_nodes import HardWork, changes_values, errors_beside_full_disks, zookeeper_errors_beside_full_disks
from tests.simulation.hard_transactions import HardTransactionalWork
from tests.simulation.lone_broker import FAULTS_MS, LoneWork, at_steps, failing_once, lone_node, swarm
from tests.simulation.metadata_work import MetadataWork, nodes_agree
from tests.simulation.quorum_nodes import (
    REPLICATION,
    all_errors,
    needless_fences,
    nodes_in_quorum,
    slow_stops,
    slow_successions,
)
from tests.simulation.replicated_nodes import (
    decisions_are_sound,
    elr,
    has_elr,
    lacks,
    needless_unclean_elections,
    power_of,
    promises_are_kept,
    replicas_are_one,
)
from tests.simulation.replicated_work import Work
from tests.simulation.restless import RestlessTransactionalWork, RestlessWork
from tests.simulation.transactional_nodes import TransactionalWork, level_of, watching
from tests.simulation.zookeeper_nodes import needless_deletions, nodes_in_zookeeper, shared_epochs

from ottla.controller.features import TRANSACTION_VERSION
from ottla.sim.cluster import Simulation
from ottla.sim.schedule.drawing import SWARM
from ottla.sim.schedule.fault import Kind

QUORUM: Final = "quorum"
ZOOKEEPER: Final = "zookeeper"
ABSENCES_MS: Final = (100, 1000, 4000, 12_000)
DAMAGE_ERRORS: Final = frozenset({"log_append_failed", "shard_append_failed", "shard_not_loaded", "partition_offline"})
"""Errors that a broker logs of a log that is not to be written any more."""


def _troubles(
    *draws: Draw, disks: Callable[[random.Random], Faults] = no_faults, service: bool = False, first_ms: int = 8000, work_ms: int = WORK_MS
) -> Callable[[Simulation], Faults]:
    def draw(simulation: Simulation) -> Faults:
        rng = simulation.random("trouble")
        faults = one_by_one(rng, draws, begin_ms=first_ms, end_ms=work_ms)
        faults += one_by_one(
            rng, DEADLY, begin_ms=max(work_ms, *(fault.at_ms + fault.for_ms for fault in faults)), end_ms=work_ms + MORE_MS
        )
        faults += disks(simulation.random("trouble of disks"))
        return faults + (service_of(simulation.random("trouble of zookeeper")) if service else [])

    return draw


METADATA: Final = Exploration(
    nodes_in_quorum(),
    MetadataWork,
    _troubles(*ANY_NODES, all_die_at_once),
    [nodes_agree],
    [needless_fences, slow_successions, all_errors],
    rare=("controller_active", "active controller killed", "power", "request without an answer"),
)
FOLLOWING: Final = Exploration(
    nodes_in_quorum(),
    FollowingWork,
    _troubles(*(lasting(kind, ABSENCES_MS) for kind in (Kind.KILL, Kind.RESTART, Kind.PAUSE, Kind.DARK)), first_ms=3000, work_ms=40_000),
    [all_is_kept],
    [all_errors],
    work_ms=40_000,
    heal_seconds=HEAL_SECONDS,
    rare=("kill", "restart", "pause", "dark", "offsets committed"),
)
REPLICAS: Final = Exploration(
    nodes_in_quorum(REPLICATION),
    Work,
    _troubles(*REPLICATED),
    [replicas_are_one, promises_are_kept, decisions_are_sound],
    [needless_fences, needless_unclean_elections, slow_stops, all_errors],
    features=elr,
    may_cut_power=lambda trial: power_of(trial, may_ever=has_elr(trial.seed)),
    lacks=lacks,
    rare=(
        *("active controller killed", "broker_fenced", "commits", "controller_active", "isr_changed", "moves begun", "moves taken back"),
        *("records deleted everywhere", "records not deleted: NOT_LEADER_OR_FOLLOWER", "records not deleted: REQUEST_TIMED_OUT"),
        *("records read", "replica_truncated", "power", "restart", "unclean_leader_elected"),
        "power lost while others are dead",
    ),
)
REPLICAS_IN_ZOOKEEPER: Final = replace(
    REPLICAS,
    nodes_of=nodes_in_zookeeper,
    draw=_troubles(*REPLICATED, *FAILING_DISKS, service=True),
    checkers=[replicas_are_one, promises_are_kept],
    event_checkers=[needless_fences, slow_stops, unexpected_errors, needless_deletions, shared_epochs],
    features=lambda seed: {},
    acts=lambda trial: first_of(Service(trial).act, FailingDisks(trial).act),
    may_cut_power=lambda trial: (
        lambda: False
    ),  # without eligible leader replicas, which have no place in Kafka's znodes, the first of an ISR leads
    rare=(
        *("replica_truncated", "isr_changed", "broker_gone", "active controller killed", "controller_resigns", "controller_deposed"),
        *("zookeeper_session_expired", "broker_fences_itself", "controller_write_failed", "broker_znode_deleted"),
        *("failed log directories", "replaced disks", "replicas_lost", "disk-full", "disk-fails", "lose-answers", "expire"),
    ),
    many=300,
)
RARE_AT_MOMENTS: Final = ("triggered", "kill", "power", "pause", "cut", "replica_truncated")
RARE_WHERE_IT_IS_HARD: Final = (
    *("disk-room", "disk-slow", "log_dir_full", "log_dir_has_room", "min.insync.replicas changed", "replica_truncated"),
    *("strangers", "topics deleted in use", "topics made", "written to a topic that goes"),
)
HARD: Final = replace(
    REPLICAS,
    work_of=HardWork,
    draw=_troubles(*REPLICATED, disks=disks_of),
    event_checkers=[needless_fences, needless_unclean_elections, slow_stops, errors_beside_full_disks],
    acts=lambda trial: Disks(trial).act,
    may_cut_power=lambda trial: power_of(trial, may_ever=has_elr(trial.seed) and not changes_values(trial.seed)),
    rare=(
        *RARE_WHERE_IT_IS_HARD,
        *("eligible leader replicas: 0", "eligible leader replicas: 1", "min.insync.replicas of all changed"),
    ),
)
TRANSACTIONS: Final = replace(
    REPLICAS,
    work_of=TransactionalWork,
    features=lambda seed: {**elr(seed), TRANSACTION_VERSION: level_of(seed)},
    around=watching,
    rare=(
        *("coordinators changed over a decision", "decisions for want of time", "producers fenced", "producers stalled"),
        *("replica_truncated", "transactions aborted", "transactions committed", "transactions lost to their time or a rival", "power"),
    ),
)
ACLS: Final = Exploration(nodes_with_acls, AclWork, _troubles(*ANY_NODES), [rights_are_enforced], around=known, rare=("judged", "changes"))
ALONE: Final = Exploration(
    lone_node,
    LoneWork,
    swarm,
    [lone_broker.promises_are_kept],
    roles={},
    work_ms=FAULTS_MS,
    rare=(
        *(kind.value for kind in SWARM),
        *("kill during pause", "pause during cut", "restart during pause", "power during disk-full", "death during start"),
        *("death during stop", "stop failed", "accepted, then reset", "data for a forgotten connection", "log_append_failed", "log_cut"),
        *("connecting ended with ConnectionRefusedError", "connecting ended with ConnectionResetError"),
        "connecting ended with CancelledError",
    ),
    many=1500,
)
STEPS: Final = replace(
    ALONE,
    nodes_of=partial(lone_node, segment_bytes=1024),
    work_of=partial(LoneWork, is_short=True),
    draw=at_steps,
    acts=failing_once,
    work_ms=1,
    rare=("kill", "power", "pause", "dark", "cut", "death during start"),
    many=200,
)
HARD_IN_ZOOKEEPER: Final = replace(
    REPLICAS_IN_ZOOKEEPER,
    work_of=partial(HardWork, is_in_quorum=False),
    draw=_troubles(*REPLICATED, disks=disks_of, service=True),
    event_checkers=[needless_fences, slow_stops, zookeeper_errors_beside_full_disks],
    acts=lambda trial: first_of(Service(trial).act, Disks(trial).act),
    rare=RARE_WHERE_IT_IS_HARD,
    many=60,
)
HARD_TRANSACTIONS: Final = replace(
    TRANSACTIONS,
    work_of=HardTransactionalWork,
    draw=_troubles(*REPLICATED, disks=disks_of),
    event_checkers=[needless_fences, needless_unclean_elections, slow_stops, errors_beside_full_disks],
    acts=lambda trial: Disks(trial).act,
    rare=(
        *(*TRANSACTIONS.rare, "disk-room", "disk-slow", "level 1 finalized", "level 2 finalized", "topics deleted in use"),
        "transactions moved",
    ),
)
MOVES: Final = replace(
    HARD_TRANSACTIONS,
    work_of=RestlessTransactionalWork,
    draw=_troubles(*REPLICATED, disks=disks_of_moved),
    rare=(*HARD_TRANSACTIONS.rare, "replicas moved"),
)
MOVES_IN_ZOOKEEPER: Final = replace(
    HARD_IN_ZOOKEEPER,
    work_of=partial(RestlessWork, is_in_quorum=False),
    draw=_troubles(*REPLICATED, disks=disks_of_moved, service=True),
    rare=(*RARE_WHERE_IT_IS_HARD, "replicas moved"),
)
EXPLORATIONS: Final[Mapping[tuple[str, str], Exploration]] = {
    ("alone", QUORUM): ALONE,
    ("steps", QUORUM): STEPS,
    ("crowd", QUORUM): CROWD,
    ("leaders", QUORUM): Exploration(
        moving_leaders.leading_node,
        moving_leaders.Leading,
        moving_leaders.leaders,
        [moving_leaders.promises_are_kept],
        [all_errors],
        acts=lambda trial: trial.work.act,  # type: ignore[union-attr]
        roles={},
        around=moving_leaders.slow_shards,
        work_ms=moving_leaders.WORK_MS,
        rare=("groups to 42", "groups to -1", "records to 42", "records to -1", "coordinators that load"),
        many=4,
    ),
    ("metadata", QUORUM): METADATA,
    ("following", QUORUM): FOLLOWING,
    ("replicated", QUORUM): REPLICAS,
    ("replicated", ZOOKEEPER): REPLICAS_IN_ZOOKEEPER,
    ("moments", QUORUM): replace(REPLICAS, draw=_troubles(at_a_moment), rare=RARE_AT_MOMENTS),
    ("moments", ZOOKEEPER): replace(REPLICAS_IN_ZOOKEEPER, draw=_troubles(at_a_moment), rare=("triggered", "kill", "pause", "cut")),
    ("hard", QUORUM): HARD,
    ("hard", ZOOKEEPER): HARD_IN_ZOOKEEPER,
    ("transactions", QUORUM): TRANSACTIONS,
    ("hard-transactions", QUORUM): HARD_TRANSACTIONS,
    ("moves", QUORUM): MOVES,
    ("moves", ZOOKEEPER): MOVES_IN_ZOOKEEPER,
    ("busy", QUORUM): replace(MOVES, is_busy=True),
    ("busy", ZOOKEEPER): replace(MOVES_IN_ZOOKEEPER, is_busy=True),
    ("crash-points", QUORUM): Exploration(
        nodes_in_quorum(REPLICATION),
        Applications,
        one_point,
        [replicas_are_one, transactions_are_whole],
        [needless_fences, all_errors],
        features=lambda seed: {TRANSACTION_VERSION: level_of_point(seed)},
        roles={victim: role(victim) for victim in VICTIMS},
        around=watching,
        work_ms=POINTS_MS,
        after_ms=AFTER_MS,
        rare=("triggered", "producers fenced", "transactions aborted", "transactions committed"),
        many=len(POINTS),
    ),
    ("acls", QUORUM): ACLS,
    ("acls", ZOOKEEPER): replace(
        ACLS,
        nodes_of=partial(nodes_with_acls, is_in_zookeeper=True),
        work_of=partial(AclWork, is_in_zookeeper=True),
        draw=_troubles(*ANY_NODES, service=True),
        checkers=[rights_are_enforced, znodes_have_them],
        acts=lambda trial: Service(trial).act,
    ),
    ("guarded-acls", QUORUM): replace(
        ACLS, nodes_of=partial(nodes_with_acls, is_guarded=True), work_of=partial(AclWork, is_guarded=True), lacks=guarded_content
    ),
    ("members", QUORUM): replace(
        REPLICAS, nodes_of=nodes_in_quorum(REPLICATION | SETTINGS), work_of=MembersAtWork, rare=("members fenced",)
    ),
    ("damage", QUORUM): replace(
        REPLICAS,
        draw=_troubles(*REPLICATED, is_damaged),
        event_checkers=[
            *(needless_fences, slow_stops),
            lambda events: all_errors([event for event in events if event["event"] not in DAMAGE_ERRORS]),
        ],
        acts=lambda trial: Damage(trial).act,
        rare=("damaged replicas", "damaged replicas replaced"),
    ),
}

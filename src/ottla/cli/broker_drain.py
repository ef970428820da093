"""``ottla broker drain``: lets other brokers lead what a broker leads, and moves its replicas, so that it can be stopped or removed."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
import msgspec

from ottla.cli.client_settings import client_settings
from ottla.cli.drain_plan import COLUMNS, DrainPlan, Step, undone
from ottla.cli.names import BROKERS
from ottla.cli.output import bootstrap_option, complain, end_of_plan, end_with, format_option, print_rows, yes_option
from ottla.cli.partition_states import min_isr_of
from ottla.cli.quorum_states import is_silent
from ottla.cli.throttles import HOW_TO_UNTHROTTLE, THROTTLE_HELP, rate_of, throttle
from ottla.cli.unseen_topics import held_by, unseen_topics
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.client.cluster_metadata import PartitionMetadata
    from ottla.sync import Admin

SECONDS_MAX: Final = 30
"""Brokers have heard of a new leader by then."""
LOOK_S: Final = 0.2


@click.command()
@click.argument("broker_id", type=int, metavar="ID", shell_complete=BROKERS)
@click.option("--replicas", "moves_replicas", is_flag=True, help="Move its replicas to other brokers, too; before `broker unregister`.")
@click.option(
    "--undo",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Give it back what a drain took; FILE has what `ottla broker drain ID --yes --format json` printed.",
)
@click.option("--throttle", "rate", callback=rate_of, metavar="RATE", help=f"With --replicas. {THROTTLE_HELP}")
@yes_option
@bootstrap_option
@format_option
def drain(broker_id: int, moves_replicas: bool, undo: Path | None, rate: int | None, yes: bool, bootstrap: str, output: str) -> None:
    """Let other brokers lead what broker ID leads.

    No client waits then when it is stopped.

    The broker is put last in the replicas of each partition where it is first, and replicas in sync are elected. It still follows, and
    does not lead again by itself: keep the JSON for --undo. Exit code 1 where a partition cannot go elsewhere, and where the broker must
    not be stopped: too few replicas in sync would be left (min.insync.replicas), or no majority of the controllers; and where it may have
    topics that you may not describe.

    \b
    ottla broker drain 2 --yes --format json > drained.json
    ottla broker drain 2 --undo drained.json --yes
    """
    from ottla.sync import Admin

    if undo is not None and moves_replicas:
        raise click.UsageError("--undo has its replicas from the file: leave --replicas out")
    if rate is not None and not moves_replicas:
        raise click.UsageError("--throttle is for --replicas: another leader copies nothing")
    with Admin(bootstrap, **client_settings()) as admin:
        partitions = _partitions(admin)
        majority, is_in_zookeeper, is_voter = (None, False, False) if undo is not None else _majority_problem(admin, broker_id)
        if undo is not None:
            steps, nothing = undone(_items(undo), partitions), "nothing is as that drain left it"
        else:
            plan = _plan(admin, broker_id, partitions)
            steps = plan.replicas() if moves_replicas else plan.leaders()
            nothing = f"broker {broker_id} has no replica" if moves_replicas else f"broker {broker_id} leads nothing, and nowhere first"
        unseen = None if undo is not None else _unseen_problem(admin, broker_id, partitions)
        if not steps:
            print_rows(output, "broker drain", COLUMNS, [])
            if unseen is None:
                complain(nothing)
            _end_with(majority, unseen)
            return
        if not yes:
            print_rows(output, "broker drain plan", COLUMNS, [step.row for step in steps])
            for problem in filter(None, (majority, unseen)):
                complain(problem)
            end_of_plan("nothing was changed")
        if rate is not None:
            throttle(admin, rate, {step.key: step.replicas_afterwards for step in steps}, {step.key: step.replicas for step in steps})
            complain(HOW_TO_UNTHROTTLE)
        done = _carry_out(admin, steps)
        print_rows(output, "broker drain", COLUMNS, [step.row for step in done])
        needed = sum(step.is_needed for step in done)
        problems = sum(step.problem is not None for step in done) - needed
        left = 0 if undo is not None else _led_at_the_end(admin, broker_id, [step.key for step in done if step.elects])
    if problems or left or needed:
        _fail(broker_id, problems, left, needed, [majority, unseen])
    _end_with(majority, unseen)
    if moves_replicas:
        unregister = "" if is_in_zookeeper else f" and `ottla broker unregister {broker_id} --yes`"
        complain(f"`ottla partition moves` shows what is on its way; then stop broker {broker_id}{unregister}")
        if is_voter:
            voter = "a controller, too, and stays one of controller.quorum.voters"
            complain(
                f"node {broker_id} is {voter}: stopped for good it leaves one fewer to spare (docs/operating.md, Replace a lost controller)"
            )
    elif undo is None:
        complain(f"broker {broker_id} leads nothing, and can be stopped")


def _partitions(admin: Admin) -> dict[TopicPartition, PartitionMetadata]:
    topics = admin.list_topics()
    return {TopicPartition(name, index): found for name, topic in topics.items() for index, found in topic.partitions.items()}


def _plan(admin: Admin, broker_id: int, partitions: dict[TopicPartition, PartitionMetadata]) -> DrainPlan:
    """Returns the plan. KafkaError for a broker that is not registered, and has no replica either."""
    cluster = admin.describe_cluster(include_fenced=True)
    racks = {node.node_id: node.rack for node in sorted(cluster.nodes, key=lambda node: node.node_id)}
    if broker_id not in racks and not any(broker_id in found.replicas for found in partitions.values()):
        known = ", ".join(map(str, racks))
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered; brokers {known} are")
    serving = {node: rack for node, rack in racks.items() if node not in cluster.fenced and node != broker_id}
    return DrainPlan(broker_id, partitions, serving, admin.list_partition_reassignments(), _min_isrs(admin, partitions))


def _min_isrs(admin: Admin, partitions: Collection[TopicPartition]) -> dict[str, int]:
    """Returns ``min.insync.replicas`` of the topics; nothing where the user may not see it, which standard error says."""
    try:
        return min_isr_of(admin, {key.topic for key in partitions})
    except KafkaError as error:
        complain(f"min.insync.replicas was not checked: {error}")
        return {}


def _majority_problem(admin: Admin, broker_id: int) -> tuple[str | None, bool, bool]:
    """Returns what becomes of the controllers when the node is stopped, in words, and two facts.

    These are whether the cluster is in ZooKeeper mode, and whether the node is a controller of its quorum. The first is None where a
    majority is left, or not concerned.
    """
    try:
        quorum, fenced = admin.describe_quorum(), admin.describe_cluster(include_fenced=True).fenced
    except KafkaError as error:
        is_in_zookeeper = error.code == ErrorCode.UNSUPPORTED_VERSION
        if not is_in_zookeeper:
            complain(f"whether a majority of the controllers is left was not checked: {error}")
        return None, is_in_zookeeper, False
    voters = [voter.node_id for voter in quorum.voters]
    left = sum(voter.node_id != broker_id and not is_silent(quorum, voter, fenced) for voter in quorum.voters)
    needed = len(voters) // 2 + 1
    if broker_id not in voters or left >= needed:
        return None, False, broker_id in voters
    problem = (
        f"do not stop node {broker_id} yet: it is a controller; stopping it leaves {left} of {len(voters)}, of which {needed} must run; "
        "nothing could be changed, and no leader elected"
    )
    return problem, False, True


def _unseen_problem(admin: Admin, broker_id: int, partitions: Collection[TopicPartition]) -> str | None:
    """Returns what is not known of the broker, since the user may not describe all topics; None where its directories have no other."""
    held = None
    with contextlib.suppress(OttlaError):  # where it does not answer, or the user may not describe the cluster, nothing is counted
        held = held_by(admin.describe_log_dirs([broker_id])[broker_id])
    unseen = unseen_topics(admin, {key.topic for key in partitions}, held or ())
    if unseen is None or (held is not None and not unseen.partitions):
        return None
    return f"what broker {broker_id} leads or has of others is not known: {unseen.text}"


def _end_with(*problems: str | None) -> None:
    """Ends with exit code 1 where there are problems, each of which is printed."""
    end_with("\nottla: ".join(filter(None, problems)) or None)


def _items(path: Path) -> Sequence[dict[str, Any]]:
    try:
        items: Sequence[dict[str, Any]] = msgspec.json.decode(path.read_bytes())["items"]
        if all(set(COLUMNS) <= set(item) for item in items):
            return items
    except (msgspec.DecodeError, KeyError, TypeError):
        pass
    raise click.UsageError(f"{path} is not what `ottla broker drain ID --yes --format json` prints")


def _carry_out(admin: Admin, steps: Sequence[Step]) -> list[Step]:
    """Returns the steps as they went: what failed has a problem."""
    moved = {step.key: step.replicas_afterwards for step in steps if list(step.replicas) != list(step.replicas_afterwards)}
    failed = {key: error for key, error in admin.alter_partition_reassignments(moved).items() if error is not None} if moved else {}
    elected = [step.key for step in steps if step.elects and step.key not in failed]
    for key, error in admin.elect_leaders(elected).items() if elected else ():
        if error is not None and error.code != ErrorCode.ELECTION_NOT_NEEDED:
            failed[key] = error
    return [step if step.key not in failed else step.failed(str(failed[step.key])) for step in steps]


def _led_at_the_end(admin: Admin, broker_id: int, keys: Sequence[TopicPartition]) -> int:
    """Returns how many of them the broker still leads once every broker should have heard of the elections."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        partitions = _partitions(admin)
        left = sum(key in partitions and partitions[key].leader == broker_id for key in keys)
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(LOOK_S)


def _fail(broker_id: int, problems: int, left: int, needed: int, others: Sequence[str | None]) -> NoReturn:
    if problems:
        complain(f"{problems} partition{'s'[: problems != 1]} of broker {broker_id} cannot go elsewhere: see the column PROBLEM")
    if left:
        complain(f"broker {broker_id} still leads {left} partition{'s'[: left != 1]}; `ottla topic describe` shows who could lead them")
    if needed:
        would = f"{needed} partition{'s'[: needed != 1]} would have too few replicas in sync, and refuse acks=all"
        complain(f"do not stop broker {broker_id} yet: {would}; `ottla cluster health` says which brokers to start")
    _end_with(*others)
    sys.exit(1)

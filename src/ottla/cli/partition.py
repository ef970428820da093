"""``ottla partition``: elect leaders, move replicas, show moves."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.config import once
from ottla.cli.earlier_replicas import undone
from ottla.cli.moves import moves
from ottla.cli.named_topics import check_partitions, chosen, found_topic
from ottla.cli.output import bootstrap_option, complain, end_of_plan, end_with, format_option, print_rows, with_way_out, yes_option
from ottla.cli.partition_states import moves_known
from ottla.cli.throttles import HOW_TO_UNTHROTTLE, THROTTLE_HELP, rate_of, throttle
from ottla.cli.unseen_topics import unseen_text
from ottla.cli.unthrottle import unthrottle
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Reassignment
    from ottla.client.admin.brokers import ClusterDescription
    from ottla.client.cluster_metadata import TopicMetadata
    from ottla.sync import Admin

_PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]+):(\d+)")
_MOVE: Final = re.compile(r"([a-zA-Z0-9._-]+):(\d+)=(\d+(?:,\d+)*)")


@click.group()
def partition() -> None:
    """Elect leaders of partitions, and move their replicas."""


partition.add_command(moves)
partition.add_command(unthrottle)


@partition.command()
@click.argument("partitions", nargs=-1, metavar="[TOPIC:PARTITION]...")
@click.option("--unclean", is_flag=True, help="Let a replica lead that is not in sync, where none is: records may be lost.")
@yes_option
@bootstrap_option
@format_option
def elect(partitions: tuple[str, ...], unclean: bool, yes: bool, bootstrap: str, output: str) -> None:
    """Let the preferred replica lead: of these partitions, or of all."""
    from ottla.sync import Admin

    wanted = [_partition(text) for text in partitions] or None
    if unclean and wanted is None:
        raise click.UsageError("--unclean needs partitions: it may lose records of each")
    with Admin(bootstrap, **client_settings()) as admin:
        if not yes:
            rows = _elections(admin, wanted, unclean)
            print_rows(output, "partition plan", ("topic", "partition", "leader", "replicas", "in_sync"), rows)
            if rows:
                kind = "a leader, in sync or not," if unclean else "the first replica as leader"
                end_of_plan(f"would elect {kind} of {len(rows)} partition{'s'[: len(rows) != 1]}")
            end_with(None if wanted is not None else unseen_text(admin, admin.list_topics()))
            complain("none is without a leader" if unclean else "each is led by its first replica: there is nothing to elect")
            return
        results = admin.elect_leaders(wanted, unclean=unclean)
    _report(output, "partition elect", results, "elected")


@partition.command()
@click.argument("wanted", nargs=-1, metavar="[TOPIC:PARTITION=ID,ID...]...")
@click.option(
    "--topics",
    metavar="TOPIC,TOPIC",
    help="Make a plan for all partitions of these topics, or of those that match (^orders), which spreads them over --brokers.",
)
@click.option("--brokers", metavar="ID,ID", help="The brokers that get the replicas of --topics; racks count.")
@click.option(
    "--undo",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Move them back; FILE has what `ottla partition reassign ... --yes --json` printed.",
)
@click.option("--throttle", "rate", callback=rate_of, metavar="RATE", help=THROTTLE_HELP)
@yes_option
@bootstrap_option
@format_option
def reassign(
    wanted: tuple[str, ...],
    topics: str | None,
    brokers: str | None,
    undo: Path | None,
    rate: int | None,
    yes: bool,
    bootstrap: str,
    output: str,
) -> None:
    """Move the replicas of partitions to these brokers.

    The first of them is preferred as leader. With --topics and --brokers a plan is made, as kafka-reassign-partitions --generate does, with
    as many replicas as each topic has; --yes applies the plan that is shown. REPLICAS are what each had before: keep the JSON for --undo.

    \b
    ottla partition reassign orders:0=1,2,3 orders:1=2,3,1 --yes
    ottla partition reassign --topics orders,payments --brokers 1,2,3 --throttle 50MB --yes --json > moved.json
    ottla partition moves
    ottla partition unthrottle --wait --yes
    ottla partition reassign --undo moved.json --yes
    """
    from ottla.sync import Admin

    if (topics is None) != (brokers is None) or sum((bool(wanted), topics is not None, undo is not None)) != 1:
        raise click.UsageError("give moves, as in orders:0=1,2,3, or both --topics and --brokers, or --undo alone")
    if brokers is not None and re.fullmatch(r"\d+(,\d+)*", brokers) is None:
        raise click.UsageError(f"--brokers {brokers}: expected ids of brokers, as in 1,2,3")
    moves = [_move(text) for text in wanted]
    once(((f"{key.topic}:{key.partition}", ids) for key, ids in moves), "a partition is moved")
    replicas = dict(moves)
    with Admin(bootstrap, **client_settings()) as admin:
        cluster, there = admin.describe_cluster(include_fenced=True), admin.list_topics()
        moving = _moving(admin)
        if topics is not None and brokers is not None:
            names = chosen(topics.split(","), there)
            there |= {name: found_topic(admin, name, there) for name in names}
            there |= {name: _settled(there[name], moving) for name in names}
            replicas = _spread(cluster, {name: there[name] for name in names}, sorted({int(text) for text in brokers.split(",")}))
        if undo is not None:
            replicas = undone(undo, there, moving)
            if not replicas:
                complain("nothing is as that command left it: there is nothing to move back")
        current = {key: _settled(there[key.topic], moving).partitions[key.partition].replicas for key in replicas if _is_there(key, there)}
        for key in sorted(key for key in replicas if key in moving):
            ways = f"wait for it (`ottla partition moves`), or take it back first (`ottla partition cancel {key.topic}:{key.partition}`)"
            complain(f"warning: {key.topic}:{key.partition} is being moved, and this plan takes the place of that move: {ways}")
        for key, ids in sorted(replicas.items()):
            if key in current and len(ids) != len(current[key]):
                complain(f"warning: {key.topic}:{key.partition} has {len(current[key])} replicas now, and {len(ids)} afterwards")
        for node in sorted(cluster.fenced & {each for ids in replicas.values() for each in ids}):
            complain(f"warning: broker {node} does not serve: moves to it wait until it does")
        if not yes:
            _check_plan(cluster, {key.topic: found_topic(admin, key.topic, there) for key in sorted(replicas)}, replicas)
            rows = [(key.topic, key.partition, current[key], ids) for key, ids in sorted(replicas.items())]
            print_rows(output, "partition plan", ("topic", "partition", "replicas", "replicas_afterwards"), rows)
            end_of_plan("nothing was changed")
        if rate is not None:
            throttle(admin, rate, replicas, current)
            complain(HOW_TO_UNTHROTTLE)
        results = admin.alter_partition_reassignments(replicas) if replicas else {}
    done = [(key.topic, key.partition, current.get(key), replicas[key], *_result(error, "begun")) for key, error in sorted(results.items())]
    print_rows(output, "partition reassign", ("topic", "partition", "replicas", "replicas_afterwards", "result", "error"), done)
    if any(results.values()):
        sys.exit(1)


@partition.command()
@click.argument("partitions", nargs=-1, metavar="[TOPIC:PARTITION]...")
@click.option("--all", "is_all", is_flag=True, help="Take back every move that is under way.")
@yes_option
@bootstrap_option
@format_option
def cancel(partitions: tuple[str, ...], is_all: bool, yes: bool, bootstrap: str, output: str) -> None:
    """Take back moves that are under way: of these, or all."""
    from ottla.sync import Admin

    if is_all == bool(partitions):
        raise click.UsageError("give partitions, as in orders:0, or --all for every move that is under way (`ottla partition moves`)")
    wanted = [_partition(text) for text in partitions]
    if not yes and not is_all:
        end_of_plan(f"would take back the moves of {', '.join(partitions)}")
    with Admin(bootstrap, **client_settings()) as admin:
        if is_all:
            moves = admin.list_partition_reassignments()
            if not moves:
                _report(output, "partition cancel", {}, "taken back")
                complain("no move is under way")
                return
            if not yes:
                rows = [(key.topic, key.partition, [*move.adding], [*move.removing]) for key, move in sorted(moves.items())]
                print_rows(output, "partition plan", ("topic", "partition", "adding", "removing"), rows)
                end_of_plan(f"would take back {len(rows)} move{'s'[: len(rows) != 1]}: what is added is dropped, what is removed stays")
            wanted = sorted(moves)
        results = admin.alter_partition_reassignments(dict.fromkeys(wanted))
        if is_all:
            results = {key: error for key, error in results.items() if error is None or error.code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    _report(output, "partition cancel", results, "taken back")


def _elections(
    admin: Admin, wanted: Sequence[TopicPartition] | None, unclean: bool
) -> list[tuple[str, int, int | None, list[int], list[int]]]:
    """Returns what of these partitions, or of all, has no leader; unless unclean, also what the first replica does not lead."""
    topics = admin.list_topics()
    if wanted is None:
        wanted = [TopicPartition(name, index) for name, topic in topics.items() for index in topic.partitions]
    rows = []
    for key in sorted(wanted):
        there = found_topic(admin, key.topic, topics).partitions
        check_partitions(key.topic, [key.partition], there)
        found = there[key.partition]
        if found.leader < 0 or (not unclean and found.leader != found.replicas[0]):
            rows.append((key.topic, key.partition, found.leader if found.leader >= 0 else None, found.replicas, found.in_sync))
    return rows


def _spread(cluster: ClusterDescription, topics: Mapping[str, TopicMetadata], ids: Sequence[int]) -> dict[TopicPartition, Sequence[int]]:
    """Returns the replicas of all partitions of the topics, spread over these brokers and their racks; the same for the same topics."""
    from ottla.controller.placement import assign_replicas

    racks = {node.node_id: node.rack for node in cluster.nodes}
    absent = [node for node in ids if node not in racks]
    if absent:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is no broker {absent[0]}; `ottla broker list` shows the brokers")
    plan: dict[TopicPartition, Sequence[int]] = {}
    for turn, topic in enumerate(sorted(topics)):  # small topics would all be led by the first broker
        partitions = topics[topic].partitions
        factor = len(partitions[min(partitions)].replicas)
        if factor > len(ids):
            some = f"topic {topic!r} has {factor} replicas, and --brokers names {len(ids)}: name more brokers"
            text = (
                f"{some}, or give it fewer replicas partition by partition: `ottla partition reassign {topic}:0={','.join(map(str, ids))}`"
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        spread_over = {node: racks[node] for node in ids}
        rows = assign_replicas(spread_over, partition_count=len(partitions), replication_factor=factor, start=turn)
        plan |= {TopicPartition(topic, index): rows[index] for index in partitions}
    return plan


def _moving(admin: Admin) -> Mapping[TopicPartition, Reassignment]:
    """Returns the moves that are under way; none where no controller answers, or the user may not see them."""
    try:
        return moves_known(admin)[0]
    except KafkaError as error:
        if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return {}


def _settled(topic: TopicMetadata, moving: Mapping[TopicPartition, Reassignment]) -> TopicMetadata:
    """Returns the topic without the replicas that moves add: those are not counted, and a move may be taken back."""
    partitions = dict(topic.partitions)
    for index, found in topic.partitions.items():
        move = moving.get(TopicPartition(topic.name, index))
        if move is not None:
            partitions[index] = replace(found, replicas=[node for node in found.replicas if node not in move.adding])
    return replace(topic, partitions=partitions)


def _is_there(key: TopicPartition, there: Mapping[str, TopicMetadata]) -> bool:
    return key.topic in there and key.partition in there[key.topic].partitions


def _check_plan(cluster: ClusterDescription, there: Mapping[str, TopicMetadata], wanted: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Raises KafkaError when a partition or a broker of the plan does not exist; with --yes the controller says so of each partition."""
    for key in sorted(wanted):
        check_partitions(key.topic, [key.partition], there[key.topic].partitions)
    brokers = {node.node_id for node in cluster.nodes}
    for key, ids in sorted(wanted.items()):
        for broker_id in ids:
            if broker_id not in brokers:
                text = f"{key.topic}:{key.partition}: there is no broker {broker_id}; `ottla broker list` shows the brokers"
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def _partition(text: str) -> TopicPartition:
    found = _PARTITION.fullmatch(text)
    if found is None:
        raise click.UsageError(f"{text!r}: expected TOPIC:PARTITION, as in orders:0")
    return TopicPartition(found[1], int(found[2]))


def _move(text: str) -> tuple[TopicPartition, Sequence[int]]:
    found = _MOVE.fullmatch(text)
    if found is None:
        raise click.UsageError(f"{text!r}: expected TOPIC:PARTITION=ID,ID..., as in orders:0=1,2,3")
    ids = [int(part) for part in found[3].split(",")]
    if len(set(ids)) != len(ids):
        raise click.UsageError(f"{text!r} names a broker twice")
    return TopicPartition(found[1], int(found[2])), ids


def _result(error: KafkaError | None, done: str) -> tuple[str, str | None]:
    return (done, None) if error is None else ("failed", with_way_out(error))


def _report(output: str, command: str, results: Mapping[TopicPartition, KafkaError | None], done: str) -> None:
    rows = [(key.topic, key.partition, *_result(error, done)) for key, error in sorted(results.items())]
    print_rows(output, command, ("topic", "partition", "result", "error"), rows)
    if any(results.values()):
        sys.exit(1)

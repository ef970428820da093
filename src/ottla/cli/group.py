"""``ottla group``: list, describe (with lag), delete; their offsets are in ``group_offsets.py``."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.group_offsets import COMMANDS
from ottla.cli.listed_only import note_what_is_seen
from ottla.cli.missing_rights import GROUP
from ottla.cli.names import GROUPS
from ottla.cli.output import bootstrap_option, end_of_plan, format_option, names_of_plan, print_json, print_rows, with_way_out, yes_option
from ottla.cli.unanswered import COORDINATOR_MS, SILENT, Leaders, Unanswered, internal_partitions, known_offsets, leaderless, of_each_broker
from ottla.errors import ErrorCode, KafkaError
from ottla.types import LATEST_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import GroupDescription, GroupListing
    from ottla.client.cluster_metadata import PartitionMetadata
    from ottla.sync import Admin

COLUMNS = ("topic", "partition", "committed", "end_offset", "lag", "pending", "member")
MEMBER_COLUMNS = ("group", "member", "instance", "epoch", "client", "host", "assigned", "target")
STATE_COLUMNS = ("group", "state", "assignor", "members", "topics", "lag", "lag_unknown")


@click.group()
def group() -> None:
    """Manage consumer groups."""


for command in COMMANDS:
    group.add_command(command)


@group.command("list")
@bootstrap_option
@format_option
def list_groups(bootstrap: str, output: str) -> None:
    """List every group, with its state."""
    from ottla.sync import Admin

    unanswered = Unanswered()
    with Admin(bootstrap, **{"default_api_timeout_ms": COORDINATOR_MS, **client_settings()}) as admin:
        groups = _listed(admin, unanswered)
    rows = [(found.group_id, found.state, found.protocol_type, found.type) for found in groups]
    print_rows(output, "group list", ("group", "state", "protocol_type", "type"), rows)
    unanswered.end()


def _listed(admin: Admin, unanswered: Unanswered) -> list[GroupListing]:
    """Returns the groups of the brokers that answer."""
    groups = of_each_broker(admin, unanswered, "the groups that broker {} coordinates", lambda node_id: admin.list_groups([node_id]))
    unanswered.note_leaderless(admin, leaderless(internal_partitions(admin)), "the groups")
    note_what_is_seen(admin, GROUP)
    return groups


@group.command()
@click.argument("group_ids", nargs=-1, metavar="[GROUP]...", shell_complete=GROUPS)
@click.option("--all", "everything", is_flag=True, help="Describe every group.")
@click.option("--state", "only_state", is_flag=True, help="One line for each group: state, strategy, members, lag.")
@click.option("--members", "only_members", is_flag=True, help="One line for each member: what it has, and what it is to have.")
@bootstrap_option
@format_option
def describe(group_ids: tuple[str, ...], everything: bool, only_state: bool, only_members: bool, bootstrap: str, output: str) -> None:
    """Describe groups: members, committed offsets and lag.

    "pending" says where an open transaction has newer offsets. "-" is what is not known: the lag where nothing is committed. The lag of a
    group is without those partitions; "lag unknown" counts them, but for empty ones.
    """
    from ottla.sync import Admin

    if everything == bool(group_ids):
        raise click.UsageError("name groups, or give --all")
    if only_state and only_members:
        raise click.UsageError("--state and --members exclude each other")
    unanswered = Unanswered()
    with Admin(bootstrap, **{"default_api_timeout_ms": COORDINATOR_MS, **client_settings()}) as admin:
        wanted = sorted(found.group_id for found in _listed(admin, unanswered)) if everything else group_ids
        partitions = internal_partitions(admin)
        documents = [found for group_id in wanted if (found := _known(admin, group_id, partitions, unanswered)) is not None]
    _print_described(documents, output, only_state=only_state, only_members=only_members)
    unanswered.end()


def _print_described(documents: list[dict[str, Any]], output: str, *, only_state: bool, only_members: bool) -> None:
    if only_state:
        rows = [
            (
                found["group"],
                found["state"],
                found["protocol"] or None,
                len(found["members"]),
                _topics_of(found),
                found["lag"],
                found["lag_unknown"],
            )
            for found in documents
        ]
        print_rows(output, "group describe", STATE_COLUMNS, rows)
        return
    if only_members:
        lines = [
            (found["group"], *(member[name] for name in ("member_id", "instance_id", "epoch", "client_id", "host", "assigned", "target")))
            for found in documents
            for member in found["members"]
        ]
        print_rows(output, "group describe", MEMBER_COLUMNS, lines)
        return
    if output == "json":
        print_json("group describe", documents)
        return
    for index, found in enumerate(documents):
        if index:
            click.echo()
        head = f"group {found['group']}  type {found['type']}  state {found['state']}  protocol {found['protocol'] or '-'}"
        if found["epoch"] is not None:
            head += f"  epoch {found['epoch']}  target {found['target_epoch']}"
        lag = "-" if found["lag"] is None else f"{found['lag']}"
        if found["lag"] is not None and found["lag_unknown"]:
            lag += f", and unknown of {found['lag_unknown']} more partition{'s'[: found['lag_unknown'] != 1]}"
        click.echo(f"{head}  members {len(found['members'])}  lag {lag}")
        print_rows(output, "group describe", COLUMNS, [tuple(row.values()) for row in found["offsets"]])


def _topics_of(found: dict[str, Any]) -> list[str]:
    return sorted({row["topic"] for row in found["offsets"]})


def _ends(admin: Admin, topics: Collection[str], unanswered: Unanswered) -> dict[TopicPartition, int | None]:
    """Returns the end of each partition of the topics; None where its leader does not answer, which alone knows it."""
    partitions: dict[TopicPartition, PartitionMetadata] = {}
    for topic in topics:
        with contextlib.suppress(KafkaError):
            partitions |= {TopicPartition(topic, index): found for index, found in admin.describe_topic(topic).partitions.items()}
    [known] = known_offsets(admin, partitions, [LATEST_TIMESTAMP], unanswered)
    unanswered.note_leaderless(admin, leaderless(partitions), "the offsets")
    return dict.fromkeys(partitions, None) | known


def _known(admin: Admin, group_id: str, partitions: Leaders, unanswered: Unanswered) -> dict[str, Any] | None:
    """Returns the group, as an item of the JSON document; None where its coordinator does not answer, which is said."""
    from ottla.broker.coordinators.runtime import partition_of

    coordinated = {key: found for key, found in partitions.items() if key.partition == partition_of(group_id, len(partitions))}
    if leaderless(coordinated):  # a client would go on asking for a minute who coordinates it
        unanswered.note_leaderless(admin, coordinated, f"group {group_id!r} and others")
        return None
    try:
        return _described(admin, group_id, unanswered)
    except KafkaError as error:
        if error.code not in SILENT:
            raise
        unanswered.say(f"group {group_id!r} is not shown: {with_way_out(error)}")
        return None


def _existing(admin: Admin, group_id: str) -> GroupDescription:
    """Returns the group. GROUP_ID_NOT_FOUND where there is none."""
    found = admin.describe_group(group_id)
    if found.state == "Dead":
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist; `ottla group list` shows those that do")
    return found


def _described(admin: Admin, group_id: str, unanswered: Unanswered) -> dict[str, Any]:
    """Returns one group, as an item of the JSON document."""
    found = _existing(admin, group_id)
    committed = admin.committed_offsets(group_id)
    pending = admin.pending_offsets(group_id)
    owners = {partition: member.member_id for member in found.members for partition in member.assignment}
    keys = sorted(set(committed) | pending | set(owners))
    ends = _ends(admin, {key.topic for key in keys}, unanswered)
    rows = []
    for key in keys:
        offset = committed[key].offset if key in committed else None
        end = ends.get(key)
        lag = None if offset is None or end is None else end - offset
        rows.append((key.topic, key.partition, offset, end, lag, key in pending, owners.get(key)))
    with_lag = {TopicPartition(*row[:2]) for row in rows if row[4] is not None}
    lags = [row[4] for row in rows if row[4] is not None]
    members = [
        {
            "member_id": member.member_id,
            "instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "host": member.host,
            "epoch": member.epoch,
            "assigned": [str(partition) for partition in member.assignment],
            "target": [str(partition) for partition in member.target] if member.epoch is not None else None,
        }
        for member in found.members
    ]
    return {
        "group": group_id,
        "type": found.type,
        "state": found.state,
        "epoch": found.epoch,
        "target_epoch": found.target_epoch,
        "protocol": found.assignor,
        "lag": sum(lags) if lags else None,
        "lag_unknown": sum(ends.get(key) != 0 for key in {*keys, *ends} - with_lag),
        "members": members,
        "offsets": [dict(zip(COLUMNS, row, strict=True)) for row in rows],
    }


@group.command()
@click.argument("group_ids", nargs=-1, required=True, shell_complete=GROUPS)
@yes_option
@bootstrap_option
@format_option
def delete(group_ids: tuple[str, ...], yes: bool, bootstrap: str, output: str) -> None:
    """Delete empty groups and their offsets."""
    from ottla.cli.topic import report
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        if not yes:
            for group_id in group_ids:
                if _existing(admin, group_id).members:
                    raise KafkaError(ErrorCode.NON_EMPTY_GROUP, _has_members(group_id))
            end_of_plan(f"would delete {names_of_plan(group_ids, 'groups')} with their offsets")
        results = admin.delete_groups(group_ids)
    for group_id, error in results.items():
        if error is not None and error.code == ErrorCode.NON_EMPTY_GROUP:
            results[group_id] = KafkaError(error.code, _has_members(group_id))
    report(output, "group delete", results, "deleted")


def _has_members(group_id: str) -> str:
    return f"stop its members first: `ottla group describe {group_id}` lists them"

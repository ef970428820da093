"""``ottla group``: list, describe (with lag), seek, delete."""

from __future__ import annotations

import sys
import time

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.output import bootstrap_option, format_option, print_json, print_rows, wrong_call, yes_option
from ottla.errors import ErrorCode, KafkaError
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition


@click.group()
def group() -> None:
    """Manage consumer groups."""


@group.command("list")
@bootstrap_option
@format_option
def list_groups(bootstrap: str, output: str) -> None:
    """List every group, with its state."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        groups = admin.list_groups()
    rows = [(found.group_id, found.state, found.protocol_type, found.type) for found in groups]
    print_rows(output, "group list", ("group", "state", "protocol_type", "type"), rows)


@group.command()
@click.argument("group_id")
@bootstrap_option
@format_option
def describe(group_id: str, bootstrap: str, output: str) -> None:
    """Describe a group: members, committed offsets and lag; "pending" where an open transaction has newer offsets."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        found = admin.describe_group(group_id)
        if found.state == "Dead":
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist; `ottla group list` shows those that do")
        committed = admin.committed_offsets(group_id)
        pending = admin.pending_offsets(group_id)
        owners = {partition: member.member_id for member in found.members for partition in member.assignment}
        keys = sorted(set(committed) | pending | set(owners))
        ends = admin.offsets_for_times(dict.fromkeys(keys, LATEST_TIMESTAMP)) if keys else {}
    columns = ("topic", "partition", "committed", "end_offset", "lag", "pending", "member")
    rows = []
    for key in keys:
        offset = committed[key].offset if key in committed else None
        end = ends[key][0]
        lag = None if offset is None else end - offset
        rows.append((key.topic, key.partition, offset, end, lag, key in pending, owners.get(key)))
    if output == "json":
        members = [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
            }
            for member in found.members
        ]
        items = {
            "group": group_id,
            "state": found.state,
            "protocol": found.assignor,
            "members": members,
            "offsets": [dict(zip(columns, row, strict=True)) for row in rows],
        }
        print_json("group describe", items)
        return
    total = sum(row[4] or 0 for row in rows)
    click.echo(f"group {group_id}  state {found.state}  protocol {found.assignor or '-'}  members {len(found.members)}  lag {total}")
    print_rows(output, "group describe", columns, rows)


@group.command()
@click.argument("group_id")
@click.option("--to", "target", required=True, help="start, end, an offset, or @TIME (@-1h, @2024-05-01).")
@click.option("--topic", "topics", multiple=True, help="Only these topics; without it, every topic with committed offsets.")
@yes_option
@bootstrap_option
@format_option
def seek(group_id: str, target: str, topics: tuple[str, ...], yes: bool, bootstrap: str, output: str) -> None:
    """Set an empty group's offsets. Prints the plan; --yes applies it."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        committed = admin.committed_offsets(group_id)
        keys = [key for key in committed if not topics or key.topic in topics]
        for topic in topics:
            found = admin.describe_topic(topic)
            keys += [key for index in found.partitions if (key := TopicPartition(topic, index)) not in keys]
        if not keys:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} has committed nothing; name topics with --topic")
        plan = _plan(admin, sorted(keys), target)
        rows = [(key.topic, key.partition, committed[key].offset if key in committed else None, plan[key]) for key in sorted(keys)]
        print_rows(output, "group seek", ("topic", "partition", "from", "to"), rows)
        if not yes:
            click.echo("nothing was changed; add --yes to apply it", err=True)
            return
        admin.set_offsets(group_id, plan)


def _plan(admin: object, keys: list[TopicPartition], target: str) -> dict[TopicPartition, int]:
    from ottla.cli.offsets import Base, parse_offsets
    from ottla.sync import Admin

    assert isinstance(admin, Admin)
    with wrong_call():
        place = parse_offsets(target, time.time_ns() // 1_000_000).start
    first = {key: found[0] for key, found in admin.offsets_for_times(dict.fromkeys(keys, EARLIEST_TIMESTAMP)).items()}
    last = {key: found[0] for key, found in admin.offsets_for_times(dict.fromkeys(keys, LATEST_TIMESTAMP)).items()}
    if place.base is Base.TIME:
        found = admin.offsets_for_times(dict.fromkeys(keys, place.value))
        return {key: last[key] if found[key][0] < 0 else found[key][0] for key in keys}
    if place.base is Base.OFFSET:
        return {key: max(first[key], min(place.value, last[key])) for key in keys}
    base = first if place.base is Base.START else last
    return {key: max(first[key], min(base[key] + place.value, last[key])) for key in keys}


@group.command()
@click.argument("group_ids", nargs=-1, required=True)
@yes_option
@bootstrap_option
@format_option
def delete(group_ids: tuple[str, ...], yes: bool, bootstrap: str, output: str) -> None:
    """Delete empty groups and their offsets."""
    from ottla.cli.topic import report
    from ottla.sync import Admin

    if not yes:
        click.echo(f"would delete {', '.join(group_ids)} with their offsets; add --yes to apply it", err=True)
        sys.exit(1)
    with Admin(bootstrap, **client_settings()) as admin:
        report(output, "group delete", admin.delete_groups(group_ids), "deleted")

"""``ottla dump-log FILE...``: what is in a log's files, damage included."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec

from ottla.cli.log_records import Kind, described, kind_of, line_of
from ottla.cli.output import format_option, print_json


@click.command("dump-log")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--records", "with_records", is_flag=True, help="Show the records too.")
@click.option("--show-secrets", is_flag=True, help="Show credentials and passwords in records of the metadata log.")
@format_option
def dump_log(files: tuple[str, ...], with_records: bool, show_secrets: bool, output: str) -> None:
    """Show the batches of .log files and the entries of .index, .timeindex and .txnindex files.

    With --records, a record is a line: text, or base64 where it is named so. Records of __cluster_metadata, __consumer_offsets and
    __transaction_state are decoded.
    """
    from ottla.storage.dump import BatchDump, Damage

    damaged = False
    documents = []
    for path in files:
        kind = kind_of(path)
        if output == "text":
            click.echo(path)
        entries = []
        for entry in _entries(path, with_records):
            damaged = damaged or isinstance(entry, Damage)
            item, records = _item(entry, kind, show_secrets)
            if output == "json":
                entries.append(item | {"records": records} if isinstance(entry, BatchDump) and isinstance(item, dict) else item)
                continue
            click.echo("  " + (" ".join(f"{name}={value}" for name, value in item.items()) if isinstance(item, dict) else str(item)))
            for record in records:
                click.echo("    " + line_of(record))
        documents.append({"file": path, "entries": entries})
    if output == "json":
        print_json("dump-log", documents)
    if damaged:
        sys.exit(1)


def _item(entry: Any, kind: Kind, show_secrets: bool) -> tuple[Any, list[dict[str, Any]]]:
    """Returns what is said of an entry, and of its records."""
    if not isinstance(entry, msgspec.Struct):
        return entry, []
    records = getattr(entry, "records", [])
    own = Kind.APPLICATION if getattr(entry, "is_control", False) else kind  # markers are not the topic's
    item = {name: getattr(entry, name) for name in entry.__struct_fields__ if name != "records"}
    return item, [described(record, own, show_secrets=show_secrets) for record in records]


def _entries(path: str, with_records: bool) -> Any:
    from ottla.storage import dump

    with open(path, "rb") as file:
        data = file.read()
    stem, extension = os.path.splitext(path)
    if extension == ".txnindex":
        return dump.dump_transaction_index(data)
    if extension not in (".index", ".timeindex"):
        return dump.dump_log(data, with_records=with_records)
    name = os.path.basename(stem)
    if not name.isdigit():
        raise click.UsageError(f"{path}: the name of an index must be its segment's base offset")
    if extension == ".timeindex":
        return dump.dump_time_index(data, int(name))
    log_size = os.path.getsize(f"{stem}.log") if os.path.exists(f"{stem}.log") else 2**31 - 1
    return dump.dump_offset_index(data, int(name), log_size=log_size)

"""``ottla dump-log FILE...``: what is in a log's files, damage included."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec

from ottla.cli.output import format_option, print_json


@click.command("dump-log")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--records", "with_records", is_flag=True, help="Show the records too.")
@click.option("--show-secrets", is_flag=True, help="Show credentials and passwords in records of the metadata log.")
@format_option
def dump_log(files: tuple[str, ...], with_records: bool, show_secrets: bool, output: str) -> None:
    """Show the batches of .log files and the entries of .index, .timeindex and .txnindex files."""
    from ottla.storage.dump import Damage

    damaged = False
    documents = []
    for path in files:
        entries = list(_entries(path, with_records))
        if with_records and not show_secrets and _is_of_metadata(path):
            _redact(entries)
        damaged = damaged or any(isinstance(entry, Damage) for entry in entries)
        if output == "json":
            documents.append({"file": path, "entries": [msgspec.to_builtins(entry) for entry in entries]})
            continue
        click.echo(f"{path}")
        for entry in entries:
            click.echo("  " + _line(entry))
    if output == "json":
        print_json("dump-log", documents)
    if damaged:
        sys.exit(1)


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


def _is_of_metadata(path: str) -> bool:
    from ottla.types import CLUSTER_METADATA_TOPIC

    return os.path.basename(os.path.dirname(os.path.abspath(path))).startswith(CLUSTER_METADATA_TOPIC) or path.endswith(".checkpoint")


def _redact(entries: list[Any]) -> None:
    """Values of records that hold something secret are replaced."""
    from ottla.metadata.redaction import shown
    from ottla.storage.dump import BatchDump

    for entry in entries:
        if isinstance(entry, BatchDump) and not entry.is_control:
            for record in entry.records:
                record.value = None if record.value is None else shown(bytes(record.value))


def _line(entry: Any) -> str:
    if isinstance(entry, msgspec.Struct):
        items = msgspec.to_builtins(entry)
        return " ".join(f"{name}={value}" for name, value in items.items() if name != "records" or value)
    return str(entry)

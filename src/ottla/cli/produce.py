"""``ottla produce TOPIC``: records from standard input."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from typing import TYPE_CHECKING

import click

from ottla.cli.output import bootstrap_option, format_option, print_rows
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.sync import RecordMetadata


@click.command()
@click.argument("topic", required=False)
@click.option("-f", "--record-format", "layout", default="%v\\n", show_default=True, help="How the input is cut: %k %v\\n, %K{big32}%k...")
@click.option("-k", "--key", help="A key for every record.")
@click.option("-p", "--partition", type=int, help="A partition for every record.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header for every record.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True)
@click.option("-Z", "--tombstone", is_flag=True, help="Empty values are sent as null.")
@bootstrap_option
@format_option
def produce(
    topic: str | None,
    layout: str,
    key: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    acks: str,
    compression: str,
    tombstone: bool,
    bootstrap: str,
    output: str,
) -> None:
    """Write records from standard input to TOPIC, one a line unless -f says otherwise."""
    from ottla.cli.record_parser import RecordParser
    from ottla.sync import Producer

    parser = RecordParser(layout)
    fixed_headers = [_header(text) for text in headers]
    waiting: list[Future[RecordMetadata]] = []
    with Producer(bootstrap, client_id="ottla-cli", acks=acks, enable_idempotence=acks == "all", compression_type=compression) as producer:
        for record in parser.parse(sys.stdin.buffer):
            target = record.topic or topic
            if target is None:
                raise click.UsageError("name a TOPIC, or have %t in the format")
            record_key = record.key if record.key is not None else key.encode() if key is not None else None
            waiting.append(
                producer.send(
                    target,
                    None if tombstone and not record.value else record.value,
                    key=record_key,
                    partition=record.partition if record.partition is not None else partition,
                    headers=[*record.headers, *fixed_headers],
                    timestamp_ms=record.timestamp_ms,
                )
            )
        producer.flush()
    report(output, waiting)


def report(output: str, waiting: list[Future[RecordMetadata]]) -> None:
    """What landed where; exit code 1 when any record was refused."""
    counts: dict[tuple[str, int], list[int]] = {}
    failures: list[KafkaError] = []
    for future in waiting:
        error = future.exception()
        if isinstance(error, KafkaError):
            failures.append(error)
        elif error is not None:
            raise error
        else:
            landed = future.result()
            counts.setdefault((landed.topic, landed.partition), []).append(landed.offset)
    rows = [(topic, partition, len(offsets), min(offsets), max(offsets)) for (topic, partition), offsets in sorted(counts.items())]
    print_rows(output, "produce", ("topic", "partition", "records", "first_offset", "last_offset"), rows)
    if failures:
        click.echo(f"ottla: {len(failures)} of {len(waiting)} records were refused; the first: {failures[0]}", err=True)
        sys.exit(1)


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.UsageError(f"-H {text}: expected NAME=VALUE")
    return name, value.encode()

"""``ottla producer``: the producers that partitions remember."""

from __future__ import annotations

import sys

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.names import TOPICS
from ottla.cli.output import bootstrap_option, complain, format_option, print_rows
from ottla.errors import KafkaError
from ottla.types import TopicPartition

COLUMNS = ("topic", "partition", "producer_id", "epoch", "last_sequence", "last_ms", "transaction_start_offset")


@click.group()
def producer() -> None:
    """List the producers that partitions remember."""


@producer.command("list")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=TOPICS)
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="Only these partitions.")
@bootstrap_option
@format_option
def list_producers(topics: tuple[str, ...], partitions: tuple[int, ...], bootstrap: str, output: str) -> None:
    """List the producers of each partition, and where a transaction of theirs that is open begins."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        keys = [
            TopicPartition(topic, index)
            for topic in topics
            for index in sorted(admin.describe_topic(topic).partitions)
            if not partitions or index in partitions
        ]
        found = admin.describe_producers(keys)
    rows = []
    failed = {key: states for key, states in found.items() if isinstance(states, KafkaError)}
    for key, states in sorted(found.items()):
        for state in states if not isinstance(states, KafkaError) else ():
            start = None if state.transaction_start_offset < 0 else state.transaction_start_offset
            row = (state.producer_id, state.producer_epoch, state.last_sequence, state.last_timestamp_ms, start)
            rows.append((key.topic, key.partition, *row))
    print_rows(output, "producer list", COLUMNS, rows)
    for key, error in failed.items():
        complain(f"{key}: {error}")
    if failed:
        sys.exit(1)

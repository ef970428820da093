"""``ottla storage verify DIR``: whether a data folder is whole. Offline: no broker may have it open."""

from __future__ import annotations

import asyncio
import os
import sys

import click
import msgspec

from ottla.cli.output import format_option, print_json


@click.group("storage")
def storage() -> None:
    """Look after data folders."""


@storage.command("verify")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@format_option
def verify(folder: str, output: str) -> None:
    """Read every file of a data folder and say what is damaged.

    Nothing is changed. Exit code 0: whole, or nothing that a start would not repair; 1: damaged, or in use by a broker.
    """
    from ottla.errors import StorageError
    from ottla.runtime.inline_files import InlineDisk
    from ottla.storage import verification

    async def run() -> verification.Verification:
        disk = InlineDisk()
        lock = f"{path}/.lock"
        if await disk.exists(lock):
            try:
                await disk.lock(lock)
            except BlockingIOError:
                raise StorageError(f"{folder} is in use by a broker; stop it first") from None
        return await verification.verify(disk, path)

    path = os.path.abspath(folder)
    result = asyncio.run(run())
    if output == "json":
        print_json("storage verify", [msgspec.to_builtins(result) | {"is_damaged": result.is_damaged}])
    else:
        for finding in result.findings:
            click.echo(f"{'DAMAGE' if finding.is_damage else 'note'}  {finding.path}: {finding.text}")
        click.echo(
            f"{result.partition_count} partitions, {result.segment_count} segments, {result.batch_count} batches, "
            f"{result.size_bytes} bytes: {'damaged' if result.is_damaged else 'whole'}"
        )
    if result.is_damaged:
        sys.exit(1)

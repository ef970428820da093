"""``ottla storage``: log directories that no broker has open are made, checked, and cleared of stray replicas."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Final

import click
import msgspec

from ottla.cli.output import complain, format_option, override_option, print_json
from ottla.errors import ErrorCode, KafkaError
from ottla.types import uuid_bytes, uuid_text

if TYPE_CHECKING:
    from ottla.config import BrokerConfig
    from ottla.ports import Disk


EMPTIED: Final = (
    "warning: what broker {0} had there is fetched again from other replicas once it starts. Partitions with no other replica begin again, "
    "empty: `ottla topic describe --unavailable` lists them before it starts, and a backup may have their records"
)


@click.group("storage")
def storage() -> None:
    """Format, verify and maintain log directories."""


@storage.command("format")
@click.argument("file", type=click.Path(exists=True, dir_okay=False), required=False)
@override_option
@click.option("-t", "--cluster-id", metavar="ID", help="The cluster's id; made when it is not given.")
@click.option("-r", "--release-version", metavar="X.Y", help="The Kafka release whose metadata.version the cluster begins with.")
@click.option("-f", "--feature", "features", multiple=True, metavar="NAME=LEVEL", help="The level of a single feature.")
@click.option("-g", "--ignore-formatted", "passes_over", is_flag=True, help="Leave this node's formatted directories as they are.")
@click.option(
    "--replaces-lost-controller",
    "replaces_lost",
    is_flag=True,
    help="Format a controller that was in its quorum before, whose votes are lost; the operator's guide says when that is safe.",
)
@click.option(
    "-S",
    "--add-scram",
    "scram",
    multiple=True,
    metavar="MECHANISM=[name=NAME,password-file=FILE]",
    help="A user that there is from the beginning, as kafka-storage takes it. A file keeps the password out of lists of processes.",
)
def format_(
    file: str | None,
    overrides: tuple[str, ...],
    cluster_id: str | None,
    release_version: str | None,
    features: tuple[str, ...],
    passes_over: bool,
    replaces_lost: bool,
    scram: tuple[str, ...],
) -> None:
    """Create the log directories of a node.

    Needed for each node of a cluster with several controllers, with the same --cluster-id, and for a cluster that begins at
    an older metadata.version. A broker that is its own controller creates its log directories when it first starts.

    A controller that another one knows from before is not formatted without --replaces-lost-controller: with its directory it has
    lost its votes. Where no other controller answers that, as before a new cluster's first start, a warning says so.
    """
    from ottla.broker.formatting import Formatted, format_log_dirs
    from ottla.broker.lost_votes import Asked, ask_others
    from ottla.broker.start_check import check_start
    from ottla.cli.scram_argument import credential_of
    from ottla.controller.features import METADATA_VERSION
    from ottla.controller.metadata_versions import level_of
    from ottla.runtime.world import real_world

    levels = {} if release_version is None else {METADATA_VERSION: level_of(release_version)}
    for feature in features:
        name, separator, level = feature.partition("=")
        if not separator or not level.isdigit() or name in levels:
            raise click.UsageError(f"--feature {feature}: expected NAME=LEVEL, each name once")
        levels[name] = int(level)
    config = _config(file, overrides)
    roles = check_start(config)[0]
    voters = roles.voters
    if len(voters) > 1 and cluster_id is None and not config["cluster.id"]:
        raise click.UsageError(
            f"controller.quorum.voters lists {len(voters)} voters, which share one cluster id: give each node the same --cluster-id, "
            "which `ottla storage random-uuid` makes"
        )
    credentials = [credential_of(text) for text in scram]
    named = cluster_id or config["cluster.id"]
    if named and not _is_uuid(named):
        complain(f"warning: cluster id {named!r} is no UUID, and tools may refuse it; `ottla storage random-uuid` makes one")

    untold: tuple[str, ...] = ()

    async def run() -> Formatted:
        nonlocal untold
        world = real_world()
        if not replaces_lost:
            try:
                asked = await ask_others(world, config, roles)
            except KafkaError as error:
                complain(f"warning: the other controllers were not asked whether this one is new: {error.message}")
                asked = Asked()
            if asked.evidence is not None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, _lost(config, asked.evidence))
            untold = asked.silent
        return await format_log_dirs(
            world, config, cluster_id=cluster_id, features=levels, passes_over=passes_over, credentials=credentials
        )  # fmt: skip

    done = asyncio.run(run())
    if done.left:
        made = f"; formatted: {', '.join(done.made)}" if done.made else ""
        click.echo(f"left as it is: {', '.join(done.left)}{made}, for cluster {done.cluster_id}")
    else:
        click.echo(f"formatted {', '.join(done.made)} for cluster {done.cluster_id}")
    if replaces_lost and roles.is_broker and done.made:
        complain(EMPTIED.format(config.node_id))
    if untold:
        complain(_may_be_lost(config, untold))


def _may_be_lost(config: BrokerConfig, silent: tuple[str, ...]) -> str:
    """Returns the warning of a controller whose votes may be lost, which no other could say."""
    who = f"no other controller could tell whether this one is new ({', '.join(silent)}). In a new cluster that is as it should be"
    lost = "it has lost its votes, and started now it can elect a controller without topics and records that were acknowledged"
    way_out = 'Restore its directory, or do as docs/operating.md says in "Replace a lost controller"'
    return f"warning: {who}. If controller {config.node_id} ran in this cluster before, do not start it: {lost}. {way_out}"


def _lost(config: BrokerConfig, evidence: str) -> str:
    what = "its metadata log, with its votes, was lost, or is on a disk that is not mounted"
    way_out = 'Mount it; or do as the operator\'s guide says, in "Replace a lost controller", and use --replaces-lost-controller there'
    return f"controller {config.node_id} is not new: {evidence}, so {what} at {config.log_dirs[0]}. {way_out}. Nothing was changed"


@storage.command("info")
@click.argument("file", type=click.Path(exists=True, dir_okay=False), required=False)
@override_option
@format_option
def info(file: str | None, overrides: tuple[str, ...], output: str) -> None:
    """Show whose the log directories are. Exit code 1 when one cannot be used, or none is formatted."""
    from ottla.broker.formatting import DirectoryState, inspect_log_dirs
    from ottla.runtime.inline_files import InlineDisk

    config = _config(file, overrides)

    async def run() -> list[DirectoryState]:
        return await inspect_log_dirs(InlineDisk(), config)

    states = asyncio.run(run())
    if output == "json":
        print_json("storage info", [msgspec.to_builtins(state) for state in states])
    else:
        for state in states:
            found = state.identity
            text = "not formatted" if found is None else f"cluster {found.cluster_id}, node {found.node_id}, directory {found.directory_id}"
            click.echo(f"{state.path}: {state.problem or text}")
    if all(state.identity is None for state in states) or any(state.problem for state in states):
        sys.exit(1)


@storage.command("random-uuid")
def random_uuid_() -> None:
    """Print a new id, for --cluster-id."""
    from ottla.broker.formatting import random_uuid
    from ottla.runtime.world import real_world

    click.echo(random_uuid(real_world()))


@storage.command("verify")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--strict", "is_strict", is_flag=True, help="Exit with 1, too, where the next start would cut off the end of a log.")
@format_option
def verify(directory: str, is_strict: bool, output: str) -> None:
    """Read a log directory and report what is damaged.

    Changes nothing. Exit code 0: intact, or with what a start repairs; 1: damaged, or in use by a broker. After a kill or a power cut a
    start cuts off the end of a log from the first damaged batch on: other replicas may have it, a backup has not.
    """
    from ottla.runtime.inline_files import InlineDisk
    from ottla.storage.recovery import verification

    async def run() -> verification.Verification:
        disk = InlineDisk()
        await _lock(disk, path)
        return await verification.verify(disk, path)

    path = os.path.abspath(directory)
    result = asyncio.run(run())
    if output == "json":
        print_json("storage verify", [msgspec.to_builtins(result) | {"is_damaged": result.is_damaged, "cut_bytes": result.cut_bytes}])
    else:
        for finding in result.findings:
            click.echo(f"{'DAMAGE' if finding.is_damage else 'note'}  {finding.path}: {finding.text}")
        click.echo(
            f"{result.partition_count} partitions, {result.segment_count} segments, {result.batch_count} batches, "
            f"{result.size_bytes} bytes: {'damaged' if result.is_damaged else 'torn' if result.cut_bytes else 'intact'}"
            + (f"; the next start cuts off {result.cut_bytes} bytes" if result.cut_bytes else "")
        )
    if result.is_damaged or (is_strict and result.cut_bytes):
        sys.exit(1)


@storage.command("strays")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--delete", "is_deleting", is_flag=True, help="Delete them. Refused while a broker uses one of the directories.")
@format_option
def strays(directories: tuple[str, ...], is_deleting: bool, output: str) -> None:
    """List partition directories that belong to no topic.

    When a broker starts, it renames them to TOPIC-PARTITION.ID-stray and keeps them. None is put back into service: it may lack what
    was acknowledged since. Its records are read by `ottla dump-log --records`, and can be written again.
    """
    from ottla.runtime.inline_files import InlineDisk
    from ottla.storage.directory.strays import Stray, find_strays, remove_stray

    async def run() -> list[Stray]:
        disk = InlineDisk()
        for path in paths if is_deleting else ():
            await _lock(disk, path)
        found = [stray for path in paths for stray in await find_strays(disk, path)]
        for stray in found if is_deleting else ():
            await remove_stray(disk, stray)
        return found

    paths = list(dict.fromkeys(map(os.path.abspath, directories)))
    found = asyncio.run(run())
    if output == "json":
        print_json("storage strays", [msgspec.to_builtins(stray) | {"is_deleted": is_deleting} for stray in found])
        return
    for stray in found:
        click.echo(f"{'deleted' if is_deleting else 'stray'}  {stray.path}: topic id {stray.topic_id}, {stray.size_bytes} bytes")
    click.echo(f"strays: {len(found)}, {sum(stray.size_bytes for stray in found)} bytes")
    if found and not is_deleting:
        complain(f"`ottla dump-log --records {found[0].path}/*.log` shows records; docs/operating.md says how to write them again")


def _is_uuid(text: str) -> bool:
    """Returns whether the text is a UUID as Kafka writes them."""
    try:
        return uuid_text(uuid_bytes(text)) == text
    except ValueError:
        return False


def _config(file: str | None, overrides: tuple[str, ...]) -> BrokerConfig:
    from ottla.cli.broker import gather
    from ottla.config import BrokerConfig

    return BrokerConfig(gather(file, os.environ, overrides))


async def _lock(disk: Disk, path: str) -> None:
    """Locks the log directory: no broker uses it until this process ends. StorageError while one does."""
    from ottla.errors import StorageError

    if await disk.exists(lock := f"{path}/.lock"):
        try:
            await disk.lock(lock)
        except BlockingIOError as error:
            raise StorageError(f"{path} is in use by a broker ({error.strerror}); stop it first") from None

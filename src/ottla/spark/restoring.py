"""A checkpoint that was lost, all of it or one of its directories, written back from its topic before its query starts.

The application's earlier producer is fenced first: so its last transaction has ended, one way or the other, and both the topic and the
group of the offsets say of the same batch that it was the last one. Spark then runs that batch again, from the state before it, and
the sink finds its marker and skips it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.client.producer_settings import ProducerSettings
from ottla.spark.checkpoint import topics_of
from ottla.spark.checkpoint_topic import CheckpointTopic, begin_again
from ottla.spark.exactly_once import Step, StopError
from ottla.spark.kept_state import KEPT_STATE
from ottla.spark.link import Link, link_for
from ottla.spark.marker import Committed
from ottla.spark.offsets import TOPIC_IDS
from ottla.spark.options import invalid
from ottla.spark.transactor import Transactor

PARTS: Final = frozenset(["metadata", "offsets", "commits", "state", "sources", KEPT_STATE])
"""Of a checkpoint, at its top."""
DIRECTORIES: Final = frozenset(["offsets", "commits", "state", "sources"])
"""The parts that have files of their own."""


def restore(app: str, settings: Mapping[str, str], producer: ProducerSettings, directory: Path, *, replaces: bool = False) -> int | None:
    """Restores the checkpoint that the application's topic has. Returns how many files, None when there was nothing to do.

    There is nothing to do if the directory already has a checkpoint, unless the call ``replaces`` it, or if the topic has none. A
    checkpoint without one of the directories that the topic has files of is replaced, too: Spark would refuse it, or read from the start.
    So is one whose newest files are empty (``is_torn``).
    StopError when the topic's checkpoint is not that of the batch that was written last, or the topic no longer has all of it.
    At each moment the directory has the earlier checkpoint, the whole new one, or is not there. What a restore that was killed has left
    beside it is deleted.
    """
    made, former = (directory.with_name(f".{directory.name}.{what}") for what in ("restoring", "replaced"))
    for path in (made, former):
        shutil.rmtree(path, ignore_errors=True)
    topic = CheckpointTopic(app, settings)
    if not replaces and (directory / "metadata").exists() and not is_torn(directory) and not _lacks_some(directory, topic):
        return None
    _check_is_checkpoint(directory)
    if not topic.exists():
        return None
    committed = _settled(app, link_for(settings), producer)
    made.mkdir(parents=True)
    try:
        count = topic.write_into(made)
        if count == 0:
            if replaces and committed.marker is not None:
                raise StopError(_incomplete(topic.name))
            return None
        _check_belongs(app, topic.name, made, committed)
        if directory.exists():
            directory.rename(former)
        made.rename(directory)
        return count
    finally:
        for path in (made, former):
            shutil.rmtree(path, ignore_errors=True)


def _lacks_some(directory: Path, topic: CheckpointTopic) -> bool:
    """Returns whether the checkpoint lacks one of the directories that the topic has files of."""
    absent = absent_from(directory)
    if not absent or not topic.exists():
        return False
    return not absent.isdisjoint(path.partition("/")[0] for path in topic.files())


def absent_from(directory: Path) -> frozenset[str]:
    """Returns the directories of a checkpoint that are not there, or are empty, and which a query of such a checkpoint may have.

    What the sources keep is not missed where all of them are ottla's, which keep nothing: so the topic of a large state, which has to be
    read to know more, is not read at each start.
    """
    absent = {name for name in DIRECTORIES if not _has_files(directory / name)}
    if "sources" in absent and "offsets" not in absent and _are_ours(directory / "offsets"):
        absent.remove("sources")
    return frozenset(absent)


def is_torn(directory: Path) -> bool:
    """Returns whether a file that Spark reads at each start is empty, as where the machine lost its power before the disk had its content.

    Spark does not sync what it writes, and never leaves such a file empty.
    """
    newest = (_newest(directory / name) for name in ("offsets", "commits"))
    return any(path is not None and path.exists() and path.stat().st_size == 0 for path in (directory / "metadata", *newest))


def _newest(log: Path) -> Path | None:
    """Returns the file of the newest batch of a log of Spark's; None where it has none."""
    entries = (entry for entry in log.iterdir() if entry.name.isdigit()) if log.is_dir() else iter(())
    return max(entries, key=lambda entry: int(entry.name), default=None)


def _has_files(directory: Path) -> bool:
    return directory.is_dir() and any(not entry.name.startswith(".") for entry in directory.iterdir())


def _are_ours(offsets: Path) -> bool:
    """Returns whether all sources of the newest batch have written their offsets as ottla's do."""
    newest = _newest(offsets)
    sources = [] if newest is None else newest.read_text(encoding="utf-8").splitlines()[2:]
    found = [topics_of(text) for text in sources]
    return bool(found) and all(text is not None and TOPIC_IDS in text for text in found)


def _check_is_checkpoint(directory: Path) -> None:
    """Raises KafkaError INVALID_CONFIG for a directory with files of something else, which would be deleted."""
    entries = directory.iterdir() if directory.exists() else ()
    others = [entry.name for entry in entries if entry.name not in PARTS and not entry.name.startswith(".")]
    if others:
        raise invalid(f"{directory} has {sorted(others)[0]!r}, which is of no checkpoint; name an empty or new directory")


def _settled(app: str, link: Link, producer: ProducerSettings) -> Committed:
    """Returns what the application has committed last, when nothing of it can change any longer."""

    async def settle() -> Committed:
        transactor = Transactor(link.cluster, link.connect, app, producer)
        try:
            await transactor.perform(Step.FENCE)
            found = await transactor.perform(Step.READ)
            assert found is not None, "READ is answered"
            return found
        finally:
            await transactor.close()

    return link.run(settle())


def _incomplete(topic: str) -> str:
    return (
        f"topic {topic!r} does not have all of its checkpoint: records were deleted, as with another cleanup.policy. {begin_again(topic)}"
    )


def _check_belongs(app: str, topic: str, made: Path, committed: Committed) -> None:
    if not (made / "metadata").exists() or not _has_files(made / "offsets"):
        raise StopError(_incomplete(topic))
    query = json.loads((made / "metadata").read_text(encoding="utf-8"))["id"]
    batch = max(int(entry.name) for entry in (made / "offsets").iterdir() if entry.name.isdigit())
    marker = committed.marker
    if marker is not None and (marker.query, marker.batch) == (query, batch):
        return
    last = "no batch was written" if marker is None else f"the last one written is batch {marker.batch} of query {marker.query}"
    raise StopError(
        f"application {app!r}: topic {topic!r} has the checkpoint of batch {batch} of query {query}, and {last}: the group was deleted, or "
        f"batches were written without checkpoint=topic. {begin_again(topic)}"
    )

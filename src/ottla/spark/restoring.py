"""A checkpoint that was lost, written back from its topic before its query starts.

The application's earlier producer is fenced first: so its last transaction has ended, one way or the other, and both the topic and the
group of the offsets say of the same batch that it was the last one. Spark then runs that batch again, from the state before it, and
the sink finds its marker and skips it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.client.producer_settings import ProducerSettings
from ottla.spark.checkpoint_topic import CheckpointTopic, begin_again
from ottla.spark.exactly_once import Step, StopError
from ottla.spark.kept_state import KEPT_STATE
from ottla.spark.link import Link, link_for
from ottla.spark.marker import Committed
from ottla.spark.options import invalid
from ottla.spark.transactor import Transactor

PARTS: Final = frozenset(["metadata", "offsets", "commits", "state", "sources", KEPT_STATE])
"""Of a checkpoint, at its top."""


def restore(app: str, settings: Mapping[str, str], producer: ProducerSettings, directory: Path, *, replaces: bool = False) -> int | None:
    """Restores the checkpoint that the application's topic has. Returns how many files, None when there was nothing to do.

    There is nothing to do if the directory already has a checkpoint, unless the call ``replaces`` it, or if the topic has none. StopError
    when the topic's checkpoint is not that of the batch that was written last.
    """
    if not replaces and (directory / "metadata").exists():
        return None
    _check_is_checkpoint(directory)
    topic = CheckpointTopic(app, settings)
    if not topic.exists():
        return None
    committed = _settled(app, link_for(settings), producer)
    made = directory.with_name(f".{directory.name}.restoring")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    try:
        count = topic.write_into(made)
        if count == 0:
            return None
        _check_belongs(app, topic.name, made, committed)
        shutil.rmtree(directory, ignore_errors=True)
        made.rename(directory)
        return count
    finally:
        shutil.rmtree(made, ignore_errors=True)


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


def _check_belongs(app: str, topic: str, made: Path, committed: Committed) -> None:
    import json

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

"""State by key in a compacted topic that any client reads: ``changelogged``, and how its rows become records.

A processor's changes of its state come as rows among its results (``state_changes``), with all of a change in one more column.
``to_topic`` makes records of both, so that one transaction has the results, the state and the source's offsets. Spark counts the changes
where they are made: a batch that has fewer of them at its sink fails, and no topic is left without a change.

A changelog that someone deletes while its query runs is made again, and the query goes on: the state is in the checkpoint, and the topic
is for readers. They are to know that it lacks what has not changed since, so the query says it.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.checkpoint import COUNTED, NAMES_APART
from ottla.spark.compacted_topics import ensure_compacted, id_of
from ottla.spark.lookup import Lookup
from ottla.spark.options import invalid
from ottla.spark.state_changes import CHANGE, LoggingProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, GroupedData
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import StructType

SUFFIX: Final = "-changelog"
CONFIGS: Final = {"cleanup.policy": "compact"}
_COUNT: Final = f"{COUNTED}changes."
LOOK_S: Final = 10.0
"""A changelog is looked up with a batch that changes it, and not more often."""
_NUMBERS: Final = itertools.count()


class Changelogs:
    """The changelogs that a query has written since it started."""

    def __init__(self, settings: Mapping[str, str], now_s: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._now_s = now_s
        self._known: dict[str, tuple[bytes | None, float]] = {}  # which topic it is, once that is known, and when it was looked up

    def ensure(self, topic: str, number: int) -> str | None:
        """Makes sure that the topic exists, and keeps the newest record of each key, before batch ``number`` is written.

        Returns what readers have to know of it: that it has no changes of earlier batches. KafkaError INVALID_CONFIG where it would not
        keep each key.
        """
        lookup = Lookup(self._settings)
        is_new = topic not in self._known
        known, looked_s = self._known.get(topic, (None, 0.0))
        if not is_new and self._now_s() < looked_s + LOOK_S:
            return None
        found = id_of(lookup, topic)
        if found is None or found != known:
            ensure_compacted(lookup, topic, CONFIGS)
        made = id_of(lookup, topic) if found is None else found  # None: it was made, and the broker that was asked does not know it yet
        self._known[topic] = made, self._now_s()
        if known is not None and found != known and (made != known or not any(known)):  # brokers before topic ids have zeros
            return f"changelog {topic} was deleted while the query ran, and has only what changes from batch {number} on"
        if is_new and found is None and number > 0:
            return f"changelog {topic} did not exist, and has only what changes from batch {number} on"
        return None


def changelogged(
    grouped: GroupedData,
    processor: StatefulProcessor,
    schema: str | StructType,
    *,
    timeMode: str = "None",
    outputMode: str = "Update",
    eventTimeColumnName: str = "",
) -> DataFrame:
    """Returns what ``grouped.transformWithState`` returns, with the processor's state in topics, in the transactions of its results.

    Each state of the processor is in the compacted topic ``APP-STATE-changelog``: the key is the grouping key, of a map with the map's key
    after it (one text as it is, else JSON), the value a JSON object of the state's columns, of a list an array of them; a state that was
    cleared is a tombstone. Whatever is done with the rows before ``to_topic`` must keep those that have a change: ``where`` and
    ``select`` need the column ``__ottla_change``. States may not have a TTL, and the processor is one of rows, not of pandas.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    result: Any = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    fields = [StructField(field.name, field.dataType, True) for field in result.fields]
    change = StructType([StructField(name, StringType()) for name in ("store", "key", "value")])
    rows = grouped.transformWithState(
        statefulProcessor=LoggingProcessor(processor, result.names),
        outputStructType=StructType([*fields, StructField(CHANGE, change)]),
        outputMode=outputMode,
        timeMode=timeMode,
        eventTimeColumnName=eventTimeColumnName,
    )
    stores = F.array_join(F.collect_set(F.col(CHANGE)["store"]), NAMES_APART)
    return rows.observe(f"{_COUNT}{next(_NUMBERS)}", F.count(CHANGE).alias("count"), stores.alias("stores"))


def with_changes(frame: DataFrame, app: str) -> DataFrame:
    """Returns a frame of records (topic, key, value) from a frame of records and changes: each change becomes a record of its changelog."""
    from pyspark.sql import functions as F

    change = F.col(CHANGE)
    topic = F.concat(F.lit(f"{app}-"), change["store"], F.lit(SUFFIX))
    own_key: Any = F.col("key") if "key" in frame.columns else F.lit(None)
    columns = {"topic": (F.col("topic"), topic), "key": (own_key.cast("binary"), change["key"].cast("binary"))}
    columns["value"] = (F.col("value").cast("binary"), change["value"].cast("binary"))
    return frame.select(*(F.when(change.isNull(), own).otherwise(of_change).alias(name) for name, (own, of_change) in columns.items()))


def check_apart(stores: Mapping[str, list[str]], app: str) -> None:
    """Raises KafkaError INVALID_CONFIG where two processors have changed a state of the same name: one topic would have both."""
    counted = Counter(store for name, found in stores.items() if name.startswith(_COUNT) for store in found)
    for store, count in counted.items():
        if count > 1:
            topic = f"{app}-{store}{SUFFIX}"
            raise invalid(f"{count} processors have a state {store!r}, and topic {topic} would have the changes of all: name them apart")


def check_complete(counts: Mapping[str, int], app: str, topics: Mapping[str, int]) -> list[str]:
    """Returns the changelog topics of a batch, by the rows of each of its topics. INVALID_CONFIG where Spark has counted more changes."""
    counted = [count for name, count in counts.items() if name.startswith(_COUNT)]
    found = [topic for topic in topics if topic.startswith(f"{app}-") and topic.endswith(SUFFIX)] if counted else []
    made = sum(counted)
    there = sum(topics[topic] for topic in found)
    if there != made:
        raise invalid(
            f"{made} changes of state were made, and {there} reached the sink: between changelogged and to_topic keep the rows "
            f'that have one, as in .where(condition | F.col("{CHANGE}").isNotNull()), and keep the column'
        )
    return found

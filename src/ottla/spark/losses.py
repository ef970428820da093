"""Records that a batch lacks, since its topics no longer have them, of queries that go on without them (``failOnDataLoss=false``).

It is tasks that meet a loss, and their warnings are in Spark's log, or that of an executor. So the driver asks where the logs start before
the rows of a batch are read: what is before that was lost for certain. What is deleted while the batch is read is in those warnings alone.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Final

from ottla.errors import KafkaError
from ottla.spark.checkpoint import QUERY_ID, asked_of_spark, running_of, topics_of
from ottla.spark.lookup import Lookup
from ottla.spark.marker import text_of
from ottla.spark.offsets import batch_start, from_json
from ottla.spark.options import STREAM, checked
from ottla.spark.plans import nodes_of

Ranges = Mapping[str, tuple[int, int]]
"""By partition, the first lost offset and the one after the last."""
_LOOKUPS: Final[dict[str, tuple[Any, list[Lookup]]]] = {}  # by the query's id: its run, and its sources that go on without what is lost
_LOOKUPS_MAX: Final = 100
_IMPATIENT: Final = {"fetchOffset.numRetries": "0", "kafka.default.api.timeout.ms": "5000"}
_NOTED: Final[defaultdict[str, dict[str, None]]] = defaultdict(dict)


def noted_losses(session: Any, number: int) -> dict[str, tuple[int, int]]:
    """Returns what the batch that is about to be read in this thread will lack, and notes it for the query's runner."""
    query = session.sparkContext.getLocalProperty(QUERY_ID)
    if query is None:
        return {}
    lost: dict[str, tuple[int, int]] = {}
    for lookup in _lookups_of(session, query):
        planned = asked_of_spark(session, number)
        for before, after in zip_longest(planned.before, planned.sources):
            with contextlib.suppress(KafkaError):  # the rows cannot be read either, and that is no notice
                lost |= lost_between(lookup, topics_of(before) or {}, topics_of(after) or {})
    _NOTED[query].update(dict.fromkeys(f"lost offsets {text_of(place, lost[place])}" for place in sorted(lost)))
    return lost


def lost_between(lookup: Lookup, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Returns which offsets of a batch are before the start of their logs."""
    end = from_json(after)
    there = set(lookup.selection(must_exist=False).partitions)
    begin = {key: offset for key, offset in batch_start(before, after).items() if key in there and end.get(key, 0) > offset}
    first = lookup.earliest(begin)
    return {str(key): (offset, min(first[key], end[key])) for key, offset in begin.items() if first[key] > offset}


def note(session: Any, text: str | None) -> None:
    """Notes the text, if there is one, for the runner of the query whose batch is written in this thread."""
    query = session.sparkContext.getLocalProperty(QUERY_ID)
    if text is not None and query is not None:
        _NOTED[query][text] = None


def taken(query: str) -> list[str]:
    """Returns what was noted of the query since this was last asked."""
    return list(_NOTED.pop(query, {}))


def _lookups_of(session: Any, query: str) -> list[Lookup]:
    run = running_of(session)
    known = _LOOKUPS.get(query)
    if known is None or known[0] is not run:
        sources = [node.extraOptions() for node, kind in nodes_of(run.execution.analyzedPlan()) if kind == "StreamingRelationV2"]
        lossy = [dict(options.asCaseSensitiveMap()) for options in sources if str(options.get("failOnDataLoss")).lower() == "false"]
        known = _LOOKUPS[query] = run, [Lookup(checked(options, STREAM) | _IMPATIENT) for options in lossy if _is_ours(options)]
        while len(_LOOKUPS) > _LOOKUPS_MAX:
            del _LOOKUPS[next(iter(_LOOKUPS))]
    return known[1]


def _is_ours(options: Mapping[str, str]) -> bool:
    """Returns whether the options are of a source of topics: another one may have an option of that name, too."""
    with contextlib.suppress(KafkaError):
        checked(options, STREAM)
        return True
    return False

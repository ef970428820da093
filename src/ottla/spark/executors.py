"""How many tasks a cluster runs at once, as ``format("ottla")`` learns of it.

A data source's own processes have no SparkContext, and the environment of the driver says nothing of executors that are elsewhere. So
a reader of a session whose master is not local gets the option ``defaultTasks`` when its format is chosen. Readers of Spark Connect
are left alone: the option is the user's there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

OPTION: Final = "defaultTasks"
READERS: Final[tuple[Any, ...]] = (DataFrameReader, DataStreamReader)


def is_local(master: str) -> bool:
    """True when executors run in the driver's process, which executors of local-cluster[...] do not."""
    return master == "local" or master.startswith("local[")


def tell_readers() -> None:
    """Lets readers of topics know how many tasks run at once."""
    for owner in READERS:
        owner.format = telling(owner.format)


def telling(choose: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Returns a reader's method ``format`` that sets the option, too; an ``option`` that comes later takes precedence."""

    @functools.wraps(choose)
    def choose_and_tell(reader: Any, source: str) -> Any:
        chosen = choose(reader, source)
        if source.lower() == "ottla":
            context = reader._spark.sparkContext
            if not is_local(context.master or "local"):
                chosen.option(OPTION, str(context.defaultParallelism))
        return chosen

    return choose_and_tell

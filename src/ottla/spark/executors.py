"""How many tasks a cluster runs at once, as ``format("ottla")`` learns of it.

A data source's own processes have no SparkContext, and the environment of the driver says nothing of executors that are elsewhere. So
a reader of a session whose master is not local gets the option ``defaultTasks`` when its format is chosen. With Spark Connect the option
is the user's.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from ottla.spark.choices import acting

OPTION: Final = "defaultTasks"
READERS: Final[tuple[Any, ...]] = (DataFrameReader, DataStreamReader)


def is_local(master: str) -> bool:
    """True when executors run in the driver's process, which executors of local-cluster[...] do not."""
    return master == "local" or master.startswith("local[")


def tell_readers() -> None:
    """Lets readers of topics know how many tasks run at once."""
    for owner in READERS:
        owner.format = acting(owner.format, tell)


def tell(reader: Any) -> None:
    """Sets the option of a reader whose executors are elsewhere; an ``option`` that comes later takes precedence."""
    context = reader._spark.sparkContext
    if not is_local(context.master or "local"):
        reader.option(OPTION, str(context.defaultParallelism))

"""Spark Structured Streaming over topics: ``format("ottla")``, a sink, and session defaults.

::

    from ottla.spark import session, to_topic

    spark = session("totals")
    orders = spark.readStream.format("ottla").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()
    query = to_topic(totals(orders), "totals", key="customer", bootstrap="localhost:9092").outputMode("update").start()

Nothing here wraps PySpark's objects. Names are imported when they are asked for: Spark imports this package in every process.

Spark starts its Python processes as ``python3`` unless PYSPARK_PYTHON says otherwise, and in an environment that is not activated
that one has no ottla. So whoever imports this package before a plain SparkSession is made has this Python there as well.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import warnings
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.spark.defaults import session
    from ottla.spark.writer import sink, to_topic

__all__ = ["session", "sink", "to_topic"]

_HOMES: Final = {"session": "ottla.spark.defaults", "sink": "ottla.spark.writer", "to_topic": "ottla.spark.writer"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def _share_python() -> None:
    """Spark's processes will run this Python; a warning when they already run another one."""
    if "PYSPARK_PYTHON" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ:
        return  # it was chosen, or spark-submit has chosen
    context = sys.modules.get("pyspark.core.context")
    if context is None or context.SparkContext._gateway is None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif os.path.dirname(shutil.which("python3") or "") != os.path.dirname(sys.executable):
        text = 'Spark runs python3, which may not be the Python of ottla, and then does not find format("ottla")'
        way_out = f"import ottla.spark before the SparkSession is made, or set PYSPARK_PYTHON={sys.executable}"
        warnings.warn(f"{text}; {way_out}", stacklevel=2)


_share_python()

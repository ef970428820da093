"""Spark Structured Streaming over topics: ``format("ottla")``, a sink, and session defaults.

::

    from ottla.spark import session, to_topic

    spark = session("totals")
    orders = spark.readStream.format("ottla").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()
    writer = to_topic(totals(orders), "totals", key="customer", bootstrap="localhost:9092").outputMode("update")
    query = writer.option("checkpointLocation", "checkpoints/totals").start()

Nothing here wraps PySpark's objects. Names are imported when they are asked for: Spark imports this package in every process.

Importing the package does four things to the driver: Spark runs the Python that imports it (``interpreter``), some of Spark's
errors get a note with the way out (``ways_out``), readers know how many tasks a cluster runs at once (``executors``), and queries of
one session can start at the same time (``source_environment``).
"""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.interpreter import share_python

if TYPE_CHECKING:
    from ottla.spark.avro_values import avro
    from ottla.spark.catching_up import catch_up
    from ottla.spark.changelogs import changelogged
    from ottla.spark.defaults import session
    from ottla.spark.pipelines import pipeline
    from ottla.spark.protobuf_values import protobuf
    from ottla.spark.routes import route
    from ottla.spark.streams import read_topic
    from ottla.spark.tables import read_table
    from ottla.spark.writer import sink, to_topic

__all__ = ["avro", "catch_up", "changelogged", "pipeline", "protobuf", "read_table", "read_topic", "route", "session", "sink", "to_topic"]

_HOMES: Final = {
    "avro": "ottla.spark.avro_values",
    "catch_up": "ottla.spark.catching_up",
    "changelogged": "ottla.spark.changelogs",
    "pipeline": "ottla.spark.pipelines",
    "protobuf": "ottla.spark.protobuf_values",
    "read_table": "ottla.spark.tables",
    "read_topic": "ottla.spark.streams",
    "route": "ottla.spark.routes",
    "session": "ottla.spark.defaults",
    "sink": "ottla.spark.writer",
    "to_topic": "ottla.spark.writer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


share_python()
with contextlib.suppress(ImportError):  # no PySpark here, or one without a JVM
    importlib.import_module("ottla.spark.ways_out").add_notes()
    importlib.import_module("ottla.spark.executors").tell_readers()
    importlib.import_module("ottla.spark.source_environment").complete_for_readers()

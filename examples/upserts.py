"""Changes of a database's table, as Debezium writes them, to a compacted topic that is the table: the newest row of each key.

ottla topic create shop.customers
ottla topic create customers --config cleanup.policy=compact
ottla pipeline run examples/upserts.py
echo '{"op":"c","after":{"id":"7","name":"Ada"}}' | ottla produce shop.customers

A deleted row is a record without a value. Rows of a key come in the order of its changes, each once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.spark import pipeline, read_topic, to_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ROW = "struct<id: string, name: string>"


@pipeline
def customers(spark: SparkSession) -> DataStreamWriter:
    changes = read_topic(spark, "shop.customers", f"op string, before {ROW}, after {ROW}", bad_rows="customers-bad")
    rows = changes.where("op is not null").select(
        F.coalesce("after.id", "before.id").alias("id"), F.when(F.col("op") != "d", F.to_json("after")).alias("row")
    )
    return to_topic(rows, "customers", key="id", value="row")

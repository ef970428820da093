"""Totals of orders by customer, exactly once; what is no order goes to a topic of its own.

ottla dev
ottla topic create orders totals orders-bad
ottla pipeline run examples/orders.py
echo '{"customer":"ada","amount":5}' | ottla produce orders

Whatever is killed meanwhile, and wherever it is started again, each total is right: the checkpoints are in a topic, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.spark import pipeline, read_topic, to_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@pipeline
def totals(spark: SparkSession) -> DataStreamWriter:
    orders = read_topic(spark, "orders", "customer string, amount double", bad_rows="orders-bad")
    per_customer = orders.groupBy("customer").agg(F.sum("amount").alias("total"))
    return to_topic(per_customer, "totals", key="customer").outputMode("update")

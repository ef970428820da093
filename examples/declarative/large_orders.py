"""A Declarative Pipeline of Spark: the orders of a topic as a table, what each customer has spent, and large orders to another topic.

ottla topic create orders; ottla topic create large-orders
echo '{"customer":"ada","amount":5000}' | ottla produce orders
pip install 'ottla[spark]' 'pyspark[pipelines]'
PYSPARK_PYTHON=$(which python) spark-pipelines run --spec examples/declarative/spark-pipeline.yml

Each run reads what has come since the one before. The topic gets each large order once: the sink is exactly once, and its checkpoint is
in the pipeline's storage. Brokers elsewhere are named by --conf spark.orders.brokers=HOST:PORT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

spark = SparkSession.active()
BROKERS = spark.conf.get("spark.orders.brokers", "localhost:9092") or ""
SOURCE = {"subscribe": "orders", "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}


@dp.table
def orders() -> DataFrame:
    records = spark.readStream.format("ottla").options(**{"kafka.bootstrap.servers": BROKERS}, **SOURCE).load()
    return records.select(F.from_json(F.col("value").cast("string"), "customer string, amount double").alias("order")).select("order.*")


@dp.materialized_view
def totals() -> DataFrame:
    return spark.read.table("orders").groupBy("customer").agg(F.sum("amount").alias("total"))


dp.create_sink("large_orders", "ottla", {"kafka.bootstrap.servers": BROKERS, "topic": "large-orders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    found = spark.readStream.table("orders").where("amount > 1000")
    return found.select(F.col("customer").alias("key"), F.to_json(F.struct("customer", "amount")).alias("value"))

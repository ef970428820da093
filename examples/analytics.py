"""Analytics: page views in a topic, counted by page and minute by PySpark, the counts written to a topic of their own.

python examples/analytics.py localhost:9092
"""

from __future__ import annotations

import random
import sys

from pyspark.sql import functions as F

from ottla.spark import session
from ottla.sync import Admin, NewTopic, Producer

VIEWS, COUNTS = "site.views", "site.counts"
PAGES = ["home", "search", "basket", "help"]
START_MS = 1_699_999_980_000  # the first moment of a minute


def write_views(bootstrap: str, count: int) -> None:
    """An hour of views."""
    rng = random.Random(1)
    with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(VIEWS, b"view", key=rng.choice(PAGES).encode(), timestamp_ms=START_MS + number * 3_600_000 // count)


def main() -> None:
    bootstrap = sys.argv[1]
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(VIEWS, 2), NewTopic(COUNTS, 1)])
    write_views(bootstrap, 10_000)
    spark = session("analytics", master="local[2]")
    views = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", VIEWS).load()
    counts = views.groupBy(F.col("key").cast("string").alias("page"), F.window("timestamp", "1 minute").alias("minute")).count()
    rows = counts.select(
        F.concat_ws(" ", "page", F.col("minute.start").cast("string")).cast("binary").alias("key"),
        F.col("count").cast("string").cast("binary").alias("value"),
    )
    rows.write.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("topic", COUNTS).mode("append").save()
    total = counts.agg(F.sum("count")).collect()[0][0]
    print(f"{total} views in {counts.count()} windows")
    spark.stop()


if __name__ == "__main__":
    main()

"""Visits: the clicks of a user with no more than half an hour between them, when they have ended, exactly once.

ottla topic create clicks visits
ottla pipeline run examples/sessions.py
echo '{"user":"ada","page":"home","at":"2026-01-01T12:00:00Z"}' | ottla produce clicks

A visit is written when the watermark has passed its end: half an hour after its last click, and a minute for what is late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.spark import pipeline, read_topic, to_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@pipeline
def visits(spark: SparkSession) -> DataStreamWriter:
    clicks = read_topic(spark, "clicks", "user string, page string, at timestamp").withWatermark("at", "1 minute")
    ended = clicks.groupBy("user", F.session_window("at", "30 minutes").alias("visit")).agg(F.count("*").alias("clicks"))
    rows = ended.select("user", F.col("visit.start").alias("began"), F.col("visit.end").alias("ended"), "clicks")
    return to_topic(rows, "visits", key="user")

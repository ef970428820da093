"""Payments that follow a login from another country within five minutes, as alerts: two streams joined by event time, exactly once.

ottla topic create logins payments alerts
ottla pipeline run examples/fraud.py
echo '{"user":"ada","country":"NO","at":"2026-01-01T12:00:00Z"}' | ottla produce logins
echo '{"id":"p1","payer":"ada","card_country":"AT","amount":900,"paid_at":"2026-01-01T12:03:00Z"}' | ottla produce payments

Both streams may be late by a minute. What neither can match any more leaves the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.spark import pipeline, read_topic, to_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@pipeline
def abroad(spark: SparkSession) -> DataStreamWriter:
    logins = read_topic(spark, "logins", "user string, country string, at timestamp").withWatermark("at", "1 minute")
    columns = "id string, payer string, card_country string, amount double, paid_at timestamp"
    payments = read_topic(spark, "payments", columns).withWatermark("paid_at", "1 minute")
    follows = F.expr("payer = user and card_country <> country and paid_at between at and at + interval 5 minutes")
    alerts = payments.join(logins, follows).select("id", "user", "amount", F.col("country").alias("logged_in_from"), "card_country")
    return to_topic(alerts, "alerts", key="id")

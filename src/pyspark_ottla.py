"""The door for Spark: it looks through top-level modules named ``pyspark_*`` and registers each one's ``DefaultSource``."""

from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]

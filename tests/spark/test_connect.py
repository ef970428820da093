"""Spark Connect: the driver's program has no SparkContext, and its DataFrames go over gRPC. In a process and a JVM of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.conftest import Topics

# Python's environment is not activated, and the session is a plain one: that ottla.spark is imported before must be enough.
PROGRAM = """
import json, sys
from ottla.runtime.java import use_java
use_java()
from ottla.spark import to_topic
from pyspark.sql import SparkSession, functions as F

bootstrap, source, target, directory = sys.argv[1:]
builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
for place in ("spark.driver.host", "spark.driver.bindAddress", "spark.connect.grpc.binding.address"):
    builder = builder.config(place, "127.0.0.1")
spark = builder.config("spark.sql.python.filterPushdown.enabled", "true").getOrCreate()
topic = {"kafka.bootstrap.servers": bootstrap, "subscribe": source}
rows = spark.range(0, 100, 1, 1).select((F.col("id") % 3).cast("string").alias("key"), F.col("id").cast("string").alias("value"))
rows.write.format("ottla").options(topic=source, **{"kafka.bootstrap.servers": bootstrap}).mode("append").save()
read = spark.read.format("ottla").options(pushFilters="true", **topic).load()
stream = spark.readStream.format("ottla").options(startingOffsets="earliest", **topic).load()
counts = stream.groupBy(F.col("key").cast("string").alias("name")).count()
writer = to_topic(counts, target, key="name", bootstrap=bootstrap, options={"checkpointLocation": directory}).outputMode("update")
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
try:
    writer = to_topic(counts, target, key="name", bootstrap=bootstrap).outputMode("update")
    writer.option("checkpointLocation", directory + "-2").start().awaitTermination()
except Exception as error:
    refused = str(error)
written = spark.read.format("ottla").options(**topic | {"subscribe": target}).load()
found = {
    "rows": read.count(),
    "last": [row.value for row in read.where("offset >= 98").selectExpr("string(value)").collect()],
    "way out": "give the sink the option checkpointLocation" in refused,
    "totals": sorted(row.value for row in written.selectExpr("string(value)").collect()),
}
print("found", json.dumps(found))
spark.stop()
"""


@pytest.mark.spark
def test_a_connect_session_reads_and_writes_topics(topics: Topics, tmp_path: Path):
    source, target = topics.create(), topics.create()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, topics.bootstrap, source, target, str(tmp_path / "checkpoint")],
        env=kept | {"PATH": "/usr/bin:/bin", "SPARK_TESTING": "1"},  # for which Connect takes any free port
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    told = [line.removeprefix("found ") for line in done.stdout.splitlines() if line.startswith("found ")]
    assert told, done.stdout[-2000:] + done.stderr[-4000:]
    assert json.loads(told[0]) == {
        "rows": 100,
        "last": ["98", "99"],
        "way out": True,
        "totals": ['{"name":"0","count":34}', '{"name":"1","count":33}', '{"name":"2","count":33}'],
    }

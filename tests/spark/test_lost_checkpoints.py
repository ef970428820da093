"""Spark's checkpoint written back from its topic, operator by operator, in one session; tests/torture has all of them, over SIGKILL."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.conftest import Topics
from tests.spark.kills import fill_events, read
from tests.spark.operators import OPERATORS, UPDATING, check, read_events

from ottla.spark import to_topic

pytestmark = pytest.mark.spark
NAMES = ("running",)


class LeftBeforeTheNote(Exception):
    """The batch is committed, and Spark does not note it."""


@pytest.mark.slow
def test_state_goes_on_over_a_lost_directory_also_of_a_batch_that_spark_has_not_noted(spark, topics: Topics, tmp_path: Path):
    topics.create(1, "events")
    for name in NAMES:
        topics.create(2, name)

    def run(*, leaves: bool = False) -> None:
        def on_batch(number: int, rows: int) -> None:
            if leaves and number == 1:
                raise LeftBeforeTheNote

        started = []
        for name in NAMES:
            frame = OPERATORS[name](read_events(spark, topics.bootstrap, "events", 80))
            options = {"app": name, "checkpointLocation": str(tmp_path / name)}
            writer = to_topic(frame, name, bootstrap=topics.bootstrap, checkpoint="topic", options=options, on_batch=on_batch)
            started.append(writer.outputMode("update" if name in UPDATING else "append").trigger(availableNow=True).start())
        for query in started:
            if leaves:
                with pytest.raises(StreamingQueryException, match="LeftBeforeTheNote"):
                    query.awaitTermination()
            else:
                query.awaitTermination()
        for name in NAMES:
            assert (tmp_path / name / "state").exists()
            shutil.rmtree(tmp_path / name)

    fill_events(topics.bootstrap, 0, 100, is_last=False)
    run(leaves=True)
    fill_events(topics.bootstrap, 100, 40, is_last=True)
    run()
    events = [json.loads(record.value) for record in read(topics.bootstrap, "events", 1)]
    for name in NAMES:
        check(name, events, [record.value for record in read(topics.bootstrap, name)])

"""State in topics beside the results of its processor, with Spark."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from tests.spark.conftest import Topics
from tests.spark.operators import Running, event
from tests.spark.test_streams import run, written

from ottla.cli.pipeline import newest_values, pipeline
from ottla.errors import KafkaError
from ottla.spark import changelogged, read_topic, route, to_topic
from ottla.spark.state_changes import CHANGE
from ottla.sync import Admin

pytestmark = pytest.mark.spark
RESULT = "k string, total long, kinds long"


@pytest.mark.slow
def test_the_state_of_a_processor_is_in_compacted_topics_as_it_is_in_spark(spark, topics: Topics, tmp_path: Path):
    events, target = topics.create(), topics.create()
    rows = [("a", 1), ("b", 2), ("a", 3), ("c", 3), ("a", 1), ("b", 9)]

    def writer(change: Any = None) -> Any:
        frame = read_topic(spark, events, "k string, v long", bootstrap=topics.bootstrap, options={"maxOffsetsPerTrigger": "4"})
        made = changelogged(frame.groupBy("k"), Running(), RESULT)
        made = made if change is None else change(made)
        if "topic" in made.columns:
            return to_topic(made, bootstrap=topics.bootstrap, app="runs").outputMode("update")
        return to_topic(made, target, key="k", bootstrap=topics.bootstrap, app="runs").outputMode("update")

    topics.produce(events, [(None, event(number, 0, *row)) for number, row in enumerate(rows)])
    run(writer(lambda made: made.where(F.col(CHANGE).isNotNull() | (F.col("total") > 1))), tmp_path / "state")
    last = {record.key: json.loads(record.value) for record in written(topics, target)}
    assert last[b"a"] == {"k": "a", "total": 5, "kinds": 2}
    assert last[b"b"] == {"k": "b", "total": 11, "kinds": 2}
    seen = Counter(rows)
    with Admin(topics.bootstrap) as admin:
        totals = newest_values(admin, "runs-total-changelog", topics.bootstrap)
        assert totals == {"a": '{"total":5}', "b": '{"total":11}', "c": '{"total":3}'}
        times = newest_values(admin, "runs-seen-changelog", topics.bootstrap)
        assert times == {f'["{key}",{value}]': f'{{"times":{count}}}' for (key, value), count in seen.items()}
        assert admin.describe_config_of_topics(["runs-seen-changelog"], "cleanup.policy") == {"runs-seen-changelog": "compact"}

    topics.produce(events, [(None, event(9, 0, "c", 4))])
    run(writer(lambda made: route(made, {target: F.col("total") > 5}, key="k")), tmp_path / "state")
    assert json.loads(written(topics, target)[-1].value) == {"k": "c", "total": 7, "kinds": 2}
    for arguments, code, said in (
        (["state", "runs", "total", "c"], 0, '{"total":7}'),
        (["state", "runs", "total", "z"], 1, ""),
        (["state", "runs", "nothing"], 1, "no topic has one; topics of states are runs-seen-changelog, runs-total-changelog"),
        (["state", "sums", "total"], 1, "no topic has one: only a processor of changelogged(...) keeps its state in one"),
    ):
        shown = CliRunner().invoke(pipeline, [*arguments, "-B", topics.bootstrap])
        assert (shown.exit_code, said in shown.output) == (code, True), shown.output

    with pytest.raises(KafkaError, match="changelogged needs delivery=exactly_once"):
        to_topic(frame_of_changes(spark), "t", bootstrap=topics.bootstrap, delivery="at_least_once")


def test_two_processors_of_one_query_may_not_share_a_changelog(spark, topics: Topics, tmp_path: Path):
    """The topic had the changes of both, and of a key only what the one had that came last."""
    events, target = topics.create(), topics.create()
    topics.produce(events, [(None, event(0, 0, "a", 1))])
    frames = [read_topic(spark, events, "k string, v long", bootstrap=topics.bootstrap) for _ in range(2)]
    one, two = (changelogged(frame.groupBy("k"), Running(), RESULT) for frame in frames)
    with pytest.raises(StreamingQueryException, match=r"2 processors have a state '(seen|total)', and topic twins-\1-changelog would"):
        run(to_topic(one.union(two), target, key="k", bootstrap=topics.bootstrap, app="twins").outputMode("update"), tmp_path / "twins")
    assert written(topics, target) == []


def frame_of_changes(spark: Any) -> Any:
    return spark.range(1).withColumn(CHANGE, F.lit(None).cast("struct<store:string,key:string,value:string>"))

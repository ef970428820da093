"""The checkpoint that Spark makes for a query without one is refused by its name."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.checkpoint import check_lasting
from ottla.spark.checkpointed_writer import CheckpointedWriter
from ottla.spark.pipelines import running


def test_the_temporary_checkpoint_of_spark_is_refused_and_others_are_not() -> None:
    with pytest.raises(KafkaError, match="checkpoint that outlives the query") as refused:
        check_lasting("file:/var/spark/temporary-0f8fad5b-d9cb-469f-a165-70867728950e")
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    for lasting in ("file:/data/temporary-orders", "hdfs://n/checkpoints/temporary-0f8fad5b-d9cb-469f-a165-70867728950e/orders", "/c"):
        check_lasting(lasting)


def test_a_pipeline_that_starts_its_writer_is_asked_to_return_it() -> None:
    """It had been asked for a checkpoint, which is the runner's."""
    with running("app", "totals", "broker:1"), pytest.raises(KafkaError, match=r"returns its writer .* leave \.start\(\) out"):
        object.__new__(CheckpointedWriter).start()

"""The pipelines of the pages: those of docs/pipelines.md and docs/kafka-streams.md, and the test of one in docs/testing.md."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.pages import blocks
from tests.spark.conftest import Topics
from tests.spark.test_streams import written

from ottla.cli.pipeline_status import status_rows
from ottla.errors import ErrorCode, KafkaError
from ottla.spark import catch_up
from ottla.spark.pipelines import pipelines_of
from ottla.sync import Admin

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("one_partition")]


def pipeline_of(page: str, name: str, directory: Path) -> Callable[[Any], Any]:
    """Returns the one pipeline of the block that begins with the name of its file."""
    [program] = [block for block in blocks(page, "python") if block.startswith(f"# {name}.py\n")]
    file = directory / f"{name}.py"
    file.write_text(program)
    [function] = pipelines_of(file).values()
    return function


def produce(topics: Topics, topic: str, *values: dict[str, Any], key: str | None = None) -> None:
    topics.produce(topic, [(None if key is None else key.encode(), json.dumps(value).encode()) for value in values])


def rows(topics: Topics, topic: str) -> list[dict[str, Any]]:
    return [json.loads(record.value) for record in written(topics, topic)]


def test_totals_of_a_window_come_while_it_runs(spark: Any, own_broker: Any, tmp_path: Path) -> None:
    topics = own_broker()
    function = pipeline_of("pipelines.md", "minutes", tmp_path)
    for name in ("orders", "minutes"):
        topics.create(name=name)
    ada, late = ({"customer": "ada", "amount": 5, "at": f"2026-01-01T12:{minute}:30Z"} for minute in ("00", "10"))
    lines: list[str] = []
    for order in (ada, ada, late, ada):  # the watermark has passed the minute of the last one
        produce(topics, "orders", order)
        lines = catch_up(spark, function, bootstrap=topics.bootstrap, checkpoints=tmp_path / "checkpoints")
    assert next(line.rpartition("  ")[2] for line in lines if "  #" in line) == "late rows 1"
    with Admin(topics.bootstrap) as admin:
        assert [(row.batch > 3, row.late_rows) for row in status_rows(admin, "test")] == [(True, 1)]
    assert [(row["began"][11:16], row["total"]) for row in rows(topics, "minutes")] == [("12:00", 5.0), ("12:00", 10.0), ("12:10", 5.0)]
    assert written(topics, "minutes")[0].key == b"ada 2026-01-01 12:00:00"


def test_orders_meet_their_payments_of_the_next_hour(spark: Any, own_broker: Any, tmp_path: Path) -> None:
    topics = own_broker()
    function = pipeline_of("pipelines.md", "paid", tmp_path)
    for name in ("orders", "payments", "paid"):
        topics.create(name=name)
    produce(topics, "orders", *({"id": name, "amount": 5, "at": "2026-01-01T12:00:00Z"} for name in ("a", "b", "c")))
    produce(topics, "payments", *({"order_id": name, "paid_at": f"2026-01-01T{at}:00Z"} for name, at in (("a", "12:59"), ("b", "13:01"))))
    catch_up(spark, function, bootstrap=topics.bootstrap, checkpoints=tmp_path / "checkpoints")
    assert [row["id"] for row in rows(topics, "paid")] == ["a"]


def test_a_stream_has_the_table_of_its_moment(spark: Any, own_broker: Any, tmp_path: Path) -> None:
    topics = own_broker()
    function = pipeline_of("pipelines.md", "named", tmp_path)
    for name in ("orders", "customers", "named"):
        topics.create(name=name)
    for name in ("Ada", "Anna"):
        produce(topics, "customers", {"name": name}, key="1")
        produce(topics, "orders", {"customer": "1", "amount": 5}, {"customer": "2", "amount": 7})
        catch_up(spark, function, bootstrap=topics.bootstrap, checkpoints=tmp_path / "checkpoints")
    found = [(row["customer"], row.get("name")) for row in rows(topics, "named")]
    assert sorted(found, key=str) == sorted([("1", "Ada"), ("2", None), ("1", "Anna"), ("2", None)], key=str)


def test_the_topology_of_kafka_streams_counts_closed_minutes_by_region(spark: Any, own_broker: Any, tmp_path: Path) -> None:
    topics = own_broker()
    function = pipeline_of("kafka-streams.md", "regions", tmp_path)
    for name in ("clicks", "users", "regions"):
        topics.create(name=name)
    produce(topics, "users", {"region": "north"}, key="ada")
    clicks = [("ada", "12:00:05"), ("bob", "12:00:06"), ("ada", "12:00:59"), ("ada", "12:01:30")]
    produce(topics, "clicks", *({"user": user, "at": f"2026-01-01T{at}Z"} for user, at in clicks))
    catch_up(spark, function, bootstrap=topics.bootstrap, checkpoints=tmp_path / "checkpoints")
    assert sorted((row["region"], row["began"][11:16], row["clicks"]) for row in rows(topics, "regions")) == [
        ("north", "12:00", 2),
        ("unknown", "12:00", 1),
    ]


def test_the_test_of_a_pipeline_passes_and_a_query_that_fails_fails_it(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [orders] = [block for block in blocks("pipelines.md", "python") if block.startswith("# orders.py\n")]
    [test] = [block for block in blocks("testing.md", "python") if "catch_up" in block]
    (tmp_path / "orders.py").write_text(orders)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, Any] = {}
    try:
        exec(compile(test, "testing.md", "exec"), names)
    finally:
        sys.modules.pop("orders", None)
    names["test_orders_are_summed_and_bad_ones_set_aside"](spark, tmp_path / "checkpoints")
    with names["broker"](auto_create_topics_enable=False) as own, pytest.raises(KafkaError, match="test-totals  has failed") as failed:
        catch_up(spark, names["totals"], bootstrap=own.bootstrap, checkpoints=tmp_path / "others")
    assert failed.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

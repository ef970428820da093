"""The examples that are pipelines, each as ``ottla pipeline run`` runs it, in the tests' own session."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import Topics
from tests.spark.test_streams import written

from ottla.spark.pipelines import pipelines_of
from ottla.spark.runner import Runner

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("one_partition")]
EXAMPLES = Path(__file__).parents[2] / "examples"


def run(spark: Any, topics: Topics, name: str, directory: Path) -> None:
    """All that is there has been read."""
    lines: list[str] = []
    runner = Runner(
        spark,
        name,
        pipelines_of(EXAMPLES / f"{name}.py"),
        checkpoints=directory,
        bootstrap=topics.bootstrap,
        checkpoint="directory",
        until_caught_up=True,
        say=lines.append,
    )
    assert runner.run(), lines


def produce(topics: Topics, topic: str, *values: dict[str, Any] | str) -> None:
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    topics.produce(topic, [(None, text.encode()) for text in texts])


def click(user: str, minute: int) -> dict[str, Any]:
    return {"user": user, "page": "home", "at": f"2026-01-01T{12 + minute // 60}:{minute % 60:02}:00Z"}


@pytest.mark.slow
def test_a_payment_after_a_login_from_another_country_is_an_alert(spark: Any, topics: Topics, tmp_path: Path):
    for name in ("logins", "payments", "alerts"):
        topics.create(name=name)
    produce(topics, "logins", *({"user": user, "country": "NO", "at": "2026-01-01T12:00:00Z"} for user in ("ada", "bob", "cyd")))
    paid = [("p1", "ada", "AT", 3), ("p2", "bob", "NO", 3), ("p3", "cyd", "AT", 6), ("p4", "dan", "AT", 1)]
    produce(
        topics,
        "payments",
        *(
            {"id": number, "payer": payer, "card_country": country, "amount": 900, "paid_at": f"2026-01-01T12:0{minute}:00Z"}
            for number, payer, country, minute in paid
        ),
    )
    run(spark, topics, "fraud", tmp_path)
    [alert] = written(topics, "alerts")
    assert alert.key == b"p1"
    assert json.loads(alert.value) == {"id": "p1", "user": "ada", "amount": 900.0, "logged_in_from": "NO", "card_country": "AT"}


@pytest.mark.slow
def test_changes_of_a_table_are_the_newest_row_of_each_key(spark: Any, topics: Topics, tmp_path: Path):
    for name in ("shop.customers", "customers", "customers-bad"):
        topics.create(name=name)
    ada, anna, bob = {"id": "1", "name": "Ada"}, {"id": "1", "name": "Anna"}, {"id": "2", "name": "Bob"}
    produce(topics, "shop.customers", {"op": "r", "after": bob}, {"op": "c", "after": ada}, {"op": "u", "before": ada, "after": anna}, "?")
    produce(topics, "shop.customers", {"op": "d", "before": bob, "after": None})
    topics.produce("shop.customers", [(None, None)])  # what Debezium writes after a deleted row
    run(spark, topics, "upserts", tmp_path)
    rows = [(record.key, None if record.value is None else json.loads(record.value)) for record in written(topics, "customers")]
    assert rows == [(b"2", bob), (b"1", ada), (b"1", anna), (b"2", None)]
    assert [record.value for record in written(topics, "customers-bad")] == [b"?"]


@pytest.mark.slow
def test_a_visit_is_written_when_it_has_ended(spark: Any, topics: Topics, tmp_path: Path):
    for name in ("clicks", "visits"):
        topics.create(name=name)
    produce(topics, "clicks", click("ada", 0), click("ada", 20), click("bob", 25), click("ada", 59), click("ada", 95))
    run(spark, topics, "sessions", tmp_path)
    produce(topics, "clicks", click("cyd", 300))
    run(spark, topics, "sessions", tmp_path)
    found = sorted((json.loads(record.value)["user"], json.loads(record.value)["clicks"]) for record in written(topics, "visits"))
    assert found == [("ada", 1), ("ada", 1), ("ada", 2), ("bob", 1)]

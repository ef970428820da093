"""The pipeline of docs/tutorial.md, as it stands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.pages import ADDRESS, Terminal, blocks, sessions

from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, NewTopic, Producer

PAGE = "tutorial.md"
PROPERTIES = {"listeners": "PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


@pytest.mark.spark
@pytest.mark.slow
def test_the_pipeline_writes_the_totals_that_the_page_shows(spark: Any, tmp_path: Path) -> None:
    [program] = [block for block in blocks(PAGE, "python") if "ottla.spark" in block]
    [typed] = sessions(PAGE)[-1]
    with BrokerThread(PROPERTIES | {"log.dirs": str(tmp_path / "data")}) as broker:
        with Admin(broker.bootstrap) as admin:
            assert admin.create_topics([NewTopic("orders", 3)]) == {"orders": None}
        with Producer(broker.bootstrap) as producer:
            for key, value in ((b"anna", b"lamp 30"), (b"ben", b"desk 200"), (b"anna", b"chair 80"), (b"ben", b"sofa 700")):
                producer.send("orders", value, key=key).result(30)
        changed = program.replace(ADDRESS, broker.bootstrap).replace('"checkpoint"', repr(str(tmp_path / "checkpoint")))
        assert changed.count(str(tmp_path)) == 1
        exec(compile(changed, PAGE, "exec"), {})
        home = tmp_path / "home"
        home.mkdir()
        printed = Terminal(home, int(broker.bootstrap.rpartition(":")[2])).type(typed.command)
    assert sorted(printed.splitlines()) == sorted(typed.output.splitlines())

"""What commands say of healthy partitions, failed directories and records of which nothing is known."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from ottla import sync
from ottla.broker.controller import active_controller
from ottla.cli.cluster import announce
from ottla.cli.main import cli
from ottla.cli.nodes.place import Place
from ottla.cli.partition_states import AT_MIN_ISR, UNDER_MIN_ISR, PartitionState
from ottla.cli.produce import Tally
from ottla.client.admin import LogDir
from ottla.client.cluster_metadata import PartitionMetadata
from ottla.console.pages import Pages
from ottla.controller.elections import Elected
from ottla.errors import ErrorCode, KafkaError


def state(replicas: list[int], in_sync: list[int], min_isr: int) -> PartitionState:
    partition = cast(PartitionMetadata, SimpleNamespace(leader=1, replicas=replicas, in_sync=in_sync))
    return PartitionState(partition, min_isr, {1, 2, 3})


def test_a_partition_with_all_of_its_replicas_in_sync_is_not_under_min_isr() -> None:
    """With one replica and min.insync.replicas=2 each was listed, while acks=all works there and health said 0."""
    assert not state([1], [1], 2).is_any([UNDER_MIN_ISR])
    assert state([1], [1], 2).is_any([AT_MIN_ISR])
    assert state([1, 2, 3], [1], 2).is_any([UNDER_MIN_ISR])
    assert not state([1, 2, 3], [1, 2], 2).is_any([UNDER_MIN_ISR])


def test_a_record_that_may_be_stored_is_not_called_refused(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    tally.sent = 1
    tally.note(1, None, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "close ended before the record was acknowledged; it may have been stored"))
    with pytest.raises(SystemExit):
        tally.report("table")
    shown = capsys.readouterr().err
    assert "record 1 was not acknowledged: REQUEST_TIMED_OUT" in shown
    assert "refused" not in shown


class Asked:
    """An admin of two brokers: the first has a directory that has failed, the second does not serve."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_cluster(self, *, include_fenced: bool = False) -> Any:
        nodes = [SimpleNamespace(node_id=1), SimpleNamespace(node_id=2)]
        return SimpleNamespace(nodes=nodes if include_fenced else nodes[:1], fenced={2})

    def describe_log_dirs(self, ids: list[int]) -> Any:
        assert ids == [1]
        return {1: [LogDir("/d", KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, ""), 270 << 30, 29 << 30, ())]}


def test_a_failed_directory_has_no_room_and_a_broker_that_does_not_serve_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room was that of the volume above the mount point, and the broker was left out without a word."""
    monkeypatch.setattr(sync, "Admin", Asked)
    done = CliRunner().invoke(cli, ["broker", "logdirs", "-B", "a:1"])
    assert done.exit_code == 1
    assert "the log directories of broker 2 are not shown: it is registered and does not serve" in done.output
    [row] = [line for line in done.stdout.splitlines() if "/d" in line]
    assert str(29 << 30) not in row.replace(",", "")


def test_one_node_serves_and_no_second_one_is_there_to_kill(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.nodes.plan.replication_of", lambda _: "")
    for count, head in ((1, "1 node serves Kafka clients"), (3, "3 nodes serve Kafka clients")):
        seen = SimpleNamespace(nodes=[object()] * count, bootstrap="a:1", command_config=None)
        announce(cast(Any, seen), Place("/p"), cast(Any, None), output="table", waiting=None)
        shown = capsys.readouterr().out
        assert (head in shown, "kill 2" in shown) == (True, count > 1)


def test_the_console_says_that_a_directory_is_full() -> None:
    async def describe_log_dirs() -> Any:
        return {1: [LogDir("/d", None, 100 << 20, 0, ()), LogDir("/e", None, 100 << 20, 50 << 20, ())]}

    rows = asyncio.run(Pages.brokers(cast(Any, SimpleNamespace(_admin=SimpleNamespace(describe_log_dirs=describe_log_dirs)))))
    assert [row["error"] for row in rows["directories"]] == ["full", None]


def test_an_unclean_election_names_replicas_only_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line read "and replicas [] may have had"."""
    told: list[str] = []
    monkeypatch.setattr(active_controller, "elections_in", lambda *_: [Elected("t", 0, 1, (), True), Elected("t", 1, 1, (2,), True)])
    monkeypatch.setattr(active_controller, "log", SimpleNamespace(warning=lambda _, **values: told.append(values["lost"])))
    counts = SimpleNamespace(_replica=SimpleNamespace(draft=None), election_count=0, unclean_election_count=0)
    active_controller.ActiveController._note_elections(cast(Any, counts), [])
    alone = "records that the leader does not have"
    assert told == [alone, f"{alone}, and replicas [2] may have had"]

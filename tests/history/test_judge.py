"""The judge of histories: each anomaly is planted, found, and named; what is no anomaly is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.cluster_command import ottla

from ottla.history.judge import KINDS, Verdict, judge
from ottla.history.operations import HistoryError, Operation, read_history, write_history

Event = dict[str, Any]


def sent(process: str, value: str, offset: int, *, partition: int = 0, **more: Any) -> list[Event]:
    """Invoked, and acknowledged."""
    event = {"process": process, "f": "send", "topic": "t", "value": value} | more
    return [event | {"type": "invoke"}, event | {"type": "ok", "partition": partition, "offset": offset}]


def poll(process: str, *records: tuple[int, str], partition: int = 0, **more: Any) -> Event:
    return {"process": process, "type": "ok", "f": "poll", "records": [("t", partition, *record) for record in records]} | more


def event(process: str, f: str, kind: str = "ok", **more: Any) -> Event:
    return {"process": process, "type": kind, "f": f} | more


def commit(kind: str, offset: int, process: str = "c", f: str = "commit") -> Event:
    return event(process, f, kind, group="g", offsets=[("t", 0, offset)])


THREE = [*sent("p", "a", 0), *sent("p", "b", 1), *sent("p", "c", 2)]
ALL = [(0, "a"), (1, "b"), (2, "c")]
DRAINED = event("c", "drained")
ASSIGNED = event("c", "assign", partitions=[("t", 0)])


def verdict_of(events: list[Event]) -> Verdict:
    lines = [json.dumps(found).encode() for found in events]
    operations = list(read_history(lines))
    assert list(read_history(write_history(operations))) == operations, "what is written can be read"
    return judge(operations)


def kinds(*events: Event) -> list[str]:
    return [anomaly.kind for anomaly in verdict_of(list(events)).anomalies]


PLANTED: dict[str, list[Event]] = {
    "lost-write": [*THREE, poll("c", (0, "a"), (2, "c")), poll("d", (0, "a")), DRAINED],
    "unseen": [*THREE, poll("c", *ALL[:2]), DRAINED],
    "duplicate": [*THREE, poll("c", *ALL, (3, "b"))],
    "inconsistent-offsets": [*THREE, poll("c", *ALL), *sent("p", "x", 3), *sent("q", "y", 3)],
    "phantom": [*THREE, poll("c", *ALL, (3, "z"))],
    "aborted-read": [*THREE, event("p", "send", "invoke", topic="t", value="d"), event("p", "send", "fail", topic="t", value="d"),
                     poll("c", *ALL, (3, "d"))],
    "precommitted-read": [*sent("p", "a", 0, transaction="x"), poll("p", (0, "a"), transaction="x"),
                          event("p", "commit_transaction", transaction="x")],
    "nonmonotonic-poll": [*THREE, poll("c", *ALL), poll("c", *ALL[1:])],
    "poll-skip": [*THREE, poll("d", *ALL), poll("c", (0, "a")), poll("c", (2, "c"))],
    "int-nonmonotonic-poll": [*THREE, poll("c", (0, "a"), (2, "c"), (1, "b"))],
    "int-poll-skip": [*THREE, poll("d", *ALL), poll("c", (0, "a"), (2, "c"))],
    "nonmonotonic-send": [*sent("p", "a", 1), *sent("p", "b", 0), poll("c", (0, "b"), (1, "a"))],
    "int-nonmonotonic-send": [*sent("p", "a", 1, transaction="x"), *sent("p", "b", 0, transaction="x"),
                              event("p", "commit_transaction", transaction="x"), poll("c", (0, "b"), (1, "a"))],
    "realtime-send": [*sent("p", "a", 1), *sent("q", "b", 0), poll("c", (0, "b"), (1, "a"))],
    "G1c": [*sent("p", "a", 0, transaction="x"), *sent("q", "b", 0, partition=1, transaction="y"),
            poll("p", (0, "b"), partition=1, transaction="x"), poll("q", (0, "a"), transaction="y"),
            event("p", "commit_transaction", transaction="x"), event("q", "commit_transaction", transaction="y")],
    "torn": [*sent("p", "a", 0, transaction="x"), *sent("p", "b", 0, partition=1, transaction="x"), *sent("p", "c", 1, partition=1),
             poll("c", (0, "a")), poll("c", (1, "c"), partition=1)],
    "lost-commit": [*THREE, poll("c", *ALL), commit("invoke", 3), commit("ok", 3), commit("ok", -1, f="committed")],
    "phantom-commit": [*THREE, poll("c", *ALL), commit("invoke", 2), commit("ok", 2), commit("ok", 3, f="committed")],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_anomaly_is_found_and_named(kind: str) -> None:
    found = kinds(*PLANTED[kind])
    assert kind in found
    # A record that is left out is one that is not seen, too; everything else shows as what it is alone.
    together = {"lost-write": {"int-poll-skip", "lost-write"}, "int-nonmonotonic-poll": {"int-poll-skip", "int-nonmonotonic-poll"}}
    assert set(found) <= together.get(kind, {kind})


def test_a_history_without_an_anomaly_is_valid() -> None:
    verdict = verdict_of([*THREE, poll("c", *ALL[:2]), poll("c", ALL[2]), commit("invoke", 3), commit("ok", 3), DRAINED])
    assert verdict.anomalies == []
    assert not verdict.is_unknown
    assert (verdict.counts["send"], verdict.record_count) == (3, 3)


def test_an_operation_of_unknown_end_may_have_taken_effect_or_not() -> None:
    lost = [event("p", "send", "invoke", topic="t", value="d"), event("p", "send", "info", topic="t", value="d")]
    assert kinds(*THREE, *lost, poll("c", *ALL), DRAINED) == []
    assert kinds(*THREE, *lost, poll("c", *ALL, (3, "d")), DRAINED) == []
    tried = [commit("invoke", 2), commit("info", 2)]
    for offset in (1, 2):
        assert kinds(*THREE, commit("invoke", 1), commit("ok", 1), *tried, poll("c", *ALL), commit("ok", offset, f="committed")) == []


def test_a_consumer_may_begin_anywhere_after_an_assignment() -> None:
    assert kinds(*THREE, poll("c", *ALL), ASSIGNED, poll("c", *ALL[1:])) == []
    assert kinds(*THREE, poll("c", ALL[0]), ASSIGNED, poll("c", ALL[2]), ASSIGNED, poll("c", ALL[1])) == []


def test_a_record_after_the_last_one_polled_is_unseen_only_when_all_was_polled() -> None:
    assert kinds(*THREE, poll("c", *ALL[:2])) == []
    assert kinds(*THREE, poll("c", *ALL[1:])) == ["lost-write"], "a later one was polled, and this one by no consumer"


def test_gaps_that_no_record_is_known_in_are_none() -> None:
    assert kinds(*sent("p", "a", 0), *sent("p", "b", 5), poll("c", (0, "a"), (5, "b")), DRAINED) == []


def test_transactions_count_when_they_are_committed() -> None:
    writes = sent("p", "a", 0, transaction="x")
    committed, aborted = event("p", "commit_transaction", transaction="x"), event("p", "abort_transaction", transaction="x")
    later = sent("q", "b", 2)
    assert kinds(*writes, committed, *later, poll("c", (2, "b")), DRAINED) == ["lost-write"]
    assert kinds(*writes, aborted, *later, poll("c", (2, "b")), DRAINED) == []
    assert kinds(*writes, *later, poll("c", (2, "b")), DRAINED) == [], "its end is not known"
    assert kinds(*writes, aborted, *later, poll("c", (0, "a"), (2, "b"))) == ["aborted-read"]
    assert kinds(*writes, aborted, *later, poll("c", (0, "a"), (2, "b"), read_uncommitted=True)) == []
    split = [poll("c", (0, "a"), transaction="y"), poll("c", (2, "b"), transaction="y")]
    assert kinds(*sent("p", "a", 0), *sent("p", "m", 1), *later, poll("d", (0, "a"), (1, "m"), (2, "b")), *split) == ["int-poll-skip"]


def written_and_read(count: int, *, closes: bool) -> list[Event]:
    """Each of so many transactions has polled the record of the next one, and the last one that of the first, if it closes."""
    events = [found for number in range(count) for found in sent(f"p{number}", f"v{number}", number, transaction=f"x{number}")]
    for number in range(count if closes else count - 1):
        events.append(poll(f"p{number}", ((number + 1) % count, f"v{(number + 1) % count}"), transaction=f"x{number}"))
    return [*events, *(event(f"p{number}", "commit_transaction", transaction=f"x{number}") for number in range(count))]


def test_transactions_that_polled_from_each_other_in_a_circle_are_one_anomaly_that_names_them_all() -> None:
    [found] = verdict_of(written_and_read(3, closes=True)).anomalies
    assert (found.kind, found.text) == ("G1c", "x0 polled 'v1' of x1 polled 'v2' of x2 polled 'v0' of x0")
    assert "G1c" not in kinds(*written_and_read(3, closes=False))
    assert kinds(*written_and_read(3000, closes=True)) == ["G1c"], "however long it is"
    assert "G1c" not in kinds(*written_and_read(3000, closes=False))


def test_a_circle_takes_reads_that_count() -> None:
    circle = written_and_read(2, closes=True)
    assert "G1c" not in kinds(*circle[:-1], circle[-1] | {"f": "abort_transaction"})
    assert kinds(*(found | {"read_uncommitted": True} if found["f"] == "poll" else found for found in circle)) == []
    in_doubt = [found for found in circle if found["f"] != "commit_transaction"]
    assert kinds(*in_doubt) == ["G1c"], "what others have read was committed, though nobody knows"
    assert "G1c" not in kinds(*(found for found in circle if found["f"] != "poll" or found["process"] == "p0"))


def test_sends_that_overlap_may_get_their_offsets_in_any_order() -> None:
    (first, first_done), (second, second_done) = sent("p", "a", 1), sent("q", "b", 0)
    assert kinds(first, second, first_done, second_done, poll("c", (0, "b"), (1, "a"))) == []
    assert kinds(first, first_done, second_done, poll("c", (0, "b"), (1, "a"))) == [], "when it was invoked is not known"
    assert kinds(first, first_done, second, second_done, poll("c", (0, "b"), (1, "a"))) == ["realtime-send"]


def test_partitions_and_topics_are_apart() -> None:
    events = [*sent("p", "a", 0), *sent("p", "b", 0, partition=1), poll("c", (0, "a")), poll("c", (0, "b"), partition=1), DRAINED]
    assert kinds(*events) == []
    assert kinds(*THREE, poll("c", *ALL), poll("c", (0, "a"), partition=1)) == ["phantom"]


def test_commits_that_are_taken_back_or_overlap_lower_what_must_be_there() -> None:
    three, two = [commit("invoke", 3), commit("ok", 3)], [commit("invoke", 2, "d"), commit("ok", 2, "d")]
    assert kinds(*THREE, poll("c", *ALL), *three, *two, commit("ok", 2, f="committed")) == []
    assert kinds(*THREE, poll("c", *ALL), commit("invoke", 2, "d"), *three, commit("ok", 2, f="committed")) == []
    asked = [commit("invoke", -1, "r", f="committed"), *three, commit("ok", -1, "r", f="committed")]
    assert kinds(*THREE, poll("c", *ALL), *asked) == [], "it was asked before"
    assert kinds(*THREE, poll("c", *ALL), commit("invoke", 2), commit("fail", 2), *three, commit("ok", 2, f="committed")) == ["lost-commit"]


def test_an_empty_history_is_no_good_one() -> None:
    assert verdict_of([]).is_unknown
    assert verdict_of([*THREE]).is_unknown
    assert verdict_of([event("p", "send", "invoke", topic="t", value="a"), poll("c", (0, "a"))]).is_unknown


def bad_lines() -> Iterator[tuple[bytes, str]]:
    yield b"{", "line 2"
    yield b'{"process": "p", "type": "ok", "f": "dance"}', "line 2"
    yield b'{"process": "p", "type": "ok", "f": "poll", "ofset": 3}', "ofset"
    yield b'{"process": "p", "type": "ok", "f": "send", "topic": "t", "value": "a"}', "has a partition and an offset"
    yield b'{"process": "p", "type": "ok", "f": "commit"}', "names its group"


@pytest.mark.parametrize(("line", "why"), list(bad_lines()))
def test_a_line_that_is_no_event_is_named(line: bytes, why: str) -> None:
    good = json.dumps(poll("c", *ALL)).encode()
    with pytest.raises(HistoryError, match=r"line 2") as caught:
        list(read_history([good, line]))
    assert why in str(caught.value)


def test_the_command_says_what_it_found_by_its_exit_code_and_by_name(tmp_path: Path) -> None:
    def checked(events: list[Event], *options: str) -> tuple[int, str]:
        path = tmp_path / "history.jsonl"
        path.write_text("".join(json.dumps(found) + "\n" for found in events))
        result = ottla("check-history", str(path), *options)
        return result.returncode, result.stdout + result.stderr

    assert checked([*THREE, poll("c", *ALL), DRAINED]) == (0, "3 sends, 3 polled records, 0 commits\nvalid\n")
    code, said = checked(PLANTED["lost-write"])
    assert code == 1
    assert "lost-write: 1\n  event 3  t-0  'b' was acknowledged to p at offset 1, and no client polled it; offset 2 was polled" in said
    assert checked(PLANTED["duplicate"], "--allow", "duplicate")[0] == 0
    code, said = checked(PLANTED["unseen"], "--json")
    [found] = json.loads(said)["items"]
    assert (code, found["verdict"], found["counts"]) == (1, "anomalies", {"unseen": 1})
    assert checked([])[0] == 1
    (tmp_path / "broken").write_text("no history\n")
    result = ottla("check-history", str(tmp_path / "broken"))
    assert (result.returncode, "line 1" in result.stderr) == (2, True)
    assert ottla("check-history", str(tmp_path / "missing")).returncode == 2


def test_operations_leave_out_what_they_do_not_say() -> None:
    [line] = write_history([Operation("p", "invoke", "send", topic="t", value="a")])
    assert json.loads(line) == {"process": "p", "type": "invoke", "f": "send", "topic": "t", "value": "a"}


def test_a_transaction_of_unknown_end_is_there_entirely_or_not_at_all() -> None:
    sends = [*sent("p", "a", 0, transaction="x"), *sent("p", "b", 0, partition=1, transaction="x"), *sent("p", "c", 1, partition=1)]
    rest = poll("c", (1, "c"), partition=1)
    assert kinds(*sends, rest) == [], "nothing of it"
    assert kinds(*sends, poll("c", (0, "a")), poll("c", (0, "b"), partition=1), rest) == []
    assert kinds(*sends, poll("c", (0, "a"))) == [], "the other partition has not been read so far"
    assert kinds(*sends, poll("d", (0, "a"), read_uncommitted=True), rest) == []
    committed = event("p", "commit_transaction", transaction="x")
    assert set(kinds(*sends, committed, poll("c", (0, "a")), rest)) == {"torn", "lost-write"}


def test_commits_of_a_transaction_count_when_it_is_committed() -> None:
    begun = [*THREE, poll("c", *ALL), commit("invoke", 2) | {"transaction": "x"}, commit("ok", 2) | {"transaction": "x"}]
    for end, anomalies in (
        (event("p", "commit_transaction", transaction="x"), {-1: ["lost-commit"], 2: []}),
        (event("p", "abort_transaction", transaction="x"), {-1: [], 2: ["phantom-commit"]}),
        (event("p", "commit_transaction", "info", transaction="x"), {-1: [], 2: []}),
    ):
        for offset, found in anomalies.items():
            assert kinds(*begun, end, commit("ok", offset, f="committed")) == found, (end, offset)

"""The exactly-once machine: its rules one by one, and courses of crashes in which nothing may be doubled, nothing skipped, or it stops."""

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.sink_model import STOPS, Play

from ottla.client.group_metadata import OffsetAndMetadata
from ottla.client.transaction_errors import FENCED, CommitOutcomeUnknownError, ProducerFencedError, TransactionAbortableError
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.exactly_once import Batch, ExactlyOnce, Seal, Step, StopError, TransactionExpiredError, is_written
from ottla.spark.marker import Committed, Marker, Noticed, committed_of, hash_of, marker_of
from ottla.types import TopicPartition

A, B, C = (TopicPartition("in", index) for index in range(3))
AT_5 = {A: 5, B: 5}
STOPPING = ("exactly_once.py", "checkpoint_topic.py", "restoring.py", "driver_sink.py", "stream_writer.py")
SITES = 14
"""Places there that stop a query for good."""
OTHER_REASONS = (
    "another producer has its transactional id, or the transaction was open for too long",
    "the group was deleted, or batches were written without checkpoint=topic",
    *("does not have all of", "which is of no checkpoint"),
    *("is larger than spark.driver.maxResultSize", "rows for the driver"),
)
SEEDS = int(os.environ.get("OTTLA_SEEDS", "20")) * 10


def batch(number=7, query="q", offsets_hash="h", begin=None):
    return Batch(query, number, offsets_hash, begin, {A: 9, B: 9})


def after(number, query="q", offsets_hash="h", offsets=AT_5, *, is_partial=False):
    return Committed(Marker(query, number, offsets_hash, 70, is_partial=is_partial), offsets)


@pytest.mark.parametrize(
    ("committed", "arrived", "result"),
    [
        (Committed(), batch(0), False),
        (Committed(), batch(0, begin=AT_5), False),
        (after(6), batch(), False),
        (after(7), batch(), True),
        (after(0), batch(0, begin=AT_5), True),
        (after(57, "other"), batch(0, begin=AT_5), False),
        (Committed(), batch(1), "has no marker"),
        (after(7, offsets_hash="another"), batch(), "from other offsets"),
        (after(0, offsets_hash="another"), batch(0, begin=AT_5), "from other offsets"),
        (after(8), batch(), "older than what was written"),
        (after(3), batch(0, begin=AT_5), "older than what was written"),
        (after(5), batch(), "are missing"),
        (after(6, "other"), batch(), "another checkpoint of the application has written since"),
        (after(7, "other"), batch(), "another checkpoint of the application has written since"),
        (after(57, "other"), batch(0, begin=AT_5 | {C: 0}), False),
        (after(57, "other"), batch(0, begin=AT_5 | {C: 1}), "does not begin where that one ended"),
        (after(57, "other"), batch(0, begin={A: 5, C: 0}), "does not begin where that one ended"),
        (after(57, "other"), batch(0, begin=AT_5 | {TopicPartition("more", 0): 0}), "does not begin where that one ended"),
        (after(57, "other", is_partial=True), batch(0, begin=AT_5 | {C: 0}), "does not begin where that one ended"),
        (after(57, "other", is_partial=True), batch(0, begin=AT_5), False),
        (after(57, "other"), batch(0), "does not begin where that one ended"),
        (after(57, "other"), batch(0, begin={A: 5, B: 4}), "does not begin where that one ended"),
        (after(57, "other"), batch(0, begin={A: 5}), "does not begin where that one ended"),
        (after(57, "other"), batch(0, begin={A: 0, B: 0}), "does not begin where that one ended"),
        (after(0, "other"), batch(0, begin={A: 0, B: 0}), "does not begin where that one ended"),
    ],
)
def test_a_batch_is_the_next_one_or_was_written_or_stops(committed, arrived, result):
    if isinstance(result, bool):
        assert is_written("app", arrived, committed) is result
        return
    with pytest.raises(StopError, match=result) as stopped:
        is_written("app", arrived, committed)
    assert "ottla group delete app --yes" in str(stopped.value)
    is_told = committed.marker is not None and not committed.marker.is_partial
    assert is_told == ("startingOffsets=" in str(stopped.value))


def test_a_marker_has_the_late_rows_and_the_losses_of_all_batches_of_its_query():
    def sealed(machine: ExactlyOnce, arrived: Batch, answers: list[Committed | Noticed | None]) -> Marker:
        asking, found = machine.deliver(arrived), set[Marker | None]()
        answer: Committed | Noticed | None = None
        try:
            while True:
                asked = asking.send(answer)
                answer = answers.pop(0) if asked in (Step.READ, Step.COLLECT) else None
                if isinstance(asked, Seal):
                    found = {marker_of(place.metadata) for place in asked.offsets.values()}
        except StopIteration:
            [made] = found
            assert made is not None
            return made

    machine, others = ExactlyOnce("app"), ExactlyOnce("app")
    before = Committed(Marker("q", 6, "h", 70, noticed=Noticed(5, {"in-0": (1, 3)})), AT_5)
    assert sealed(machine, batch(7), [before, Noticed(2, {"in-1": (4, 5)})]).noticed == Noticed(7, {"in-0": (1, 3), "in-1": (4, 5)})
    assert sealed(machine, batch(8), [Noticed(0, {"in-0": (8, 9)})]).noticed == Noticed(7, {"in-1": (4, 5), "in-0": (8, 9)})
    assert sealed(others, batch(0, query="other", begin=AT_5), [before, None]).noticed == Noticed()  # of another checkpoint
    assert not {"late", "lost"} & json.loads(Marker("q", 6, "h", 70).text()).keys()
    many = Noticed(0, {f"{'t' * 249}-{number}": (2**62, 2**63) for number in range(50)})
    assert len(Marker("q" * 36, 2**31, "h" * 32, 2**31, 2**41, Noticed().and_then(many)).text()) < 4096


@pytest.mark.parametrize(("what", "said"), [(f"offset of in-0: {FENCED}", " (offset of in-0). Run one copy"), (FENCED, ". Run one copy")])
def test_a_query_that_was_fenced_has_no_advice_for_the_owner_of_a_producer(what: str, said: str):
    fenced = ProducerFencedError(ErrorCode.PRODUCER_FENCED, what)
    with pytest.raises(StopError, match="the transaction was open for too long") as stopped:
        steps(ExactlyOnce("app"), batch(0), Committed(), fail_at="seal", error=fenced)
    assert said in str(stopped.value)
    assert "make a new one" not in str(stopped.value)


@pytest.mark.parametrize(("app", "has_advice"), [("to-totals", True), ("totals", False)])
def test_two_queries_that_share_the_name_of_their_topic_are_advised_to_have_their_own(app: str, has_advice: bool):
    """The other advice, to delete the group, would stop the other query."""
    with pytest.raises(StopError) as stopped:
        is_written(app, batch(0), after(57, "other"))
    advice = "Where that is another query that writes the same topic, give each a name of its own: app=NAME. To go on after it"
    assert (advice in str(stopped.value)) == has_advice
    with pytest.raises(StopError, match="older than what was written") as stopped:
        is_written(app, batch(), after(8))
    assert "app=NAME" not in str(stopped.value)


@pytest.mark.parametrize("is_mirrored", [False, True])
def test_a_checkpoint_is_written_back_from_its_topic_only_where_it_is_in_one(is_mirrored: bool):
    arrived = Batch("q", 7, "h", None, {A: 9, B: 9}, is_mirrored=is_mirrored)
    with pytest.raises(StopError, match="older than what was written") as stopped:
        is_written("app", arrived, after(8))
    assert ("Delete the checkpoint's directory and start again" in str(stopped.value)) == is_mirrored


def steps(machine, arrived, committed=None, *, fail_at=None, error=None):
    """What it asks for, and True or False at the end; ``error`` is thrown in at that step."""
    asked = []
    asking = machine.deliver(arrived)
    answer = None
    try:
        step = next(asking)
        while True:
            asked.append("seal" if isinstance(step, Seal) else step.value)
            if asked[-1] == fail_at:
                fail_at = None
                step = asking.throw(error)
                continue
            answer = committed if step is Step.READ else None
            step = asking.send(answer)
    except StopIteration as done:
        return [*asked, done.value]


WHOLE = ["fence", "read", "collect", "begin", "write", "seal", "commit"]


def test_the_first_batch_is_fenced_and_read_for_and_later_ones_are_not():
    machine = ExactlyOnce("app")
    assert steps(machine, batch(0), Committed()) == [*WHOLE, True]
    assert steps(machine, batch(1)) == ["collect", "begin", "write", "seal", "commit", True]
    assert steps(machine, batch(1)) == [False]
    with pytest.raises(StopError, match="older"):
        steps(machine, batch(0))


def test_every_partition_carries_the_marker_and_its_serial_goes_on_over_checkpoints():
    machine = ExactlyOnce("app")
    asking = machine.deliver(batch(0, "new", begin=AT_5))
    for _ in range(2):
        next(asking)
    asking.send(after(57, "old"))
    while not isinstance(seal := next(asking), Seal):
        pass
    assert {partition: place.offset for partition, place in seal.offsets.items()} == {A: 9, B: 9}
    assert {marker_of(place.metadata) for place in seal.offsets.values()} == {Marker("new", 0, "h", 71)}


@pytest.mark.parametrize("step", ["begin", "write", "seal", "commit"])
def test_a_step_that_fails_is_aborted_and_the_next_batch_is_read_for(step):
    machine = ExactlyOnce("app")
    error = TransactionAbortableError(ErrorCode.TRANSACTION_ABORTABLE, "refused")
    assert steps(machine, batch(0), Committed())[-1] is True
    with pytest.raises(TransactionAbortableError):
        steps(machine, batch(1), fail_at=step, error=error)
    assert steps(machine, batch(1), after(0)) == [*WHOLE, True]


def asked_until(machine, arrived, committed, step, error):
    """All that is asked for, the steps after the failure too."""
    asked = []
    asking = machine.deliver(arrived)
    found = next(asking)
    try:
        while True:
            asked.append("seal" if isinstance(found, Seal) else found.value)
            found = asking.throw(error) if asked[-1] == step else asking.send(committed if found is Step.READ else None)
    except (StopError, KafkaError, KeyboardInterrupt):
        return asked


def test_what_may_be_committed_is_never_aborted_and_what_cannot_be_is():
    unknown = CommitOutcomeUnknownError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
    fenced = ProducerFencedError(ErrorCode.PRODUCER_FENCED, "fenced")
    refused = TransactionAbortableError(ErrorCode.TRANSACTION_ABORTABLE, "refused")
    for step, error, end in (
        ("commit", unknown, ["commit"]),
        ("commit", fenced, ["commit"]),
        ("commit", refused, ["commit", "abort"]),
        ("write", KeyboardInterrupt(), ["write", "abort"]),
        ("fence", KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer"), ["fence"]),
        ("collect", KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer"), ["fence", "read", "collect"]),
    ):
        assert asked_until(ExactlyOnce("app"), batch(0), Committed(), step, error)[-len(end) :] == end


def test_a_driver_that_was_fenced_never_fences_again():
    machine = ExactlyOnce("app")
    fenced = ProducerFencedError(ErrorCode.PRODUCER_FENCED, "fenced")
    with pytest.raises(StopError, match="another producer has its transactional id"):
        steps(machine, batch(0), Committed(), fail_at="write", error=fenced)
    with pytest.raises(StopError, match="another producer has its transactional id"):
        next(machine.deliver(batch(0)))


def test_a_driver_that_learns_from_its_abort_that_it_was_fenced_stops_too():
    machine = ExactlyOnce("app")
    asking = machine.deliver(batch(0))
    assert [asking.send(answer) for answer in (None, None, Committed(), None)][-1] is Step.BEGIN
    assert asking.throw(TransactionAbortableError(ErrorCode.INVALID_PRODUCER_EPOCH, "refused")) is Step.ABORT
    with pytest.raises(StopError, match="another producer has its transactional id"):
        asking.throw(ProducerFencedError(ErrorCode.PRODUCER_FENCED, "fenced"))
    with pytest.raises(StopError, match="another producer has its transactional id"):
        next(machine.deliver(batch(0)))


@pytest.mark.parametrize("step", ["write", "seal", "commit"])
def test_a_driver_whose_transaction_was_open_for_too_long_goes_on_unless_another_one_has_written(step):
    expired = TransactionExpiredError(ErrorCode.PRODUCER_FENCED, "its time was over")
    for committed, follows in ((after(0), WHOLE), (after(1), ["fence", "read"])):
        machine = ExactlyOnce("app")
        assert steps(machine, batch(0), Committed())[-1] is True
        with pytest.raises(TransactionExpiredError):
            steps(machine, batch(1), committed, fail_at=step, error=expired)
        assert steps(machine, batch(1), committed) == [*follows, follows is WHOLE]
    machine = ExactlyOnce("app")
    assert steps(machine, batch(0), Committed())[-1] is True
    with pytest.raises(StopError, match="older than what was written"):
        steps(machine, batch(1), after(2), fail_at=step, error=expired)
    with pytest.raises(StopError, match="older than what was written"):
        next(machine.deliver(batch(1)))


def test_a_crash_at_any_step_asks_for_nothing_more():
    for count in range(1, len(WHOLE) + 1):
        asking = ExactlyOnce("app").deliver(batch(0))
        step = next(asking)
        for _ in range(count - 1):
            step = asking.send(Committed() if step is Step.READ else None)
        asking.close()


@given(st.text(max_size=40), st.integers(0, 2**40), st.text(max_size=40), st.integers(0, 2**40))
def test_a_marker_comes_back_from_its_text(query, number, offsets_hash, serial):
    marker = Marker(query, number, offsets_hash, serial)
    assert marker_of(marker.text()) == marker
    assert len(Marker("q" * 36, number, "h" * 32, serial).text()) <= 4096


@pytest.mark.parametrize("text", ["", "x", "[]", "7", "{}", '{"form": "ottla 2"}', '{"form": "ottla 1", "query": "q"}', "null"])
def test_what_others_write_into_an_offset_is_no_marker(text):
    assert marker_of(text) is None


def test_the_newest_marker_counts_whatever_query_or_batch_it_is_of():
    old, new = Marker("old", 57, "h", 57), Marker("new", 0, "h", 58)
    group = {
        A: OffsetAndMetadata(5, new.text()),
        B: OffsetAndMetadata(3, old.text()),  # of a topic that the query does not read any more
        TopicPartition("other", 0): OffsetAndMetadata(1, "of another tool"),
    }
    assert committed_of(group) == Committed(new, {A: 5})
    assert committed_of({}) == Committed()


def test_the_hash_is_of_what_the_offsets_say_and_of_their_sources_order():
    assert hash_of(['{"in": {"0": 1}}', None]) == hash_of(['{ "in":{"0":1} }', None])
    assert hash_of(["1", "2"]) != hash_of(["2", "1"])
    assert hash_of(['{"in": {"0": 1}}']) != hash_of(['{"in": {"0": 2}}'])
    assert hash_of(["not JSON"]) != hash_of([None])


def test_no_course_of_crashes_doubles_or_skips_a_row():
    """Two drivers, checkpoints that are lost or of yesterday, groups deleted, topics recreated, clusters restored; see sink_model."""
    met: Counter[str] = Counter()
    for seed in range(SEEDS):
        play = Play(seed)
        try:
            play.run(300)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        met += play.met
    for fault in ("sent", "received", "answered"):
        for place in ("fence", "read", "collect", "begin", "write", "seal", "commit", "commits"):
            assert met[f"{fault} at {place}"], f"no crash was {fault} at {place}"
    for name in (
        *STOPS,
        "yesterday",
        "group deleted",
        "topic recreated",
        "cluster restored",
        "two drivers",
        "unknown at commit",
        "expired at commit",
    ):
        if SEEDS >= 1000 or name not in ("STOP: other offsets", "STOP: a gap"):
            assert met[name], f"it came to no {name}"


def test_the_page_on_production_has_each_reason_for_which_a_query_stops():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "production.md").read_text()
    listed = "\n".join(line.split(" | ")[0] for line in page.partition("## A query that stopped")[2].splitlines() if line.startswith("|"))
    texts = "".join((root / "src" / "ottla" / "spark" / name).read_text() for name in STOPPING)
    assert len(re.findall(r"\b(?:StopError|BatchTooLargeError)\(f?[\"\n_]", texts)) == SITES, (
        "a new one belongs on the page, and into SITES"
    )
    reasons = re.findall(r'_why\(app, batch, committed, "([^"]+)"\)', texts)
    assert len(reasons) == 6
    for reason in [*reasons, *OTHER_REASONS]:
        assert f"`{reason}`" in listed, reason
        assert reason in re.sub(r'"\s*\n\s*f?"', "", texts), reason

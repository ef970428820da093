"""The leader of a partition: who is in sync, and up to where records are committed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import PartitionImage
from ottla.replication.high_watermark import HighWatermark
from ottla.replication.leader import FetchTimes, IsrChange, Leader

LAG_MS = 1000
OWN, F, G = 1, 2, 3


def image(isr: tuple[int, ...] = (OWN, F, G), *, partition_epoch: int = 0) -> PartitionImage:
    return PartitionImage((OWN, F, G), isr, OWN, 5, partition_epoch)


class Log:
    """A leader, the end of its log, and the time."""

    def __init__(
        self, isr: tuple[int, ...] = (OWN, F, G), *, start: int = 0, end: int = 10, high_watermark: int = 10, min_isr: int = 1
    ) -> None:
        self.end, self.now_ms = end, 0
        self.ineligible: set[int] = set()
        self.leader = Leader(
            OWN,
            image(isr),
            epoch_start_offset=end,
            start_offset=start,
            end_offset=end,
            committed=HighWatermark(high_watermark),
            min_isr=min_isr,
            lag_ms_max=LAG_MS,
            may_join=lambda node, epoch: node not in self.ineligible,
            now_ms=0,
        )

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark

    def append(self, count: int) -> bool:
        self.end += count
        return self.leader.advance(self.end, self.now_ms)

    def fetch(self, node: int, offset: int, *, broker_epoch: int = 100, start: int = 0) -> bool:
        return self.leader.on_fetch(
            node, broker_epoch=broker_epoch, offset=offset, start_offset=start, end_offset=self.end, now_ms=self.now_ms
        )

    def look_after(self, ms: int) -> None:
        self.now_ms += ms
        self.leader.look_for_laggards(self.end, self.now_ms)

    def change(self) -> IsrChange:
        change = self.leader.take_change()
        assert change is not None
        return change

    def granted(self, change: IsrChange, *, epoch: int = 1) -> None:
        isr = [node for node, _ in change.isr]
        self.leader.on_changed(change, partition_epoch=epoch, isr=isr, end_offset=self.end, now_ms=self.now_ms)


def test_records_are_committed_when_every_replica_in_sync_has_them() -> None:
    log = Log()
    assert not log.append(5)
    assert not log.fetch(F, 15), "the other one has not"
    assert log.fetch(G, 12)
    assert log.high_watermark == 12
    assert log.fetch(G, 15)
    assert log.high_watermark == 15


def test_before_a_follower_has_fetched_nothing_is_known_of_it() -> None:
    log = Log(high_watermark=7)
    assert log.high_watermark == 7, "the leader alone commits nothing, however long its log"
    log.fetch(F, 10)
    assert log.high_watermark == 7
    assert not log.leader.knows_what_is_committed
    log.fetch(G, 10)
    assert log.high_watermark == 10
    assert log.leader.knows_what_is_committed


def test_a_laggard_leaves_the_isr_once_the_controller_has_recorded_it_and_not_before() -> None:
    log = Log()
    for node in (F, G):
        log.fetch(node, 10)
    log.append(5)
    log.now_ms = 900
    log.fetch(F, 15)
    log.look_after(200)
    change = log.change()
    assert change == IsrChange(5, 0, ((OWN, -1), (F, 100)))
    assert log.high_watermark == 10, "a shrink that is not recorded may never be"
    log.granted(change)
    assert (log.high_watermark, log.leader.isr) == (15, (OWN, F))


def test_a_follower_that_fetches_without_ever_catching_up_is_a_laggard_too() -> None:
    log = Log(isr=(OWN, F), end=10)
    log.fetch(F, 10)
    for _ in range(30):
        log.append(10)
        log.now_ms += 100
        log.fetch(F, log.end - 15)
    log.look_after(0)
    assert log.change().isr == ((OWN, -1),)


def test_one_that_reaches_where_the_log_ended_at_its_last_fetch_has_caught_up_by_then() -> None:
    log = Log(isr=(OWN, F), end=10)
    log.fetch(F, 10)
    for _ in range(30):
        log.append(10)
        log.now_ms += 100
        log.fetch(F, log.end - 10)
    log.look_after(0)
    assert log.leader.change is None


@pytest.mark.parametrize(("offset", "joins"), [(9, False), (10, True)])
def test_a_follower_joins_at_the_high_watermark_and_at_the_start_of_the_epoch(offset: int, joins: bool) -> None:
    """Between the high watermark and the start of the epoch there may be records that an earlier leader committed."""
    log = Log(isr=(OWN, F), end=10, high_watermark=4)
    log.fetch(G, offset)
    assert (log.leader.change is not None) == joins


def test_a_follower_joins_when_it_begins_where_records_were_deleted_while_it_was_away() -> None:
    log = Log((OWN, G), start=3)
    log.fetch(F, 10, start=2)
    assert log.leader.take_change() is None, "it may lead next: what an earlier leader has deleted would be back"
    log.leader.deleted(5)
    log.leader.deleted(4)
    log.fetch(F, 10, start=4)
    assert log.leader.take_change() is None
    log.fetch(F, 10, start=5)
    assert [node for node, _ in log.change().isr] == [OWN, G, F]
    log = Log((OWN, G), start=3)
    log.fetch(F, 10, start=-1)
    assert log.leader.take_change() is not None, "one that does not say is not waited for"


def test_whoever_is_about_to_join_counts_already_and_goes_on_counting_when_the_answer_is_lost() -> None:
    log = Log(isr=(OWN, F))
    log.fetch(F, 10)
    log.fetch(G, 10)
    change = log.change()
    log.append(5)
    log.fetch(F, 15)
    assert log.high_watermark == 10
    assert log.leader.on_refused(change, ErrorCode.NOT_CONTROLLER), "it is asked for again"
    assert log.leader.maximal_isr == (OWN, F, G), "the one that was asked may have recorded it"
    assert not log.leader.on_refused(change, ErrorCode.INVALID_UPDATE_VERSION)
    assert log.leader.is_changing, "a newer image says what became of it"
    log.leader.on_image(image((OWN, F), partition_epoch=3), end_offset=log.end, now_ms=log.now_ms)
    assert not log.leader.is_changing


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_an_isr_change_that_was_certainly_not_recorded_is_taken_back(code: ErrorCode) -> None:
    log = Log(isr=(OWN, F))
    log.fetch(G, 10)
    change = log.change()
    assert not log.leader.on_refused(change, code)
    assert log.leader.maximal_isr == (OWN, F)
    assert not log.leader.on_refused(change, ErrorCode.NOT_CONTROLLER), "it is of the past"


def test_a_broker_that_does_not_serve_does_not_join_and_holds_nothing_up() -> None:
    log = Log(isr=(OWN, F))
    log.ineligible = {G}
    log.fetch(F, 10)
    log.fetch(G, 10)
    assert log.leader.change is None
    log.append(5)
    assert log.fetch(F, 15)
    assert log.high_watermark == 15


def test_below_min_isr_nothing_is_committed_and_acks_all_is_refused() -> None:
    """KIP-966."""
    log = Log(isr=(OWN,), min_isr=2)
    log.append(5)
    log.fetch(F, 9)
    assert log.high_watermark == 10
    with pytest.raises(KafkaError) as caught:
        log.leader.check_enough_in_sync()
    assert caught.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
    log.fetch(F, 15)
    log.granted(log.change())
    assert log.high_watermark == 15
    log.leader.check_enough_in_sync()


def test_an_earlier_process_of_a_broker_and_one_that_is_no_replica_are_refused() -> None:
    log = Log()
    log.fetch(F, 10, broker_epoch=200)
    for node, epoch in ((F, 100), (9, 1)):
        with pytest.raises(KafkaError) as caught:
            log.fetch(node, 10, broker_epoch=epoch)
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@given(st.data())
def test_whatever_happens_all_that_may_be_elected_have_what_is_committed(data: st.DataObject) -> None:
    log = Log(isr=data.draw(st.sampled_from([(OWN, F, G), (OWN, F), (OWN,)])), high_watermark=data.draw(st.integers(0, 10)))
    ends = {F: data.draw(st.integers(0, 10)), G: data.draw(st.integers(0, 10))}
    for node in set(log.leader.isr) & set(ends):  # who is in sync has everything that was committed when the leader was elected
        ends[node] = max(ends[node], log.high_watermark)
    asked: list[IsrChange] = []
    recorded, epoch = log.leader.isr, 0
    for step in data.draw(st.lists(st.sampled_from(["append", "f", "g", "later", "look", "record", "lose", "image"]), max_size=40)):
        before = log.high_watermark
        if step == "append":
            log.append(data.draw(st.integers(1, 3)))
        elif step in "fg":
            node = F if step == "f" else G
            log.fetch(node, ends[node])
            ends[node] = min(log.end, ends[node] + data.draw(st.integers(0, 4)))
        elif step == "later":
            log.now_ms += 700
        elif step == "look":
            log.look_after(0)
        elif step == "record" and asked:
            change = asked.pop()
            if change.partition_epoch == epoch:
                epoch, recorded = epoch + 1, tuple(node for node, _ in change.isr)
                log.granted(change, epoch=epoch)
        elif step == "lose" and asked:  # the controller has recorded it, and its answer is lost
            change = asked.pop()
            if change.partition_epoch == epoch:
                epoch, recorded = epoch + 1, tuple(node for node, _ in change.isr)
        elif step == "image":
            log.leader.on_image(image(recorded, partition_epoch=epoch), end_offset=log.end, now_ms=log.now_ms)
        if (found := log.leader.take_change()) is not None:
            asked.append(found)
        assert before <= log.high_watermark <= log.end
        has = {OWN: log.end} | ends
        assert all(has[node] >= log.high_watermark for node in recorded), "whoever may be elected has what is committed"


def test_the_low_watermark_is_the_smallest_start_of_the_replicas_that_live() -> None:
    log, live = Log(), {F, G}

    def low_watermark() -> int:
        return log.leader.low_watermark(7, live.__contains__)

    assert low_watermark() == -1, "neither has fetched"
    log.fetch(F, 10, start=5)
    log.fetch(G, 10, start=9)
    assert low_watermark() == 5
    live.remove(F)
    assert low_watermark() == 7, "the leader's own"
    live.add(F)
    log.fetch(F, 10, start=7)
    assert low_watermark() == 7


def rested(log: Log) -> FetchTimes:
    """Both followers have everything, and are at rest since time 0."""
    times = FetchTimes()
    for node in (F, G):
        log.fetch(node, 10)
        assert log.leader.rest(node, times, end_offset=10, start_offset=0)
    return times


def test_a_follower_at_rest_had_everything_until_its_last_fetch() -> None:
    log = Log()
    times = rested(log)
    log.now_ms = times.fetched_ms = 50 * LAG_MS
    log.append(1)
    log.look_after(LAG_MS)
    assert log.leader.change is None, "the last fetch of its session counts, though nobody looked at the partition"
    for node in (F, G):
        log.leader.stir(node, times)
    times.fetched_ms += LAG_MS
    log.look_after(1)
    assert [node for node, _ in log.change().isr] == [OWN], "from then on it was behind"


def test_a_follower_that_stops_fetching_leaves_the_isr_even_after_a_rest() -> None:
    log = Log()
    rested(log)
    log.look_after(50 * LAG_MS)
    assert log.leader.change is None, "it has everything"
    log.append(1)
    log.look_after(0)
    assert [node for node, _ in log.change().isr] == [OWN]


def test_a_fetch_that_names_the_partition_ends_the_rest() -> None:
    log = Log()
    times = rested(log)
    log.append(5)
    log.fetch(F, 12)
    times.fetched_ms = log.now_ms = 2 * LAG_MS
    log.leader.stir(G, FetchTimes())
    log.look_after(0)
    assert [node for node, _ in log.change().isr] == [OWN, G], "G rests still: another session has ended, not its own"


@pytest.mark.parametrize(("node", "end", "start"), [(F, 11, 0), (F, 10, 1), (9, 10, 0)])
def test_only_a_follower_known_to_have_everything_is_at_rest(node: int, end: int, start: int) -> None:
    log = Log()
    log.fetch(F, 10)
    assert not log.leader.rest(node, FetchTimes(), end_offset=end, start_offset=start)


def test_a_follower_out_of_sync_is_never_at_rest() -> None:
    """Its next fetch may let it join."""
    log = Log((OWN, G))
    log.ineligible.add(F)
    log.fetch(F, 10)
    assert not log.leader.rest(F, FetchTimes(), end_offset=10, start_offset=0)

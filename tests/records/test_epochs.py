"""The leader epochs of a log, against a model that remembers the epoch of every offset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import DecodeError
from ottla.records.epochs import EpochCache

ENTRIES = [(1, 0), (3, 10), (4, 25)]


def test_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    cache = EpochCache(ENTRIES)
    assert cache.end_offset_for(1, log_end_offset=40) == (1, 10)
    assert cache.end_offset_for(3, log_end_offset=40) == (3, 25)
    assert cache.end_offset_for(4, log_end_offset=40) == (4, 40)


def test_an_unknown_epoch_is_answered_with_the_largest_below_it() -> None:
    assert EpochCache(ENTRIES).end_offset_for(2, log_end_offset=40) == (1, 10)


def test_an_epoch_older_than_all_ends_where_the_first_begins() -> None:
    assert EpochCache([(3, 10), (4, 25)]).end_offset_for(1, log_end_offset=40) == (1, 10)


def test_a_newer_epoch_is_not_known() -> None:
    assert EpochCache(ENTRIES).end_offset_for(5, log_end_offset=40) == (-1, -1)
    assert EpochCache().end_offset_for(0, log_end_offset=0) == (-1, -1)
    assert EpochCache(ENTRIES).end_offset_for(-1, log_end_offset=40) == (-1, -1)


def test_an_epoch_is_assigned_once() -> None:
    cache = EpochCache()
    assert cache.assign(2, 5)
    assert not cache.assign(2, 9)
    assert cache.assign(3, 9)
    assert cache.entries == [(2, 5), (3, 9)]


def test_a_contradicting_epoch_removes_what_it_contradicts() -> None:
    cache = EpochCache(ENTRIES)
    cache.assign(5, 12)
    assert cache.entries == [(1, 0), (3, 10), (5, 12)]
    cache.assign(2, 30)
    assert cache.entries == [(1, 0), (2, 30)]


def test_truncation_from_the_end_forgets_epochs_that_begin_there() -> None:
    cache = EpochCache(ENTRIES)
    assert cache.truncate_from_end(25)
    assert cache.entries == [(1, 0), (3, 10)]
    assert not cache.truncate_from_end(11)


def test_truncation_from_the_start_moves_the_spanning_epoch() -> None:
    cache = EpochCache(ENTRIES)
    assert cache.truncate_from_start(15)
    assert cache.entries == [(3, 15), (4, 25)]
    assert not cache.truncate_from_start(15)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8)), max_size=12), st.integers(0, 60))
def test_the_cache_knows_the_epoch_of_every_offset(runs: list[tuple[int, int]], cut: int) -> None:
    cache, epoch = EpochCache(), 0
    epochs: list[int] = []
    for step, count in runs:
        epoch += step
        cache.assign(epoch, len(epochs))
        epochs += [epoch] * count
    assert [cache.epoch_at(offset) for offset in range(len(epochs))] == epochs
    for asked in range(epoch + 1):
        found = [offset for offset, known in enumerate(epochs) if known <= asked]
        if epochs and asked >= epochs[0]:
            assert cache.end_offset_for(asked, log_end_offset=len(epochs)) == (epochs[found[-1]], found[-1] + 1)
    assert EpochCache.from_text(cache.to_text()).entries == cache.entries
    cache.truncate_from_end(cut)
    assert [cache.epoch_at(offset) for offset in range(len(epochs))][:cut] == epochs[:cut]


def test_the_file_has_kafkas_form() -> None:
    assert EpochCache(ENTRIES).to_text() == "0\n3\n1 0\n3 10\n4 25\n"


@pytest.mark.parametrize(
    "text", ["", "0\n", "1\n0\n", "0\n2\n1 0\n", "0\n1\n1 x\n", "0\n1\n1 0", "0\n2\n1 0\n1 5\n", "0\n1\n1 0\nmore\n", "0\n-1\n"]
)
def test_a_damaged_file_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError):
        EpochCache.from_text(text)

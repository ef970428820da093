"""The futures of records in a producer's memory: what they share, and what threads that look at one at once get."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import as_completed, wait

import pytest

from ottla.client.accumulator import RecordMetadata
from ottla.errors import ErrorCode, KafkaError
from ottla.sync.sent_record import SentRecord, of_client

PLACE = RecordMetadata("t", 0, 1, 2)
COUNT = 100  # more than an array of attributes has room for


def landed(record: SentRecord) -> None:
    record.land([record], [PLACE])


def failed(record: SentRecord) -> None:
    record.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late"))


@pytest.mark.parametrize("end", [landed, failed])
def test_no_future_gets_a_dict_whatever_is_done_with_it(end: Callable[[SentRecord], None]) -> None:
    """While CPython 3.11 makes one, another thread may get a second one of the same attributes: the process ends by a fault."""
    kind = of_client(lambda: None)
    records = [object.__new__(kind) for _ in range(COUNT)]
    called: list[object] = []
    for record in records:
        record.add_done_callback(called.append)
        assert not record.done()
        end(record)
        assert (record.exception() is None) == (end is landed)
        assert repr(record)
    assert called == records
    assert set(as_completed(records)) == wait(records).done == {*records}
    assert not [record for record in records if any(type(held) is dict for held in gc.get_referents(record))]


def test_threads_that_look_at_once_get_the_same() -> None:
    kind = of_client(lambda: None)
    for _ in range(COUNT):
        record = object.__new__(kind)
        start = threading.Barrier(4)
        found: list[object] = []

        def look(record: SentRecord = record, start: threading.Barrier = start, found: list[object] = found) -> None:
            start.wait(30)
            found.append(record._condition)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(found) == 4
        assert len(set(map(id, found))) == 1

"""The exactly-once sink of Spark's streams against Apache Kafka 4.3.0, at levels 2 and 1 of transaction.version: as tests/spark has it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from bench.peers import Kafka
from tests.interop.conftest import until_served
from tests.spark.conftest import Topics
from tests.spark.test_driver_sink import (
    test_a_batch_of_no_topic_has_its_marker_for_the_topic_that_it_goes_to,
    test_a_batch_that_comes_again_is_skipped_and_the_next_one_is_written,
    test_a_new_checkpoint_goes_on_where_the_last_one_ended_and_nowhere_else,
    test_a_process_that_ends_at_any_step_leaves_nothing_behind_but_what_it_committed,
    test_a_record_that_the_broker_refuses_aborts_its_batch,
    test_all_of_a_batch_is_in_one_transaction_with_the_offsets_and_its_marker,
    test_many_rows_over_many_partitions_keep_their_order_in_each,
    test_the_earlier_of_two_running_copies_of_a_query_stops_for_good,
)

__all__ = [
    "test_a_batch_of_no_topic_has_its_marker_for_the_topic_that_it_goes_to",
    "test_a_batch_that_comes_again_is_skipped_and_the_next_one_is_written",
    "test_a_new_checkpoint_goes_on_where_the_last_one_ended_and_nowhere_else",
    "test_a_process_that_ends_at_any_step_leaves_nothing_behind_but_what_it_committed",
    "test_a_record_that_the_broker_refuses_aborts_its_batch",
    "test_all_of_a_batch_is_in_one_transaction_with_the_offsets_and_its_marker",
    "test_many_rows_over_many_partitions_keep_their_order_in_each",
    "test_the_earlier_of_two_running_copies_of_a_query_stops_for_good",
]


@pytest.fixture(scope="module", params=[2, 1])
def topics(request: pytest.FixtureRequest) -> Iterator[Topics]:
    with Kafka(transaction_version=request.param) as started:
        asyncio.run(until_served(started.bootstrap))
        yield Topics(started.bootstrap)

"""Spark's checkpoints in topics, and the changelogs of its state, with Apache Kafka 4.3.0 as the broker: as tests/spark has them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from bench.peers import Kafka
from tests.interop.conftest import until_served
from tests.spark.conftest import Topics, spark
from tests.spark.test_changelogs import test_the_state_of_a_processor_is_in_compacted_topics_as_it_is_in_spark
from tests.spark.test_checkpoint_topic import (
    query,
    test_a_batch_that_was_aborted_leaves_nothing_in_the_topic,
    test_a_checkpoint_that_does_not_belong_to_what_was_written_is_not_written_back,
    test_a_copy_that_goes_on_from_the_topic_stops_the_one_that_runs,
    test_a_file_that_was_deleted_while_its_query_runs_is_not_deleted_in_the_topic,
    test_a_record_of_another_writer_leads_nowhere,
    test_lost_files_are_restored_as_of_the_last_committed_batch,
    test_pieces_are_below_what_the_topic_takes_and_shrink_with_their_file,
    test_the_topic_is_made_with_its_settings_once,
    test_topics_that_are_not_compacted_and_foreign_directories_are_refused,
)
from tests.spark.test_lost_checkpoints import test_state_goes_on_over_a_lost_directory_also_of_a_batch_that_spark_has_not_noted

__all__ = [
    "query",
    "spark",
    "test_a_batch_that_was_aborted_leaves_nothing_in_the_topic",
    "test_a_checkpoint_that_does_not_belong_to_what_was_written_is_not_written_back",
    "test_a_copy_that_goes_on_from_the_topic_stops_the_one_that_runs",
    "test_a_file_that_was_deleted_while_its_query_runs_is_not_deleted_in_the_topic",
    "test_a_record_of_another_writer_leads_nowhere",
    "test_lost_files_are_restored_as_of_the_last_committed_batch",
    "test_pieces_are_below_what_the_topic_takes_and_shrink_with_their_file",
    "test_state_goes_on_over_a_lost_directory_also_of_a_batch_that_spark_has_not_noted",
    "test_the_state_of_a_processor_is_in_compacted_topics_as_it_is_in_spark",
    "test_the_topic_is_made_with_its_settings_once",
    "test_topics_that_are_not_compacted_and_foreign_directories_are_refused",
]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with Kafka(transaction_version=2) as started:
        asyncio.run(until_served(started.bootstrap))
        yield Topics(started.bootstrap)

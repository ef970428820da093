"""Answers with an error code, made from requests alone."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.messages import add_partitions_to_txn as adding
from ottla.messages import create_topics, delete_groups, fetch, heartbeat, metadata, offset_commit, produce
from ottla.messages.error_answers import CHANGING_NOTHING, place, refusal
from ottla.messages.registry import API_OF_REQUEST, APIS
from ottla.wire.compiler import decode, encode

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER


def refused(request: Any, version: int) -> Any:
    """As it comes out of the wire."""
    api = API_OF_REQUEST[type(request)]
    return decode(api.response, version, memoryview(encode(refusal(api, version, request, CODE), version)))


@pytest.mark.parametrize("version", [3, 9, 13])
def test_every_partition_of_a_produce_request_has_the_code(version: int) -> None:
    partitions = [produce.PartitionProduceData(index, b"") for index in (4, 5)]
    topic = produce.TopicProduceData("t", bytes(range(16)), partitions)
    answer = refused(produce.ProduceRequest(acks=-1, topic_data=[topic]), version)
    [found] = answer.responses
    assert (found.name, found.topic_id) == (("t", bytes(16)) if version < 13 else ("", bytes(range(16))))
    assert [(partition.index, partition.error_code) for partition in found.partition_responses] == [(4, CODE), (5, CODE)]


def test_a_code_of_the_whole_answer_is_in_its_one_place() -> None:
    assert refused(heartbeat.HeartbeatRequest("g", 1, "m"), 4) == heartbeat.HeartbeatResponse(error_code=CODE)


def test_elements_that_are_texts_are_named() -> None:
    answer = refused(delete_groups.DeleteGroupsRequest(["a", "b"]), 2)
    assert [(found.group_id, found.error_code) for found in answer.results] == [("a", CODE), ("b", CODE)]


def test_a_topic_is_named_and_its_partitions_by_number() -> None:
    topic = adding.AddPartitionsToTxnTopic("t", [0, 2])
    answer = refused(adding.AddPartitionsToTxnRequest(v3_and_below_topics=[topic]), 3)
    [found] = answer.results_by_topic_v3_and_below
    assert [(each.partition_index, each.partition_error_code) for each in found.results_by_partition] == [(0, CODE), (2, CODE)]


def test_only_what_the_answer_has_is_taken_from_the_request() -> None:
    topic = create_topics.CreatableTopic("t", 3, 1, configs=[create_topics.CreatableTopicConfig("a", "b")])
    [found] = refused(create_topics.CreateTopicsRequest([topic]), 7).topics
    assert (found.name, found.error_code) == ("t", CODE)
    commit = offset_commit.OffsetCommitRequest("g", topics=[offset_commit.OffsetCommitRequestTopic("t")])
    assert [topic.name for topic in refused(commit, 8).topics] == ["t"]


def test_a_code_placed_in_a_fetch_or_metadata_answer_belongs_to_the_partition_or_topic() -> None:
    found = fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("t", partitions=[fetch.PartitionData(records=b"abc")])])
    assert place(found, 12, CODE)
    assert (found.error_code, found.responses[0].partitions[0].error_code, found.responses[0].partitions[0].records) == (0, CODE, None)
    assert place(found, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert found.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not place(fetch.FetchResponse(), 12, CODE)
    described = metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(name="t")])
    assert place(described, 13, CODE)
    assert (described.error_code, described.topics[0].error_code) == (0, CODE)


def test_every_api_can_be_refused() -> None:
    """With an empty request: whatever it has, its answer can be made and sent."""
    for api in APIS.values():
        for version in range(api.version_min, api.version_max + 1):
            answer = refusal(api, version, api.request(), CODE)
            if api.key not in CHANGING_NOTHING:
                assert encode(answer, version) is not None
